"""MQTT 5, section 4.8.2: shared subscriptions, and the strategies that choose a member."""

from __future__ import annotations

import pytest

from conformance.clauses import clause
from conformance.conftest import MakeHarness
from flockmq.node.settings import SHARED_STRATEGIES, BrokerSettings
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties


def members(harness: BrokerHarness, count: int, qos: int = 0, **options: object) -> list[HarnessClient]:
    """Clients m0, m1, ... in the group g on a/#."""
    clients = [
        harness.client(f"m{number}", session_expiry_s=600, properties=make_properties(**options))
        for number in range(count)
    ]
    for client in clients:
        assert client.subscribe(b"$share/g/a/#", qos=qos) == qos
    return clients


@clause("5.0", "MQTT-4.8.2-1", "MQTT-4.8.2-2")
@pytest.mark.parametrize(
    "topic_filter",
    [b"$share//a", b"$share/g", b"$share/g/", b"$share/", b"$share/g+/a", b"$share/g#/a", b"$share/+/a", b"$share/#"],
)
def test_mqtt5_4_8_2_1_invalid_shared_filter(harness: BrokerHarness, topic_filter: bytes) -> None:
    """No share name, no filter, or wildcards in the name: SUBACK 0x8F."""
    client = harness.client("c")
    assert client.subscribe(topic_filter) == 0x8F
    client.ping()


@clause("5.0", "MQTT-4.8.2-1", "MQTT-4.8.2-2")
@pytest.mark.parametrize(
    "topic_filter", [b"$share/g/a", b"$share/g/#", b"$share/g/+/b", b"$share/g//a", "$share/ü x/a".encode()]
)
def test_mqtt5_4_8_2_2_valid_shared_filter(harness: BrokerHarness, topic_filter: bytes) -> None:
    """A name without /, + and #, then any filter."""
    assert harness.client("c").subscribe(topic_filter, qos=1) == 1


@pytest.mark.parametrize("strategy", SHARED_STRATEGIES)
def test_each_message_goes_to_one_member(make_harness: MakeHarness, strategy: str) -> None:
    """Whatever the strategy: every message to exactly one member of the group, and to every other subscriber."""
    harness = make_harness(BrokerSettings(shared_strategy=strategy))
    clients = members(harness, 3, qos=1)
    other = harness.client("other")
    other.subscribe(b"$share/h/a/#")
    plain = harness.client("plain")
    plain.subscribe(b"a/#")
    publisher = harness.client("p")
    for number in range(30):
        publisher.publish(b"a/%d" % (number % 6), b"%d" % number, qos=1)
    got = [int(message.payload) for client in clients for message in client.consume()]
    assert sorted(got) == list(range(30))
    assert [int(payload) for payload in other.payloads()] == list(range(30))
    assert [int(payload) for payload in plain.payloads()] == list(range(30))


def test_round_robin(make_harness: MakeHarness) -> None:
    """Each in turn, also when many messages come in one read."""
    harness = make_harness(BrokerSettings(shared_strategy="round_robin"))
    clients = members(harness, 3)
    publisher = harness.client("p")
    for number in range(9):
        publisher.publish(b"a", b"%d" % number)
    assert [client.payloads() for client in clients] == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5", b"8"]]


def test_random(make_harness: MakeHarness) -> None:
    """Everybody gets some, and the seed decides who."""
    shares = []
    for _ in range(2):
        harness = make_harness(BrokerSettings(shared_strategy="random"), seed=3)
        clients = members(harness, 3)
        publisher = harness.client("p")
        for number in range(60):
            publisher.publish(b"a", b"%d" % number)
        shares.append([client.payloads() for client in clients])
    assert shares[0] == shares[1]
    assert all(len(share) >= 5 for share in shares[0])


def test_sticky(make_harness: MakeHarness) -> None:
    """One member gets all until it leaves, then another one."""
    harness = make_harness(BrokerSettings(shared_strategy="sticky"))
    clients = members(harness, 3)
    publisher = harness.client("p")
    for number in range(10):
        publisher.publish(b"a/%d" % number, b"x")
    counts = [len(client.messages()) for client in clients]
    assert sorted(counts) == [0, 0, 10]
    chosen = clients.pop(counts.index(10))
    chosen.drop()
    for number in range(10):
        publisher.publish(b"a/%d" % number, b"x")
    assert sorted(len(client.messages()) for client in clients) == [0, 10]


@pytest.mark.parametrize("strategy", ["hash_client", "hash_topic"])
def test_hashes(make_harness: MakeHarness, strategy: str) -> None:
    """By publisher or by topic: the same one always goes to the same member, and the load is spread."""
    harness = make_harness(BrokerSettings(shared_strategy=strategy))
    clients = members(harness, 3)
    publishers = [harness.client(f"p{number}") for number in range(12)]
    seen: dict[bytes, set[int]] = {}
    for _ in range(3):
        for number, publisher in enumerate(publishers):
            topic = b"a" if strategy == "hash_client" else b"a/%d" % number
            sender = publisher if strategy == "hash_client" else publishers[0]
            sender.publish(topic, b"%d" % number)
    for index, client in enumerate(clients):
        for message in client.messages():
            seen.setdefault(message.payload, set()).add(index)
    assert len(seen) == 12
    assert all(len(who) == 1 for who in seen.values())
    assert len(set.union(*seen.values())) > 1


@clause("5.0", "MQTT-4.8.2-3")
def test_mqtt5_4_8_2_3_granted_qos(harness: BrokerHarness) -> None:
    """Each member gets its messages at most at its own granted QoS."""
    clients = [harness.client(f"m{qos}") for qos in (0, 1, 2)]
    for qos, client in enumerate(clients):
        client.subscribe(b"$share/g/a", qos=qos)
    publisher = harness.client("p")
    for number in range(9):
        publisher.publish(b"a", b"%d" % number, qos=2)
    for qos, client in enumerate(clients):
        got = client.consume()
        assert len(got) == 3
        assert all(message.qos == qos for message in got)


@clause("5.0", "MQTT-4.8.2-4")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_4_8_2_4_completed_with_the_same_client(harness: BrokerHarness, qos: int) -> None:
    """A delivery that was begun waits for its member to come back, and goes to nobody else meanwhile."""
    first, second = members(harness, 2, qos)
    publisher = harness.client("p")
    publisher.publish(b"a", b"x", qos=qos)
    (message,) = first.messages()
    first.drop()
    harness.advance(30_000)
    assert second.messages() == []
    again = harness.client("m0", clean_start=False, session_expiry_s=600)
    (repeated,) = again.messages()
    assert (repeated.packet_id, repeated.dup) == (message.packet_id, True)
    again.acknowledge(repeated)


@clause("5.0", "MQTT-4.8.2-5")
def test_mqtt5_4_8_2_5_session_ends_in_qos_2(harness: BrokerHarness) -> None:
    """If the member's session ends, a QoS 2 message that was begun with it goes to nobody else."""
    first, second = members(harness, 2, qos=2)
    publisher = harness.client("p")
    publisher.publish(b"a", b"x", qos=2)
    assert len(first.messages()) == 1
    first.drop()
    harness.advance(700_000)
    assert "m0" not in harness.broker.sessions
    assert second.messages() == []


def test_qos_1_of_an_ended_session_goes_to_another(harness: BrokerHarness) -> None:
    """At least once: a QoS 1 message that the member never acknowledged is given to another one."""
    first, second = members(harness, 2, qos=1)
    publisher = harness.client("p")
    publisher.publish(b"a", b"x", qos=1)
    assert len(first.messages()) == 1
    first.drop()
    harness.advance(700_000)
    assert [message.payload for message in second.consume()] == [b"x"]


def test_queued_for_an_ended_session_goes_to_another(harness: BrokerHarness) -> None:
    """What was never sent to the member that is gone is given to another one, also at QoS 2."""
    first, second = members(harness, 2, qos=2, receive_maximum=1)
    second.drop()
    publisher = harness.client("p")
    for number in range(3):
        publisher.publish(b"a", b"%d" % number, qos=2)
    (begun,) = first.messages()
    assert begun.payload == b"0"
    again = harness.client("m1", clean_start=False, session_expiry_s=600)
    first.disconnect(session_expiry_s=0)
    assert sorted(message.payload for message in again.consume()) == [b"1", b"2"]


@clause("5.0", "MQTT-4.8.2-6")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_4_8_2_6_refused_by_a_member(harness: BrokerHarness, qos: int) -> None:
    """A member that refuses a message discards it for the whole group."""
    first, second = members(harness, 2, qos)
    harness.client("p").publish(b"a", b"x", qos=qos)
    (message,) = first.messages()
    first.acknowledge(message, 0x97)
    first.disconnect(session_expiry_s=0)
    harness.advance(1_000)
    assert second.messages() == []


def test_connected_members_come_first(harness: BrokerHarness) -> None:
    """While somebody of the group is connected nobody who is away gets anything; then one of them queues it."""
    first, second = members(harness, 2, qos=1)
    first.drop()
    publisher = harness.client("p")
    for number in range(4):
        publisher.publish(b"a", b"%d" % number, qos=1)
    assert len(second.consume()) == 4
    second.drop()
    publisher.publish(b"a", b"queued", qos=1)
    got = [
        message.payload
        for name in ("m0", "m1")
        for message in harness.client(name, clean_start=False, session_expiry_s=600).consume()
    ]
    assert got == [b"queued"]


def test_no_retained_messages_for_shared(harness: BrokerHarness) -> None:
    """A shared subscription is not sent retained messages, whatever its retain handling."""
    harness.client("p").publish(b"a", b"x", retain=True)
    client = harness.client("c")
    for handling in (0, 1, 2):
        client.subscribe(b"$share/g/a", retain_handling=handling)
        assert client.messages() == []


def test_member_leaves(harness: BrokerHarness) -> None:
    """UNSUBSCRIBE and the end of a session take a member out; the last one takes the group."""
    first, second = members(harness, 2, qos=1)
    first.unsubscribe(b"$share/g/a/#")
    publisher = harness.client("p")
    publisher.publish(b"a", b"1", qos=1)
    publisher.publish(b"a", b"2", qos=1)
    assert [message.payload for message in second.consume()] == [b"1", b"2"]
    second.disconnect(session_expiry_s=0)
    assert publisher.publish(b"a", b"3", qos=1) == 0x10


def test_same_client_in_many_groups(harness: BrokerHarness) -> None:
    """Groups do not know each other, also within one client."""
    client = harness.client("c")
    client.subscribe(b"$share/g/a", identifier=1)
    client.subscribe(b"$share/h/a", identifier=2)
    client.subscribe(b"$share/g/+", identifier=3)
    harness.client("p").publish(b"a", b"x")
    got = sorted(message.properties.subscription_identifiers for message in client.messages() if message.properties)
    assert got == [[1], [2], [3]]


def test_311_clients_share_too(harness: BrokerHarness) -> None:
    """3.1.1 does not know shared subscriptions, but its clients may use them."""
    first = harness.client("m0", version=4)
    assert first.subscribe(b"$share/g/a") == 0
    second = harness.client("m1")
    second.subscribe(b"$share/g/a")
    publisher = harness.client("p")
    publisher.publish(b"a", b"1")
    publisher.publish(b"a", b"2")
    assert (first.payloads(), second.payloads()) == ([b"1"], [b"2"])
