"""A single publish over REST whose topic name belongs to a durable topic: answered once it is in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.admin import model
from flockmq.admin.durable_common import owner_of
from flockmq.admin.durable_port import Message
from flockmq.admin.publishing import message_parts, topic_inside
from flockmq.errors import INVALID_BODY, UNAVAILABLE, ApiError, RemoteProtocolError
from flockmq.mqtt.topics import check_topic_name

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.durable_port import DurablePort


async def publish_durably(desk: Desk, port: DurablePort, request: model.PublishRequest) -> model.PublishResult | None:
    """Append a message; None when no durable topic wants it."""
    topic = topic_inside(desk.broker, request)
    try:
        record = owner_of(port.state(), topic)
        if record is None:
            return None
        check_topic_name(topic)
        payload, properties = message_parts(request.payload, request.payload_base64, request.properties)
        [outcome] = await port.publish(record, b"", [Message(topic, payload, request.retain, properties)])
    except RemoteProtocolError as error:
        raise ApiError(INVALID_BODY, f"`topic` can't be {request.topic[:80]!r}: {error}") from None
    if isinstance(outcome, str):
        raise ApiError(UNAVAILABLE, outcome)
    plan = desk.broker.subscriptions.plan(topic)
    return model.PublishResult(
        matched=len(plan.targets) + len(plan.groups),
        retained=request.retain and bool(payload),
        durable_topic=record.name,
        shard=outcome[0],
        offset=outcome[1],
    )
