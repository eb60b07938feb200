from __future__ import annotations

import pytest

from flockmq.admin.model import MessageProperties, PublishRequest, PublishResult, UserProperty
from flockmq.admin.publishing import publish
from flockmq.errors import INVALID_BODY, NOT_FOUND, REFUSED, ApiError, ErrorKind
from flockmq.node.namespaces import NamespaceLimits
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness


def refusal(request: PublishRequest, harness: BrokerHarness | None = None) -> tuple[ErrorKind, str]:
    harness = harness or BrokerHarness()
    with pytest.raises(ApiError) as refused:
        publish(harness.broker, request, harness.now)
    return refused.value.kind, str(refused.value)


@pytest.mark.parametrize(
    ("request_", "payload"),
    [
        (PublishRequest(topic="a", payload="é"), "é".encode()),
        (PublishRequest(topic="a", payload_base64="AP8="), b"\x00\xff"),
        (PublishRequest(topic="a"), b""),
    ],
)
def test_the_payload_arrives_as_it_was_given(request_: PublishRequest, payload: bytes) -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.subscribe(b"a")
    assert publish(harness.broker, request_, harness.now) == PublishResult(matched=1, retained=False)
    harness.flush()
    assert client.payloads() == [payload]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_qos_and_properties_arrive(qos: int) -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.subscribe(b"a", qos=2)
    properties = MessageProperties(
        payload_is_utf8=True,
        message_expiry_s=60,
        content_type="text/plain",
        response_topic="r",
        correlation_data_base64="AP8=",
        user_properties=[UserProperty("k", "1"), UserProperty("k", "2")],
    )
    publish(harness.broker, PublishRequest(topic="a", payload="x", qos=qos, properties=properties), harness.now)
    harness.flush()
    [message] = client.consume()
    assert message.qos == qos
    assert message.properties is not None
    assert message.properties.present() == {
        "payload_format": 1,
        "message_expiry_s": 60,
        "content_type": "text/plain",
        "response_topic": b"r",
        "correlation_data": b"\x00\xff",
        "user": [("k", "1"), ("k", "2")],
    }


def test_retain_keeps_the_message_and_an_empty_payload_forgets_it() -> None:
    harness = BrokerHarness()
    kept = publish(harness.broker, PublishRequest(topic="a", payload="x", retain=True), harness.now)
    assert kept == PublishResult(matched=0, retained=True)
    assert harness.broker.retained.usage.count == 1
    gone = publish(harness.broker, PublishRequest(topic="a", retain=True), harness.now)
    assert gone.retained is False
    assert harness.broker.retained.usage.count == 0


def test_a_full_store_is_told() -> None:
    harness = BrokerHarness(settings=BrokerSettings(retained_messages_max=1))
    publish(harness.broker, PublishRequest(topic="a", payload="x", retain=True), harness.now)
    assert publish(harness.broker, PublishRequest(topic="b", payload="x", retain=True), harness.now).retained is False


@pytest.mark.parametrize(
    ("request_", "kind", "named"),
    [
        (PublishRequest(topic="a/+"), REFUSED, "wildcard"),
        (PublishRequest(topic="#"), REFUSED, "wildcard"),
        (PublishRequest(topic="$SYS/uptime"), REFUSED, "$SYS"),
        (PublishRequest(topic="$delayed/5/a"), REFUSED, "$delayed"),
        (PublishRequest(topic="$share/g/a"), REFUSED, "$share"),
        (PublishRequest(topic="a\0b"), INVALID_BODY, "topic"),
        (PublishRequest(topic="\ud800"), INVALID_BODY, "topic"),
        (PublishRequest(topic="a" * 65_536), INVALID_BODY, "topic"),
        (PublishRequest(topic="/" * 200), REFUSED, "levels"),
        (PublishRequest(topic="a", payload="x", payload_base64="eA=="), INVALID_BODY, "both"),
        (PublishRequest(topic="a", payload="\udfff"), INVALID_BODY, "payload"),
        (PublishRequest(topic="a", payload_base64="e"), INVALID_BODY, "payload_base64"),
        (PublishRequest(topic="a", payload_base64="eA==\n"), INVALID_BODY, "payload_base64"),
        (PublishRequest(topic="a", payload_base64="é"), INVALID_BODY, "payload_base64"),
    ],
)
def test_what_cannot_be_published_is_refused_by_name(request_: PublishRequest, kind: ErrorKind, named: str) -> None:
    found, text = refusal(request_)
    assert found is kind
    assert named in text


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        (MessageProperties(payload_is_utf8=True), "payload_is_utf8"),
        (MessageProperties(content_type="a\0"), "content_type"),
        (MessageProperties(content_type="a" * 65_536), "content_type"),
        (MessageProperties(response_topic="a/#"), "response_topic"),
        (MessageProperties(response_topic=""), "response_topic"),
        (MessageProperties(correlation_data_base64="!"), "correlation_data"),
        (MessageProperties(correlation_data_base64="AAAA" * 21_846), "correlation"),
        (MessageProperties(user_properties=[UserProperty("\0", "x")]), "user_properties.name"),
        (MessageProperties(user_properties=[UserProperty("x", "\ud800")]), "user_properties.value"),
    ],
)
def test_properties_that_mqtt_cannot_carry_are_refused_by_name(properties: MessageProperties, named: str) -> None:
    kind, text = refusal(PublishRequest(topic="a", payload_base64="/w==", properties=properties))
    assert kind is (REFUSED if properties.payload_is_utf8 else INVALID_BODY)  # well-formed, but the two contradict
    assert named in text


def test_a_payload_beyond_the_packet_limit_is_refused() -> None:
    harness = BrokerHarness(settings=BrokerSettings(limits=Limits(packet_bytes_max=100)))
    kind, text = refusal(PublishRequest(topic="a", payload="x" * 101), harness)
    assert kind is REFUSED
    assert "100" in text


def test_a_message_to_a_namespace() -> None:
    harness = BrokerHarness()
    harness.broker.set_namespaces([NamespaceLimits("acme")], harness.now)
    inside = harness.client("c", username="acme/bob")
    outside = harness.client("c")
    for client in (inside, outside):
        client.subscribe(b"a")
    publish(harness.broker, PublishRequest(topic="a", payload="x", namespace="acme"), harness.now)
    harness.flush()
    assert (inside.payloads(), outside.payloads()) == ([b"x"], [])


def test_namespaces_that_can_not_be_published_to() -> None:
    kind, text = refusal(PublishRequest(topic="a", namespace="nope"))
    assert (kind, "no namespace 'nope'" in text) == (NOT_FOUND, True)
    kind, text = refusal(PublishRequest(topic="$ns/acme/a"))
    assert (kind, "`namespace`" in text) == (REFUSED, True)
    harness = BrokerHarness()
    harness.broker.set_namespaces([NamespaceLimits("acme")], harness.now)
    kind, text = refusal(PublishRequest(topic="$x", namespace="acme"), harness)
    assert (kind, "begin with $" in text) == (REFUSED, True)
