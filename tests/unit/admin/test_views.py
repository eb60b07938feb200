from __future__ import annotations

import base64

from flockmq.admin import model, views
from flockmq.admin.moments import Moments
from flockmq.testing.harness import BrokerHarness, make_properties

WALL_MS = 1_772_366_400_000


def moments_of(harness: BrokerHarness) -> Moments:
    start = harness.now
    return Moments(lambda: harness.now, lambda: WALL_MS + harness.now - start)


def test_a_connection_counts_what_it_did() -> None:
    harness = BrokerHarness()
    moments = moments_of(harness)
    client = harness.client("c", username="ada", keep_alive_s=30, peer="192.0.2.1", listener="tcp:default")
    client.subscribe(b"a")
    client.publish(b"a", b"xyz")
    harness.advance(1_000)
    session = harness.broker.sessions["c"]
    assert session.connection is not None
    view = views.connection(session.connection, session, moments)
    assert view == model.Connection(
        client_id="c",
        namespace="default",
        username="ada",
        peer="192.0.2.1",
        listener="tcp:default",
        protocol_version="5.0",
        keep_alive_s=30,
        connected_at="2026-03-01T12:00:00.000Z",
        subscriptions=1,
        messages_in=1,
        messages_out=1,
        messages_dropped=0,
        bytes_in=view.bytes_in,
        bytes_out=view.bytes_out,
    )
    assert view.bytes_in > 0
    assert view.bytes_out > 0


def test_versions_as_people_know_them() -> None:
    assert [views.protocol_version(version) for version in (4, 5)] == ["3.1.1", "5.0"]


def test_a_session_that_waits_for_its_client() -> None:
    harness = BrokerHarness()
    moments = moments_of(harness)
    client = harness.client("c", username="ada", session_expiry_s=600)
    client.subscribe(b"a", qos=1)
    harness.advance(1_000)
    client.drop()
    publisher = harness.client("p")
    for _ in range(3):
        publisher.publish(b"a", b"x", qos=1)
    view = views.session(harness.broker.sessions["c"], moments)
    assert view.queued_bytes
    assert view == model.Session(
        client_id="c",
        namespace="default",
        username="ada",
        connected=False,
        protocol_version="5.0",
        created_at="2026-03-01T12:00:00.000Z",
        disconnected_at="2026-03-01T12:00:01.000Z",
        expiry_s=600,
        subscriptions=1,
        queued_messages=3,
        queued_bytes=view.queued_bytes,
        inflight_messages=0,
        messages_dropped=0,
        state="disconnected",
    )


def test_a_session_with_messages_in_flight() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.subscribe(b"a", qos=1)
    harness.client("p").publish(b"a", b"x", qos=1)
    view = views.session(harness.broker.sessions["c"], moments_of(harness))
    assert (view.connected, view.disconnected_at, view.inflight_messages, view.queued_messages) == (True, None, 1, 0)


def test_a_subscription_with_all_its_options() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.subscribe(b"a/+", qos=2, no_local=True, retain_as_published=True, retain_handling=2, identifier=7)
    client.subscribe(b"$share/g/b", qos=1)
    first, second = harness.broker.sessions["c"].subscriptions.values()
    assert views.subscription(first) == model.Subscription(
        client_id="c",
        namespace="default",
        filter="a/+",
        share_group=None,
        qos=2,
        no_local=True,
        retain_as_published=True,
        retain_handling=2,
        identifier=7,
    )
    shared = views.subscription(second)
    assert (shared.filter, shared.share_group, shared.identifier) == ("$share/g/b", "g", None)


def test_a_client_of_a_namespace_by_its_own_names() -> None:
    harness = BrokerHarness()
    harness.broker.set_listener_namespace("tcp", "acme")
    client = harness.client("c", username="ada")
    client.subscribe(b"a/+")
    client.subscribe(b"$share/g/b")
    session = harness.broker.sessions["$ns/acme/c"]
    view = views.session(session, moments_of(harness))
    assert (view.client_id, view.namespace, view.username) == ("c", "acme", "ada")
    assert session.connection is not None
    connection = views.connection(session.connection, session, moments_of(harness))
    assert (connection.client_id, connection.namespace, connection.username) == ("c", "acme", "ada")
    found = [views.subscription(one) for one in session.subscriptions.values()]
    assert [(one.namespace, one.filter) for one in found] == [("acme", "a/+"), ("acme", "$share/g/b")]


def test_a_retained_message_with_all_it_carries() -> None:
    harness = BrokerHarness()
    harness.broker.set_wall(WALL_MS, harness.now)
    moments = moments_of(harness)
    properties = make_properties(
        payload_format=1,
        message_expiry_s=60,
        content_type="text/plain",
        response_topic=b"r/1",
        correlation_data=b"\x00\xff",
        user=[("k", "1"), ("k", "2")],
    )
    harness.client("c").publish(b"caf\xc3\xa9", "é".encode(), qos=1, retain=True, properties=properties)
    harness.now += 1_500
    message = harness.broker.retained.get(b"caf\xc3\xa9", harness.now)
    assert message is not None
    assert views.retained_message(message, moments) == model.RetainedMessage(
        topic="café",
        qos=1,
        payload_bytes=2,
        stored_at="2026-03-01T12:00:00.000Z",
        expires_at="2026-03-01T12:01:00.000Z",
        payload="é",
        payload_base64=base64.b64encode("é".encode()).decode(),
        properties=model.MessageProperties(
            payload_is_utf8=True,
            message_expiry_s=59,
            content_type="text/plain",
            response_topic="r/1",
            correlation_data_base64="AP8=",
            user_properties=[model.UserProperty("k", "1"), model.UserProperty("k", "2")],
        ),
    )


def test_a_payload_that_is_not_text_is_given_as_base64_only() -> None:
    harness = BrokerHarness()
    harness.client("c", version=4).publish(b"a", b"\xff\x00", retain=True)
    message = harness.broker.retained.get(b"a", harness.now)
    assert message is not None
    view = views.retained_message(message, moments_of(harness))
    assert (view.payload, view.payload_base64, view.payload_bytes) == (None, "/wA=", 2)
    assert (view.expires_at, view.properties) == (None, model.MessageProperties())
