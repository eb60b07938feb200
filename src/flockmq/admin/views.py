"""How the broker's objects look from outside: one function each, core object in, model value out."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, cast

from flockmq.admin import model
from flockmq.admin.moments import rfc3339
from flockmq.durable.machine.session_bodies import NO_LOCAL, RETAIN_AS_PUBLISHED
from flockmq.durable.sessions.lag import NO_LAG, Lag
from flockmq.mqtt.namespaces import split_client_id, split_filter, unqualified
from flockmq.mqtt.properties import IN_PUBLISH, decode_properties
from flockmq.mqtt.topics import split_shared

if TYPE_CHECKING:
    from flockmq.admin.moments import Moments
    from flockmq.durable.machine.session_bodies import StoredSubscription
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.node.bans import Ban
    from flockmq.routing.retained import RetainedMessage
    from flockmq.routing.subscription import Subscription
    from flockmq.session.connection import Connection
    from flockmq.session.session import Session


def protocol_version(version: int) -> model.ProtocolVersion:
    """Name a protocol level as people know it."""
    return "5.0" if version == 5 else "3.1.1"


def text(data: bytes) -> str:
    """Core topics are UTF-8; should one not be, show it all the same."""
    return data.decode("utf-8", "backslashreplace")


def connection(found: Connection, session: Session, moments: Moments) -> model.Connection:
    """A client that is connected."""
    namespace, client_id = split_client_id(session.client_id)
    return model.Connection(
        client_id=client_id,
        namespace=namespace,
        username=session.username and unqualified(namespace, session.username),
        peer=found.peer,
        listener=found.listener,
        protocol_version=protocol_version(found.version),
        keep_alive_s=found.keep_alive_s,
        connected_at=moments.date(found.connected_at),
        subscriptions=len(session.subscriptions),
        messages_in=found.messages_in,
        messages_out=found.messages_out,
        messages_dropped=found.dropped,
        bytes_in=found.bytes_in,
        bytes_out=found.bytes_out,
    )


def session(found: Session, moments: Moments, lag: Lag = NO_LAG) -> model.Session:
    """A session, connected or not."""
    outbound = found.outbound
    namespace, client_id = split_client_id(found.client_id)
    return model.Session(
        client_id=client_id,
        namespace=namespace,
        username=found.username and unqualified(namespace, found.username),
        connected=found.connection is not None,
        protocol_version=protocol_version(found.version),
        created_at=moments.date(found.created_at),
        disconnected_at=moments.date(found.detached_at) if found.connection is None else None,
        expiry_s=found.expiry_s,
        subscriptions=len(found.subscriptions),
        queued_messages=outbound.queued if outbound is not None else 0,
        queued_bytes=outbound.held if outbound is not None else 0,
        inflight_messages=outbound.inflight if outbound is not None else 0,
        messages_dropped=found.dropped,
        state="connected" if found.connection is not None else "disconnected",
        lag=lag.waiting,
        gap=lag.gone,
    )


def record(found: SessionRecord, node: str, lag: Lag | None) -> model.Session:
    """A session that no node has, out of its record; ``node``: the name of its last owner."""
    namespace, client_id = split_client_id(text(found.client))
    return model.Session(
        client_id=client_id,
        namespace=namespace,
        username=None if found.user is None else unqualified(namespace, text(found.user)),
        connected=False,
        protocol_version=protocol_version(found.version),
        created_at=None,
        disconnected_at=rfc3339(found.detached_ms) if found.detached_ms else None,
        expiry_s=found.expiry_s,
        subscriptions=len(found.subscriptions),
        queued_messages=None,
        queued_bytes=None,
        inflight_messages=None,
        messages_dropped=None,
        state="away",
        node=node,
        lag=None if lag is None else lag.waiting,
        gap=None if lag is None else lag.gone,
    )


def stored_subscription(found: SessionRecord, stored: StoredSubscription, node: str) -> model.Subscription:
    """A subscription of such a session."""
    namespace, client_id = split_client_id(text(found.client))
    group = split_shared(stored.full_filter)[0]
    return model.Subscription(
        client_id=client_id,
        namespace=namespace,
        filter=text(split_filter(stored.full_filter)[1]),
        share_group=text(group) if group else None,
        qos=stored.qos,
        no_local=stored.options & NO_LOCAL != 0,
        retain_as_published=stored.options & RETAIN_AS_PUBLISHED != 0,
        retain_handling=stored.options >> 2,
        identifier=stored.identifier or None,
        node=node,
        away=True,
    )


def full_filter(found: Subscription) -> bytes:
    """The filter that a session keeps the subscription by."""
    return b"$share/" + found.group + b"/" + found.topic_filter if found.group else found.topic_filter


def subscription(found: Subscription) -> model.Subscription:
    """One subscription."""
    namespace, client_id = split_client_id(found.session.client_id)
    return model.Subscription(
        client_id=client_id,
        namespace=namespace,
        filter=text(split_filter(full_filter(found))[1]),
        share_group=text(found.group) if found.group else None,
        qos=found.qos,
        no_local=found.no_local,
        retain_as_published=found.retain_as_published,
        retain_handling=found.retain_handling,
        identifier=found.identifier or None,
    )


def retained(found: RetainedMessage, moments: Moments) -> model.Retained:
    """A retained message without its payload."""
    return model.Retained(
        topic=text(found.topic),
        qos=found.run.qos,
        payload_bytes=len(found.run.payload(0)),
        stored_at=rfc3339(found.stored_wall_ms()),
        expires_at=moments.date_or_none(found.run.expires_at),
    )


def retained_message(found: RetainedMessage, moments: Moments) -> model.RetainedMessage:
    """A retained message with all it carries."""
    block, payload = found.run.parse(0)
    try:
        payload_text: str | None = payload.decode()
    except UnicodeDecodeError:
        payload_text = None
    return model.RetainedMessage(
        topic=text(found.topic),
        qos=found.run.qos,
        payload_bytes=len(payload),
        stored_at=rfc3339(found.stored_wall_ms()),
        expires_at=moments.date_or_none(found.run.expires_at),
        payload=payload_text,
        payload_base64=base64.b64encode(payload).decode("ascii"),
        properties=_properties(block, found.run.expires_at, moments),
    )


def _properties(block: bytes, expires_at: int, moments: Moments) -> model.MessageProperties:
    found = decode_properties(block, 0, len(block), IN_PUBLISH)
    correlation = found.correlation_data
    return model.MessageProperties(
        payload_is_utf8=found.payload_format == 1,
        message_expiry_s=max(0, (expires_at - moments.now_ms + 999) // 1000) if expires_at else None,
        content_type=found.content_type,
        response_topic=None if found.response_topic is None else text(found.response_topic),
        correlation_data_base64=None if correlation is None else base64.b64encode(correlation).decode("ascii"),
        user_properties=[model.UserProperty(name, value) for name, value in found.user],
    )


def ban(found: Ban, moments: Moments) -> model.Ban:
    """A ban."""
    return model.Ban(
        kind=cast("model.BanKind", found.kind),
        value=found.value,
        reason=found.reason,
        created_at=moments.date(found.since),
        expires_at=moments.date_or_none(found.until),
    )
