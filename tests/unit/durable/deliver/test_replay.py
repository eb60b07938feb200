"""History through MQTT: from where it is asked for, then what is new, without a gap or a repeat."""

from __future__ import annotations

import pytest

from delivery_world import World, ask, got, numbered
from flockmq.mqtt import reasons
from flockmq.node.namespaces import NamespaceLimits
from flockmq.node.ports import Identity, OpenGate
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import WALL_MS, make_properties

A = b"plant/a"
B = b"plant/b"


def plant(size: int = 1, on: tuple[int, ...] = (1,), settings: BrokerSettings | None = None) -> World:
    world = World(size, settings)
    world.create("plant", 5, on=on)
    return world


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# --- refusals ---


def test_a_wrong_start_is_refused_with_a_reason() -> None:
    world = plant()
    client = world[1].client("c")
    suback = ask(client, b"plant/#", start="yesterday")
    assert suback.reasons == [reasons.IMPLEMENTATION_SPECIFIC_ERROR]
    assert suback.properties is not None
    assert "yesterday" in str(suback.properties.reason_string)
    assert ask(client, b"$replay/yesterday/plant/#").reasons == [reasons.TOPIC_FILTER_INVALID]
    old = world[1].client("old", 4)
    assert old.subscribe(b"$replay/yesterday/plant/#") == 0x80
    assert world[1].broker.sessions["c"].subscriptions == {}


@pytest.mark.parametrize(
    ("topic_filter", "start", "why"),
    [
        (b"elsewhere/#", "earliest", "No durable topic"),
        (b"many/#", "offset:3", "2 shards"),
        (b"many/#", "offset:0=1,2=1", "counted from 0"),
        (b"#", "offset:3", "several"),
        (b"$share/g/plant/#", "earliest", "shared"),
    ],
)
def test_history_that_there_is_not(topic_filter: bytes, start: str, why: str) -> None:
    world = plant()
    world.create("many", 6, 7)
    suback = ask(world[1].client("c"), topic_filter, start=start)
    assert suback.reasons == [reasons.IMPLEMENTATION_SPECIFIC_ERROR]
    assert suback.properties is not None
    assert why in str(suback.properties.reason_string)


class OnlyA(OpenGate):
    """Lets nobody read anything but one topic."""

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        return topic_filter == A


def test_the_filter_without_its_prefix_has_to_be_allowed() -> None:
    world = plant()
    node = world[1].broker.node
    node.gate = OnlyA()
    node.gate_is_open = False
    client = world[1].client("c")
    codes = ask(client, b"$replay/earliest/" + A, b"$replay/earliest/" + B).reasons
    assert codes == [1, reasons.NOT_AUTHORIZED]


# --- history, then the tail ---


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_history_then_what_is_new(version: int, qos: int) -> None:
    world = plant()
    world.commit(5, *numbered(A, 3), qos=qos)
    world.commit(5, *numbered(A, 3, 3), qos=qos)
    client = world[1].client("c", version)
    assert client.subscribe(b"$replay/earliest/plant/#", qos) == qos
    world.commit(5, *numbered(A, 2, 6), qos=qos)
    messages = client.consume()
    assert got(messages) == numbers(8)
    assert {(one.topic, one.qos, one.retain) for one in messages} == {(A, qos, False)}
    assert world[1].delivery.readers.catching == {}


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("offset:4", 4), ("offset:99", 6), ("latest", 6)],
)
def test_where_it_begins(start: str, first: int) -> None:
    world = plant()
    world.commit(5, *numbered(A, 6))
    client = world[1].client("c")
    ask(client, b"plant/#", start=start)
    world.commit(5, (A, b"6"))
    assert got(client.consume()) == numbers(7 - first, first)


def test_it_begins_at_a_time() -> None:
    world = plant()
    for number in range(6):
        world.commit(5, (A, b"%d" % number), wall_ms=WALL_MS + 1_000 * number)
    client = world[1].client("c")
    ask(client, b"plant/#", start="time:2023-11-14T22:13:23Z")  # WALL_MS is three seconds before that
    assert got(client.consume()) == numbers(3, 3)


def test_only_topics_that_match() -> None:
    world = plant()
    world.commit(5, (A, b"1"), (B, b"2"), (A, b"3"))
    client = world[1].client("c")
    ask(client, B, start="earliest")
    assert got(client.consume()) == [b"2"]


def test_each_shard_in_its_own_order() -> None:
    world = World()
    world.create("plant", 5, 6)
    for number in range(20):
        world.commit(5 + number % 2, (b"plant/%d" % (number % 2), b"%d" % number))
    client = world[1].client("c", properties=make_properties(receive_maximum=3))
    ask(client, b"plant/#", start="offset:0=3,1=0")
    messages = client.consume()
    for shard, first in ((0, 6), (1, 1)):
        assert got([one for one in messages if one.topic == b"plant/%d" % shard]) == [
            b"%d" % number for number in range(first, 20) if number % 2 == shard
        ]


def test_it_is_paced_by_what_the_client_takes() -> None:
    world = plant(settings=BrokerSettings(limits=Limits(queue_messages_max=50)))
    for first in range(0, 3_000, 300):
        world.commit(5, *numbered(A, 300, first))
    client = world[1].client("c", properties=make_properties(receive_maximum=5))
    ask(client, b"plant/#", start="earliest")
    outbound = world[1].broker.sessions["c"].outbound
    assert outbound is not None
    assert outbound.queued <= 50
    window = client.messages()
    assert len(window) == 5
    for message in window:
        client.acknowledge(message)
    assert got(window) + got(client.consume()) == numbers(3_000)
    assert world[1].broker.stats.dropped_queue == 0


def test_qos_0_history_is_not_dropped() -> None:
    world = plant(settings=BrokerSettings(limits=Limits(write_bytes_max=10_000)))
    for number in range(100):
        world.commit(5, (A, b"%03d" % number * 200), qos=0)
    client = world[1].client("c")
    client.block()
    client.send(b"")
    with pytest.raises(AssertionError, match="No Suback"):
        ask(client, b"plant/#", start="earliest", qos=0)
    client.unblock()
    assert [payload[:3] for payload in got(client.messages())] == [b"%03d" % number for number in range(100)]


def test_what_is_gone_begins_at_the_oldest_and_says_so() -> None:
    world = plant()
    world.commit(5, *numbered(A, 4))
    world.commit(5, *numbered(A, 4, 4))
    world[1].replicas.kept[5] = 4
    client = world[1].client("c")
    suback = ask(client, b"plant/#", start="offset:1")
    assert suback.properties is not None
    assert suback.properties.user == [("flockmq-oldest", "0=4")]
    assert got(client.consume()) == numbers(4, 4)
    assert ask(client, b"plant/#", start="earliest").properties is None


def test_no_retained_messages_besides_history() -> None:
    world = plant()
    world.commit(5, (A, b"1"), retain=True)
    client = world[1].client("c")
    ask(client, b"plant/#", start="earliest")
    assert got(client.consume()) == [b"1"]
    late = world[1].client("late")
    ask(late, b"plant/#", start="latest")
    assert [(one.payload, one.retain) for one in late.consume()] == [(b"1", True)]


def test_to_ask_again_begins_anew() -> None:
    world = plant()
    world.commit(5, *numbered(A, 3))
    client = world[1].client("c")
    ask(client, b"plant/#", start="earliest")
    ask(client, b"$replay/offset:1/plant/#")
    assert got(client.consume()) == [*numbers(3), *numbers(2, 1)]
    world.commit(5, (A, b"new"))
    assert got(client.consume()) == [b"new"]


def test_unsubscribing_a_replay_by_either_name() -> None:
    world = plant()
    world.commit(5, *numbered(A, 3))
    client = world[1].client("c", properties=make_properties(receive_maximum=1))
    ask(client, b"$replay/earliest/plant/#")
    assert client.unsubscribe(b"$replay/earliest/plant/#") == 0
    assert client.unsubscribe(b"plant/#") == reasons.NO_SUBSCRIPTION_EXISTED
    assert client.unsubscribe(b"$replay/") == reasons.NO_SUBSCRIPTION_EXISTED


def test_a_subscription_that_was_there_gets_nothing_twice() -> None:
    world = plant(settings=BrokerSettings(limits=Limits(queue_messages_max=4)))
    client = world[1].client("c", properties=make_properties(receive_maximum=1))
    ask(client, b"plant/+")
    world.commit(5, (A, b"0"), (B, b"1"))
    seen = got(client.consume())
    ask(client, A, start="earliest")
    world.commit(5, *numbered(B, 20, 2))
    world.commit(5, *numbered(A, 20, 22))
    seen += got(client.consume())
    # What it had as a live message comes again as history of the second subscription, and everything else once.
    assert seen == [b"0", b"1", b"0", *numbers(40, 2)]


def test_coming_back_to_the_session_goes_on_where_it_was() -> None:
    world = plant(settings=BrokerSettings(limits=Limits(queue_messages_max=10)))
    world.commit(5, *numbered(A, 100))
    client = world[1].client("c", session_expiry_s=600, properties=make_properties(receive_maximum=5))
    ask(client, b"plant/#", start="earliest")
    seen = []
    for message in client.messages():
        client.acknowledge(message)
        seen.append(message.payload)
    client.drop()
    client = world[1].client("c", clean_start=False, session_expiry_s=600)
    for message in client.consume():
        if message.payload not in seen:
            seen.append(message.payload)
    assert seen == numbers(100)


# --- elsewhere ---


def test_history_on_a_node_without_a_replica() -> None:
    world = plant(2, on=(1,))
    for first in range(0, 300, 30):
        world.commit(5, *numbered(A, 30, first))
    client = world[2].client("c", properties=make_properties(receive_maximum=7))
    assert ask(client, b"plant/#", start="earliest").reasons == [1]
    world.commit(5, *numbered(A, 10, 300))
    assert got(client.consume()) == numbers(310)


def test_history_that_the_replica_here_does_not_have() -> None:
    world = plant(2, on=(1, 2))
    world.commit(5, *numbered(A, 50))
    world.install(2, 5)
    world.commit(5, *numbered(A, 50, 50))
    client = world[2].client("c")
    ask(client, b"plant/#", start="earliest")
    assert got(client.consume()) == numbers(100)


def test_a_time_is_looked_up_where_the_log_is() -> None:
    world = plant(2, on=(1,))
    for number in range(6):
        world.commit(5, (A, b"%d" % number), wall_ms=WALL_MS + 1_000 * number)
    client = world[2].client("c")
    ask(client, b"plant/#", start="time:2023-11-14T22:13:23Z")
    assert got(client.consume()) == numbers(3, 3)


def test_while_the_leader_is_out_of_reach_the_suback_and_everything_else_of_the_partition_waits() -> None:
    world = plant(2, on=(1,))
    world.commit(5, *numbered(A, 3))
    client = world[2].client("c")
    ask(client, B)
    world.cut(1, 2)
    with pytest.raises(AssertionError, match="No Suback"):
        ask(client, A, start="earliest")
    world.commit(5, (B, b"3"), (A, b"4"))
    assert client.messages() == []
    world.mend(1, 2)
    world.run(500)
    assert got(client.consume()) == [*numbers(3), b"3", b"4"]


def test_unsubscribing_ends_the_wait() -> None:
    world = plant(2, on=(1,))
    world.commit(5, *numbered(A, 3))
    client = world[2].client("c")
    ask(client, B)
    world.cut(1, 2)
    with pytest.raises(AssertionError, match="No Suback"):
        ask(client, A, start="earliest")
    client.unsubscribe(A)
    world.mend(1, 2)
    world.commit(5, (B, b"3"), (A, b"4"))
    assert got(client.consume()) == [b"3"]
    assert world[2].delivery.readers.catching == {}


def test_asking_once_more_without_history_keeps_the_wish() -> None:
    world = plant(2, on=(1,))
    world.commit(5, *numbered(A, 3))
    client = world[2].client("c")
    ask(client, B)
    world.cut(1, 2)
    with pytest.raises(AssertionError, match="No Suback"):
        ask(client, A, start="earliest")
    world.run(1_000)
    assert client.received() != []
    ask(client, A)
    world.mend(1, 2)
    world.run(500)
    assert got(client.consume()) == numbers(3)


def test_earliest_waits_for_a_replica_that_may_have_an_older_beginning() -> None:
    world = plant(2, on=(1, 2))
    world.run(300)
    world.commit(5, *numbered(A, 5))
    world.install(2, 5)
    world.commit(5, *numbered(A, 5, 5))
    client = world[2].client("c")
    world.cut(1, 2)
    with pytest.raises(AssertionError, match="No Suback"):
        ask(client, A, start="earliest")
    world.run(1_000)
    assert client.messages() == []
    world.mend(1, 2)
    world.run(500)
    assert got(client.consume()) == numbers(10)


def test_earliest_does_not_wait_for_the_dead() -> None:
    world = plant(2, on=(1, 2))
    world.run(300)
    world.commit(5, *numbered(A, 5))
    world.install(2, 5)
    world.commit(5, *numbered(A, 5, 5))
    client = world[2].client("c")
    world.cut(1, 2)
    world[2].delivery.peer_dead(1, world.now)
    assert ask(client, A, start="earliest").reasons == [1]
    assert got(client.consume()) == numbers(5, 5)


@pytest.mark.parametrize("version", [4, 5])
def test_in_a_namespace_history_has_the_names_that_its_clients_know(version: int) -> None:
    world = World()
    world.create("acme-plant", 5, filters=(b"$ns/acme/plant/#",))
    world[1].broker.set_namespaces([NamespaceLimits("acme")], world.now)
    inside = b"$ns/acme/plant/a"
    world.commit(5, (inside, b"1"), (inside, b"2"))
    client = world[1].client("c", version, username="acme/user")
    assert client.subscribe(b"$replay/offset:1/plant/#", 1) == 1
    stranger = world[1].client("s", version)
    stranger.subscribe(b"$replay/earliest/$ns/acme/plant/#", 1)
    stranger.subscribe(b"#", 1)
    world.commit(5, (inside, b"3"))
    assert [(one.topic, one.payload) for one in client.consume()] == [(A, b"2"), (A, b"3")]
    assert stranger.consume() == []
