"""Shares of a loop turn: who sends much waits, who sends little does not, and nothing is lost or out of order."""

from __future__ import annotations

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Connack, Connect, Disconnect, Publish, Suback, Subscribe, SubscribeEntry, Will
from flockmq.mqtt.properties import Properties
from flockmq.node import turns
from flockmq.node.half_packets import GRACE_MS
from flockmq.session.connection import CONNECTED
from flockmq.testing.harness import BrokerHarness, HarnessClient

FILTERS = [SubscribeEntry(b"a/%d" % number, 0) for number in range(64)]
SUBSCRIBES = b"".join(encode_packet(Subscribe(number + 1, FILTERS), 5) for number in range(100))
"""Five shares of work."""


def hand_over(harness: BrokerHarness, client: HarnessClient, data: bytes) -> None:
    """Have the broker read this at once, without a new turn."""
    harness.broker.receive(client.connection, data, harness.now)


def waits(client: HarnessClient) -> bool:
    return client.connection.waits_turn


def test_a_turn_ends_for_who_has_had_its_share() -> None:
    harness = BrokerHarness()
    greedy, modest = harness.client("greedy"), harness.client("modest")
    hand_over(harness, greedy, SUBSCRIBES)
    assert waits(greedy)
    assert turns.SHARE <= harness.broker.node.turns.work < turns.SHARE + turns.FILTER * 100
    hand_over(harness, modest, b"\xc0\x00")
    assert not waits(modest)
    assert modest.connection.out == [b"\xd0\x00"]
    harness.flush()
    assert not waits(greedy)
    assert [packet.packet_id for packet in greedy.received() if isinstance(packet, Suback)] == list(range(1, 101))


def test_more_bytes_do_not_jump_the_queue() -> None:
    harness = BrokerHarness()
    greedy = harness.client("greedy")
    greedy.subscribe(b"t")
    hand_over(harness, greedy, SUBSCRIBES)
    hand_over(harness, greedy, encode_packet(Publish(b"t", b"last"), 5))
    harness.flush()
    assert isinstance(greedy.received()[-1], Publish)


def test_when_the_turn_is_over_everybody_waits_and_the_modest_go_first() -> None:
    harness = BrokerHarness()
    crowd = [harness.client(f"greedy{number}") for number in range(10)]
    modest = harness.client("modest")
    for client in crowd:
        hand_over(harness, client, SUBSCRIBES)
    node = harness.broker.node
    assert node.turns.is_over()
    assert node.turns.work < turns.TURN + 2 * turns.SHARE
    hand_over(harness, modest, b"\xc0\x00")
    assert waits(modest)
    harness.broker.begin_turn()
    assert not waits(modest)
    assert node.turns.work < turns.WAITING + 2 * turns.SHARE
    harness.flush()
    for client in crowd:
        assert len(client.received()) == 100


def test_heavy_ones_take_turns() -> None:
    harness = BrokerHarness()
    crowd = [harness.client(f"greedy{number}") for number in range(10)]
    for client in crowd:
        hand_over(harness, client, SUBSCRIBES)
    served: set[int] = set()
    for _ in range(10):
        before = [len(client.connection.rest) for client in crowd]
        harness.broker.begin_turn()
        served |= {n for n, client in enumerate(crowd) if len(client.connection.rest) < before[n]}
    assert served == set(range(10))


def test_who_is_lost_is_heard_to_the_end() -> None:
    """A DISCONNECT stands behind much work: the will is void all the same."""
    harness = BrokerHarness()
    watcher = harness.client("watcher")
    watcher.subscribe(b"will")
    greedy = harness.client("greedy", will=Will(b"will", b"gone", 0, False))
    hand_over(harness, greedy, SUBSCRIBES + encode_packet(Disconnect(), 5))
    harness.broker.closed(greedy.connection, harness.now)
    assert harness.broker.sessions["greedy"].connection is greedy.connection
    harness.flush()
    assert "greedy" not in harness.broker.sessions
    assert harness.broker.subscriptions.count == 1
    assert watcher.received() == []


def test_pings_and_acks_are_work() -> None:
    harness = BrokerHarness()
    shares = harness.broker.node.turns
    greedy, other = harness.client("greedy"), harness.client("other")
    hand_over(harness, greedy, b"\xc0\x00" * (turns.SHARE + 1))
    assert waits(greedy)
    before = shares.work
    hand_over(harness, other, b"\x40\x02\x00\x01" * turns.SHARE)
    assert shares.work - before >= turns.SHARE // 4
    harness.flush()
    assert len(greedy.received_bytes()) == 2 * (turns.SHARE + 1)


def test_what_lost_connections_said_is_kept_within_bounds() -> None:
    """No limit of a listener counts them any more: with too many bytes the latest end at once."""
    harness = BrokerHarness()
    said = encode_packet(Publish(b"t", bytes(1_000_000)), 5)
    kept = turns.LOST_BYTES_MAX // len(said)
    crowd = [harness.client(f"c{number}") for number in range(kept + 5)]
    shares = harness.broker.node.turns
    shares.work = turns.TURN
    for client in crowd:
        hand_over(harness, client, said)
        harness.broker.closed(client.connection, harness.now)
    assert [*harness.broker.sessions] == [client.client_id for client in crowd[:kept]]
    assert shares.waiting == kept
    assert shares.lost_bytes == kept * len(said)
    harness.flush()
    assert len(harness.broker.sessions) == 0
    assert harness.broker.stats.publishes_in_qos0 == kept
    assert shares.lost_bytes == 0


def test_many_that_are_lost_at_once_take_turns() -> None:
    harness = BrokerHarness()
    crowd = [harness.client(f"c{number}") for number in range(20)]
    for number, client in enumerate(crowd):
        client.send(Subscribe(1, [SubscribeEntry(b"%d/%d" % (number, one), 0) for one in range(2_000)]))
    harness.broker.begin_turn()
    for client in crowd:
        harness.broker.closed(client.connection, harness.now)
    assert 0 < len(harness.broker.sessions) < 20
    harness.flush()
    assert len(harness.broker.sessions) == 0
    assert harness.broker.subscriptions.count == 0


def test_slower_code_does_less_in_a_turn() -> None:
    harness = BrokerHarness()
    harness.broker.node.turns.set_speed(10)
    greedy = harness.client("greedy")
    hand_over(harness, greedy, SUBSCRIBES)
    assert harness.broker.node.turns.work < turns.SHARE // 5


def test_a_deadline_that_waits_for_the_next_tick_can_be_taken_back() -> None:
    """A client comes back while the timers of its old connection wait: the old will is void, its session stays."""
    harness = BrokerHarness()
    watcher = harness.client("watcher")
    watcher.subscribe(b"will")
    delay = Properties()
    delay.will_delay_s = 15
    will = Will(b"will", b"gone", 0, False, delay)
    for number in range(2 * turns.TURN // turns.LEAVE):  # silent: the end of each is work, all are due at once
        harness.client(f"silent{number}", keep_alive_s=10)
    victim = harness.client("victim", will=will, session_expiry_s=15)
    victim.drop()
    harness.advance(15_000)
    session = harness.broker.sessions["victim"]
    assert harness.broker.overdue
    harness.client("victim", clean_start=False, will=will, session_expiry_s=15)
    harness.advance(1_000)
    assert not harness.broker.overdue
    assert watcher.received() == []
    assert harness.broker.sessions["victim"] is session
    assert session.will is not None


def test_who_waits_for_its_turn_is_not_slow() -> None:
    """Its packets are there: no timer for half ones ends it. That bytes wait does not prove that it lives."""
    harness = BrokerHarness()
    patient = harness.client("patient")
    heard_at = patient.connection.last_read_at
    hand_over(harness, patient, b"\xc0")
    harness.broker.node.turns.work = turns.TURN
    later = harness.now + GRACE_MS + 1_000
    harness.broker.receive(patient.connection, b"\x00", later - 1)
    assert waits(patient)
    assert patient.connection.last_read_at == heard_at
    harness.broker.tick(later)
    assert patient.connection.phase == CONNECTED
    assert harness.broker.stats.packet_timeouts == 0
    harness.flush()
    assert patient.connection.phase == CONNECTED
    assert patient.connection.last_read_at == later


def test_who_is_taken_over_is_heard_to_the_end() -> None:
    """The client leaves and comes back at once, while much that it said before waits for a turn."""
    harness = BrokerHarness()
    watcher = harness.client("watcher")
    watcher.subscribe(b"t")
    watcher.subscribe(b"will")
    new = harness.raw()
    old = harness.client("again", will=Will(b"will", b"gone", 0, False))
    hand_over(harness, old, SUBSCRIBES + encode_packet(Publish(b"t", b"last"), 5) + encode_packet(Disconnect(), 5))
    assert waits(old)
    hand_over(harness, new, encode_packet(Connect(5, "again", True, 0), 5))
    harness.flush()
    assert [message.payload for message in watcher.messages()] == [b"last"]
    assert isinstance(new.received()[0], Connack)
    assert harness.broker.sessions["again"].connection is new.connection
    assert harness.broker.subscriptions.count == 2


def test_who_asks_for_little_does_not_wait_for_the_ends_of_large_sessions() -> None:
    harness = BrokerHarness()
    crowd = [harness.client(f"c{number}") for number in range(20)]
    modest = harness.client("modest")
    for number, client in enumerate(crowd):
        client.send(Subscribe(1, [SubscribeEntry(b"%d/%d" % (number, one), 0) for one in range(4_000)]))
    harness.broker.begin_turn()
    for client in crowd:
        harness.broker.closed(client.connection, harness.now)
    assert harness.broker.node.turns.is_over()
    hand_over(harness, modest, b"\xc0\x00")
    assert waits(modest)
    harness.broker.begin_turn()
    assert not waits(modest)
    assert len(harness.broker.sessions) > 10
    harness.flush()
    assert list(harness.broker.sessions) == ["modest"]
