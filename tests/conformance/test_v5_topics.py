"""MQTT 5, section 4.7: topic names and filters, as the whole broker matches them."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from flockmq.mqtt.packets import PUBACK, Publish
from flockmq.node.settings import Limits
from flockmq.testing.harness import BrokerHarness

# filter, names that match, names that do not
MATCHES = [
    (b"sport/tennis/player1/#", [b"sport/tennis/player1", b"sport/tennis/player1/ranking", b"sport/tennis/player1/a/b"],
     [b"sport/tennis/player2", b"sport/tennis", b"sport/tennis/player12"]),
    (b"sport/#", [b"sport", b"sport/", b"sport/a"], [b"sports", b"/sport"]),
    (b"#", [b"a", b"/", b"a/b/c", b"//"], [b"$a", b"$a/b"]),
    (b"sport/tennis/+", [b"sport/tennis/player1", b"sport/tennis/"], [b"sport/tennis", b"sport/tennis/a/b"]),
    (b"sport/+", [b"sport/", b"sport/a"], [b"sport"]),
    (b"+/+", [b"/finance", b"a/b", b"/"], [b"a", b"a/b/c", b"$a/b"]),
    (b"/+", [b"/finance", b"/"], [b"finance", b"/a/b"]),
    (b"+", [b"finance"], [b"/finance", b"a/", b"$a"]),
    (b"+/monitor/Clients", [b"a/monitor/Clients"], [b"$SYX/monitor/Clients"]),
    (b"$SYX/#", [b"$SYX", b"$SYX/a", b"$SYX/a/b"], [b"SYX/a"]),
    (b"$SYX/monitor/+", [b"$SYX/monitor/Clients"], [b"$SYX/monitor"]),
    (b"+/tennis/#", [b"a/tennis", b"a/tennis/b", b"/tennis/"], [b"tennis", b"$a/tennis"]),
    (b"a/+/+/d", [b"a/b/c/d", b"a///d"], [b"a/b/d", b"a/b/c/d/e"]),
    (b"/", [b"/"], [b"//", b"a/"]),
    (b"a//b", [b"a//b"], [b"a/b", b"a///b"]),
    (b"accounts", [b"accounts"], [b"Accounts", b"ACCOUNTS", b"/accounts", b"accounts/"]),
    (b"with blank/ ", [b"with blank/ "], [b"with blank/", b"withblank/ "]),
]  # fmt: skip


@clause("5.0", "MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.2-1", "MQTT-3.3.2-3", "MQTT-4.7.0-1")
@pytest.mark.parametrize(("topic_filter", "matching", "other"), MATCHES, ids=[row[0].decode() for row in MATCHES])
@pytest.mark.parametrize("order", ["subscribe first", "publish first"])
def test_mqtt5_4_7_1_2_matching(
    harness: BrokerHarness, topic_filter: bytes, matching: list[bytes], other: list[bytes], order: str
) -> None:
    """Each filter gets exactly the names it should, whether or not the names were routed before it was there."""
    client = harness.client("s")
    publisher = harness.client("p")
    if order == "publish first":
        for topic in matching + other:
            publisher.publish(topic, b"")
    assert client.subscribe(topic_filter) == 0
    for topic in other + matching:
        publisher.publish(topic, b"x")
    assert client.topics() == matching
    client.unsubscribe(topic_filter)
    for topic in other + matching:
        publisher.publish(topic, b"x")
    assert client.topics() == []


@clause("5.0", "MQTT-4.7.2-1")
@pytest.mark.parametrize("topic_filter", [b"#", b"+/broker/version", b"+/#"])
def test_mqtt5_4_7_2_1_dollar_topics(harness: BrokerHarness, topic_filter: bytes) -> None:
    """A leading wildcard matches no topic that begins with $, retained or not."""
    harness.advance(15_000)
    client = harness.client("c")
    client.subscribe(topic_filter)
    harness.client("p").publish(b"$private/a", b"x", retain=True)
    harness.advance(15_000)
    assert client.messages() == []


@clause("5.0", "MQTT-4.7.3-1")
def test_mqtt5_4_7_3_1_one_character(harness: BrokerHarness) -> None:
    """One character is enough for names and filters."""
    client = harness.client("c")
    for topic in (b"a", b"/", b" "):
        assert client.subscribe(topic) == 0
        client.publish(topic, b"x")
    assert client.topics() == [b"a", b"/", b" "]


@clause("5.0", "MQTT-4.7.3-3")
def test_mqtt5_4_7_3_3_longest_topic(harness: BrokerHarness) -> None:
    """65,535 bytes are allowed."""
    if harness.feeding == "bytes":
        pytest.skip("65,535 single bytes prove nothing more")
    topic = b"x" * 65_535
    client = harness.client("c")
    assert client.subscribe(topic) == 0
    client.publish(topic, b"y")
    assert client.topics() == [topic]


@clause("5.0", "MQTT-4.7.3-4")
def test_mqtt5_4_7_3_4_no_normalisation(harness: BrokerHarness) -> None:
    """Composed and decomposed letters, other cases and look-alikes are different topics."""
    names = ["é", "e\u0301", "É", "ﬁ", "fi", "a/../b", "b", "Ⅳ", "IV", "\u00a0", " "]
    client = harness.client("c")
    publisher = harness.client("p")
    for name in names:
        client.subscribe(name.encode())
        for other in names:
            publisher.publish(other.encode(), b"x")
        assert [topic.decode() for topic in client.topics()] == [name]
        client.unsubscribe(name.encode())


def test_topic_limits(make_harness: MakeHarness) -> None:
    """Levels and length are limited: a PUBLISH beyond is answered with 0x90, a SUBSCRIBE with 0x8F."""
    harness = make_harness(limits=Limits(topic_levels_max=3, topic_bytes_max=20))
    client = harness.client("c")
    assert client.subscribe(b"a/b/c") == 0
    assert client.subscribe(b"a/b/c/d") == 0x8F
    assert client.subscribe(b"a/b/c/#") == 0x8F
    assert client.subscribe(b"x" * 20) == 0
    assert client.subscribe(b"x" * 21) == 0x8F
    assert client.subscribe(b"$share/group/" + b"x" * 20) == 0, "the limit is for the filter alone"
    client.publish(b"a/b/c", b"x")
    assert client.topics() == [b"a/b/c"]
    for topic in (b"a/b/c/d", b"y" * 21):
        for qos in (0, 1):
            client = harness.client("c")
            client.send(Publish(topic, b"x", qos, packet_id=1 if qos else 0))
            if client.closed:
                assert closed_with(client) == 0x90
            else:
                assert client.expect_ack(PUBACK, 1).reason == 0x90
