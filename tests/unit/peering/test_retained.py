from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.node.events import EventList
from flockmq.peering.retained import CHUNK_BYTES, RetainedSync
from flockmq.peering.retained_codec import CHANGES, ROOT
from flockmq.routing.buckets import bucket_of
from flockmq.routing.clock import stamp_at
from flockmq.routing.retained import RetainedStore
from flockmq.testing.harness import BrokerHarness, make_properties
from retained_cluster import WALL_MS, Member, RetainedCluster
from routing_cases import run_of

DAY = 86_400_000
A, B = 11, 22


class Sent:
    """An outbox that only collects."""

    def __init__(self) -> None:
        self.bodies: list[tuple[int, bytes]] = []

    def send(self, peer: int, channel: int, body: bytes) -> None:
        assert channel == 6
        self.bodies.append((peer, body))


def lone(messages_max: int = 0) -> tuple[RetainedStore, RetainedSync, Sent]:
    store = RetainedStore(messages_max, 0, WALL_MS)
    sent = Sent()
    return store, RetainedSync(A, store, sent, EventList(), random.Random(1), 0), sent


def test_changes_of_a_turn_go_to_all_peers_in_one_part() -> None:
    cluster = RetainedCluster(1, [0, 0, 0])
    cluster.run(2_000)
    one = cluster.nodes[0]
    parts: list[tuple[int, bytes]] = []
    one.send = lambda peer, channel, body: parts.append((peer, body))  # type: ignore[method-assign]
    one.sync.flush(one.now)
    assert parts == []
    for number in range(10):
        one.put(b"t/%d" % number, b"1")
        one.put(b"t/%d" % number, b"2")
    one.delete(b"t/0")
    one.sync.flush(one.now)
    assert [peer for peer, _ in parts] == [node.node_id for node in cluster.nodes[1:]]
    assert parts[0][1] is parts[1][1]
    other = cluster.nodes[1]
    other.sync.receive(one.node_id, parts[0][1], other.now)
    assert other.content() == {b"t/%d" % number: b"2" for number in range(1, 10)} == one.content()
    assert other.sync.changes_applied == 10
    parts.clear()
    one.sync.flush(one.now)
    assert parts == []


def test_what_came_from_a_peer_is_not_passed_on() -> None:
    cluster = RetainedCluster(1, [0, 0, 0])
    one, two, three = cluster.nodes
    cluster.run(3_000)
    cluster.cut(one, three)
    one.put(b"a", b"1")
    one.sync.flush(one.now)
    cluster.turn()
    assert two.content() == {b"a": b"1"}
    cluster.turn()
    assert three.content() == {}
    cluster.run(10_000)  # the repair finds it, through the node between them
    assert three.content() == {b"a": b"1"}


def test_the_brokers_own_messages_stay_here() -> None:
    cluster = RetainedCluster(1, [0, 0])
    one, two = cluster.nodes
    one.store.put_system(b"$SYS/x", run_of(b"$SYS/x"), one.now)
    one.put(b"$SYS/will", b"1")
    cluster.run(10_000)
    assert two.store.topics() == []
    assert one.sync.repairs + two.sync.repairs == 0


def test_large_changes_go_in_several_parts() -> None:
    store, sync, sent = lone()
    sync.peer_up(B, 0)
    sent.bodies.clear()
    sizes = [100_000, 100_000, 100_000, 600_000, 10]
    for number, size in enumerate(sizes):
        store.put(b"%d" % number, run_of(b"%d" % number, bytes(size)), 0)
    sync.flush(0)
    assert len(sent.bodies) == 4
    assert [len(body) <= CHUNK_BYTES for _, body in sent.bodies] == [True, True, False, True]


def test_nodes_without_a_difference_say_next_to_nothing() -> None:
    cluster = RetainedCluster(1, [0, 5_000, -5_000])
    for number in range(500):
        cluster.nodes[number % 3].put(b"t/%d" % number, b"x")
    cluster.run(20_000)
    cluster.check_same()
    cluster.bytes_sent = 0
    cluster.run(60_000)
    assert 0 < cluster.bytes_sent <= 3 * 120 * 9


def test_a_node_that_was_away_gets_all_and_gives_all() -> None:
    cluster = RetainedCluster(2, [0, 0])
    one, two = cluster.nodes
    for number in range(3_000):
        one.put(b"t/%d" % number, b"before")
    cluster.run(1_000)
    cluster.check_same()
    cluster.cut(one, two)
    for number in range(1_000):
        one.put(b"t/%d" % number, b"one")
        two.put(b"t/%d" % (number + 500), b"two")
        two.put(b"new/%d" % number, bytes(300))
        one.delete(b"t/%d" % (number + 2_000))
    cluster.run(1_000)
    cluster.heal()
    cluster.run(20_000)
    cluster.check_same()
    content = one.content()
    assert len(content) == 3_000
    assert content[b"t/100"] == b"one"
    assert content[b"t/1400"] == b"two"
    assert b"t/2500" not in content


@pytest.mark.parametrize("payload", [b"1", b"y" * 300])
def test_one_crowded_bucket_is_repaired_in_pieces(payload: bytes) -> None:
    """More names than fit a list, more messages than fit an answer, and payloads larger than any chunk."""
    cluster = RetainedCluster(3, [0, 0])
    one, two = cluster.nodes
    cluster.cut(one, two)
    names = [name for name in (b"%0200d" % number for number in range(800_000)) if bucket_of(name) == 7]
    for name in names[::2]:
        one.put(name, b"x" * 300)
    for name in names[1::2]:
        two.put(name, payload)
    for name in names[:6:2]:
        one.put(name, bytes(300_000))
    cluster.run(100)
    cluster.heal()
    cluster.run(30_000)
    cluster.check_same()
    assert sorted(one.content()) == names
    assert one.sync.repairs + two.sync.repairs == 1


def test_fifty_peers_do_not_fill_a_new_node_with_the_same_messages() -> None:
    cluster = RetainedCluster(4, [0] * 8)
    newcomer = cluster.nodes[3]
    cluster.run(1_000)
    for other in cluster.nodes:
        cluster.cut(newcomer, other)
    for number in range(2_000):
        cluster.nodes[0].put(b"t/%d" % number, b"x" * 50)
    cluster.run(3_000)
    received = newcomer.sync.changes_received
    cluster.heal()
    cluster.run(10_000)
    cluster.check_same()
    assert newcomer.sync.changes_received - received < 2 * 2_000


def test_an_expiry_is_the_same_moment_everywhere() -> None:
    cluster = RetainedCluster(5, [0, 0, 0])
    one, _, three = cluster.nodes
    cluster.run(5_000)
    cluster.stop(three)
    cluster.run(40_000)
    cluster.heal()  # its clock begins anew
    one.put(b"a", b"1", expiry_ms=10_000)
    cluster.run(9_900)
    for member in cluster.nodes:
        assert member.content() == {b"a": b"1"}
    cluster.run(100)
    for member in cluster.nodes:
        assert member.content() == {}
    cluster.check_same()


def test_an_expired_message_does_not_let_an_older_one_back_in() -> None:
    cluster = RetainedCluster(6, [0, 0, 0])
    one, two, three = cluster.nodes
    one.put(b"a", b"old")
    cluster.run(2_000)
    cluster.stop(three)
    two.put(b"a", b"new", expiry_ms=5_000)
    cluster.run(60_000)
    cluster.heal()
    cluster.run(10_000)
    cluster.check_same()
    assert one.content() == {}


def test_a_message_from_the_future_comes_when_its_time_has_come() -> None:
    cluster = RetainedCluster(7, [0, 90_000])
    one, fast = cluster.nodes
    fast.put(b"a", b"1")
    one.put(b"b", b"1")
    cluster.run(20_000)
    assert one.content() == {b"b": b"1"}
    assert fast.content() == {b"a": b"1", b"b": b"1"}
    assert one.sync.refused_ahead > 0
    assert [event.kind for event in one.events.take()] == ["retained_ahead"]
    cluster.run(15_000)
    cluster.check_same()
    assert one.content() == {b"a": b"1", b"b": b"1"}


def test_a_deleted_message_stays_deleted_unless_a_node_was_away_too_long() -> None:
    for away_ms, back in ((8 * 60_000, False), (25 * 60_000, True)):
        cluster = RetainedCluster(8, [0, 0, 0], tombstone_ms=15 * 60_000)
        one, two, three = cluster.nodes
        one.put(b"a", b"1")
        cluster.run(2_000)
        cluster.stop(three)
        two.delete(b"a")
        cluster.run(away_ms, tick_ms=5_000)
        cluster.heal()
        cluster.run(10_000)
        cluster.check_same()
        assert (b"a" in one.content()) == back
        assert one.store.tombstones.count == (0 if back else 1)


def test_a_store_that_is_full_goes_without_and_says_so() -> None:
    cluster = RetainedCluster(9, [0, 0, 0], messages_max=10)
    nodes = cluster.nodes
    for one in nodes:
        for other in nodes:
            cluster.cut(one, other)
    for member in nodes:
        for number in range(10):
            assert member.put(b"%x/%d" % (member.node_id, number), b"x")
        assert not member.put(b"more", b"x")
    cluster.run(100)
    cluster.heal()
    cluster.run(20_000)
    for member in nodes:
        assert member.store.usage.count == 20
        assert member.sync.refused_full > 0
        assert "retained_over_limit" in [event.kind for event in member.events.take()]
        assert not member.put(b"more", b"x")
    for member in nodes:
        for topic in member.content():
            member.delete(topic)
    cluster.run(20_000)
    cluster.check_same()
    assert nodes[0].content() == {}


def test_both_may_ask_at_once() -> None:
    cluster = RetainedCluster(10, [0, 0])
    one, two = cluster.nodes
    cluster.run(100)
    one.store.apply(b"a", None, stamp_at(WALL_MS), 5, one.now)
    for member, peer in ((one, two), (two, one)):
        member.sync._to_check[peer.node_id] = None
        member.sync._check_next()
    for _ in range(8):
        cluster.turn()
    cluster.check_same()
    assert not one.sync.is_busy()
    assert not two.sync.is_busy()


def test_a_repair_that_hears_nothing_is_given_up() -> None:
    cluster = RetainedCluster(11, [0, 0])
    one, two = cluster.nodes
    cluster.cut(one, two)
    for number in range(5_000):
        one.put(b"%d" % number, b"x" * 100)
    cluster.run(100)
    cluster.heal()
    for _ in range(4):
        cluster.turn()
    busy = one if one.sync._repair is not None else two
    assert busy.sync._repair is not None
    cluster.loss = 1.0
    cluster.run(25_000)
    assert not one.sync.is_busy()
    assert not two.sync.is_busy()
    cluster.loss = 0.0
    cluster.run(15_000)
    cluster.check_same()


@pytest.mark.parametrize("seed", range(24))
def test_after_anything_all_nodes_are_the_same_and_the_last_writer_won(seed: int) -> None:
    """Two to five nodes with clocks of their own; loss, partitions, kills that lose what the disk did not have."""
    rng = random.Random(seed)
    count = rng.randrange(2, 6)
    cluster = RetainedCluster(
        seed,
        [rng.choice([0, 0, 700, -3_000, 20_000, -25_000]) for _ in range(count)],
        loss=rng.choice([0.0, 0.05, 0.3]),
    )
    topics = [b"%d/%d" % (number % 7, number) for number in range(rng.choice([5, 60, 400]))]
    written: dict[bytes, dict[int, bytes | None]] = {}
    """By topic all that was ever written, with its version."""
    for _ in range(rng.randrange(20, 60)):
        step = rng.random()
        member: Member = rng.choice(cluster.nodes)
        other: Member = rng.choice(cluster.nodes)
        if step < 0.15:
            cluster.cut(member, other)
        elif step < 0.30:
            cluster.connect(member, other)
        elif step < 0.36 and member.up:
            if rng.random() < 0.7:
                member.save()
            cluster.stop(member)
        elif step < 0.45 and not member.up:
            member.start()
        elif member.up:
            for _ in range(rng.randrange(1, 30)):
                topic = rng.choice(topics)
                if rng.random() < 0.3:
                    member.delete(topic)
                    written.setdefault(topic, {})[member.store.version(topic)] = None
                else:
                    payload = b"%d" % rng.randrange(10**9)
                    assert member.put(topic, payload)
                    written.setdefault(topic, {})[member.store.version(topic)] = payload
        cluster.run(rng.choice([0, 100, 300, 3_000]), save=rng.random() < 0.7)
    cluster.heal()
    cluster.run(40_000)
    cluster.check_same()
    node = cluster.nodes[0]
    content = node.content()
    for topic, versions in written.items():
        # What a killed node had neither told nor saved may be gone; of what is known the latest counts.
        latest = node.store.version(topic)
        if latest:
            assert content.get(topic) == versions[latest]
        assert topic in content or latest == 0 or versions[latest] is None
    assert set(content) <= set(written)
    assert len(set(content)) == node.store.usage.count


@pytest.mark.parametrize("seed", range(8))
def test_without_kills_nothing_that_was_written_last_is_lost(seed: int) -> None:
    cluster = RetainedCluster(seed, [0, 500, -500], loss=0.2)
    rng = random.Random(seed)
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    for _ in range(200):
        member = rng.choice(cluster.nodes)
        topic = b"%d" % rng.randrange(40)
        payload = None if rng.random() < 0.3 else b"%d" % rng.randrange(10**9)
        if payload is None:
            member.delete(topic)
        else:
            member.put(topic, payload)
        latest[topic] = max(latest.get(topic, (0, None)), (member.store.version(topic), payload))
        if rng.random() < 0.2:
            cluster.cut(member, rng.choice(cluster.nodes))
        cluster.run(rng.choice([0, 100]))
    cluster.heal()
    cluster.run(20_000)
    cluster.check_same()
    assert cluster.nodes[0].content() == {
        topic: payload for topic, (_, payload) in latest.items() if payload is not None
    }


# --- what may come from a peer gone wrong ---


@given(st.binary(max_size=400), st.integers(0, 7))
def test_any_bytes_are_taken_or_refused_in_words(data: bytes, kind: int) -> None:
    _, sync, _ = lone()
    sync.peer_up(B, 0)
    with suppress(FlockError):
        sync.receive(B, bytes((kind,)) + data, 0)
    sync.flush(0)


@given(st.integers(0, 10_000), st.data())
def test_damaged_parts_are_taken_or_refused_in_words(seed: int, data: st.DataObject) -> None:
    """Real parts with bytes changed, cut or doubled."""
    cluster = RetainedCluster(seed, [0, 0])
    one, two = cluster.nodes
    cluster.cut(one, two)
    for number in range(20):
        one.put(b"a/%d" % number, b"1", expiry_ms=1_000 * (number % 3))
        two.put(b"b/%d" % number, b"2")
        two.delete(b"a/%d" % number)
    cluster.run(100)
    cluster.heal()
    for _ in range(8):
        for (sender, receiver), wire in list(cluster.wires.queues.items()):
            member = cluster.members[receiver]
            while wire:
                body = bytearray(wire.popleft())
                at = data.draw(st.integers(0, len(body) - 1))
                how = data.draw(st.sampled_from(["whole", "changed", "cut", "longer"]))
                if how == "changed":
                    body[at] ^= 1 << data.draw(st.integers(0, 7))
                elif how == "cut":
                    del body[at:]
                elif how == "longer":
                    body += body[at:]
                with suppress(FlockError):
                    member.sync.receive(sender, bytes(body), member.now)
        for member in cluster.nodes:
            member.sync.flush(member.now)
    for member in cluster.nodes:
        assert all(not topic.startswith(b"$SYS/") for topic in member.store.topics())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x07",
        bytes((ROOT, 1, 2)),
        bytes((CHANGES, 0)) + bytes(7) + b"\x80" + bytes(8) + b"\x01\0a",  # a stamp beyond all stamps
        bytes((CHANGES, 0, 1)) + bytes(7) + bytes(8) + b"\x02\0a#",
        bytes((CHANGES, 0, 1)) + bytes(7) + bytes(8) + b"\x06\0$SYS/a",
        bytes((CHANGES, 1, 1)) + bytes(7) + bytes(8) + b"\xff\xff\xff\xff\x31",
        bytes((CHANGES, 1, 1)) + bytes(7) + bytes(8) + b"\x06\0\0\0\x31\x04\0\x01a",  # shorter than it says
        bytes((CHANGES, 1, 1)) + bytes(7) + bytes(8) + b"\x05\0\0\0\x31\x03\0\x01a",  # no payload
        bytes((CHANGES, 1, 1)) + bytes(7) + bytes(8) + b"\x06\0\0\0\x30\x04\0\x01ax",  # not retained
        bytes((CHANGES, 9, 1)) + bytes(7) + bytes(8) + b"\x06\0\0\0\x31\x04\0\x01ax",
        bytes((4,)) + b"\xff\xff" + bytes(8),
        bytes((4,)) + bytes(6) + b"\xff\xff\xff\xff",
    ],
)
def test_what_does_not_fit_is_refused(body: bytes) -> None:
    store, sync, _ = lone()
    sync.peer_up(B, 0)
    with pytest.raises(FlockError):
        sync.receive(B, body, 0)
    assert store.topics() == []
    assert store.clock.latest < stamp_at(WALL_MS)


def test_an_answer_to_nothing_is_let_pass_and_one_that_leads_nowhere_refused() -> None:
    cluster = RetainedCluster(12, [0, 0])
    one, two = cluster.nodes
    cluster.cut(one, two)
    for number in range(100):
        one.put(b"%d" % number, b"x")
    cluster.run(100)
    nothing = b"\x05" + bytes(8)
    one.sync.receive(two.node_id, nothing, one.now)
    cluster.heal()
    while one.sync._repair is None and two.sync._repair is None:
        cluster.turn()
    busy, other = (one, two) if one.sync._repair is not None else (two, one)
    busy.sync.flush(busy.now)
    repair = busy.sync._repair
    assert repair is not None
    assert repair.waits
    stuck = b"\x05" + len(repair.asked).to_bytes(4, "little")
    for section in repair.asked:
        stuck += section.bucket.to_bytes(2, "little") + b"\0\0"
    with pytest.raises(FlockError):
        busy.sync.receive(other.node_id, stuck + bytes(4), busy.now)


# --- as clients see it ---


def test_a_subscriber_on_another_node_gets_the_message_with_all_it_carries() -> None:
    """Two brokers whose clocks began at other times and whose calendars agree."""
    sent = [Sent(), Sent()]
    brokers = [BrokerHarness(1), BrokerHarness(2)]
    brokers[1].now += 77_777
    wall_ms = WALL_MS
    sides = []
    for number, harness in enumerate(brokers):
        harness.broker.set_wall(wall_ms, harness.now)
        store, events = harness.broker.retained, harness.broker.node.events
        sides.append(RetainedSync((A, B)[number], store, sent[number], events, random.Random(1), harness.now))
    sides[0].peer_up(B, brokers[0].now)
    sides[1].peer_up(A, brokers[1].now)
    properties = make_properties(message_expiry_s=60, payload_format=1, content_type="text/plain", user=[("k", "v")])
    brokers[0].client("writer").publish(b"a/b", b"text", qos=0, retain=True, properties=properties)
    sides[0].flush(brokers[0].now)
    for harness in brokers:
        harness.now += 15_000
    for _, body in sent[0].bodies:
        sides[1].receive(A, body, brokers[1].now)
    reader = brokers[1].client("reader")
    reader.subscribe(b"a/#", qos=1)
    (message,) = reader.consume()
    assert (message.topic, message.payload, message.qos, message.retain) == (b"a/b", b"text", 0, True)
    assert message.properties is not None
    assert message.properties.message_expiry_s == 45
    assert (message.properties.payload_format, message.properties.content_type) == (1, "text/plain")
    assert message.properties.user == [("k", "v")]
    brokers[1].advance(45_000)
    brokers[1].client("late").subscribe(b"a/#")
    assert brokers[1].broker.retained.usage.count == 0
