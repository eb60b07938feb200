"""What is written in which run, and in which order with what other nodes are told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from flockmq.drivers.flush import Flusher
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Connect, Publish, Subscribe, SubscribeEntry
from flockmq.node.broker import Broker
from flockmq.node.ports import Identity, OpenGate
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.node.turns import TURN
from flockmq.session.connection import CLOSED, Connection


class HookedGate(OpenGate):
    """Lets all in; what it does when a client publishes is up to a test."""

    def __init__(self) -> None:
        self.do: Callable[[], None] | None = None

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        if self.do is not None:
            self.do()
        return True


class Written:
    """A handle that notes what would be written."""

    def __init__(self, said: list[bytes]) -> None:
        self.said = said

    def flush(self, connection: Connection) -> None:
        self.said.extend(connection.take())


class Desk:
    """A broker with connections, and a flusher."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.gate = HookedGate()
        self.broker = Broker(BrokerSettings(), self.gate, random.Random(1), 0)
        self.said: list[bytes] = []
        self.faults: list[tuple[str, Exception]] = []
        self.loop = loop
        self.seconds = 0.0
        self.between: Callable[[], bool] | None = None
        """What the other nodes' side does in a turn."""
        self.flusher = Flusher(
            self.broker,
            loop,
            lambda doing, error: self.faults.append((doing, error)),
            clock=lambda: self.seconds,
            between=lambda: self.between is not None and self.between(),
        )

    def connection(self) -> Connection:
        connection = self.broker.open("tcp", Limits(), "192.0.2.1", 0)
        connection.handle = Written(self.said)
        return connection

    def next_turn(self) -> None:
        """Run what is scheduled."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()


@pytest.fixture
def on() -> Iterator[Desk]:
    loop = asyncio.new_event_loop()
    yield Desk(loop)
    loop.close()


def test_other_nodes_are_told_first_and_what_comes_of_it_leaves_in_the_same_run(on: Desk) -> None:
    plain, answered = on.connection(), on.connection()

    def between() -> bool:
        on.said.append(b"other nodes")
        answered.reply(b"committed")
        return True

    on.between = between
    plain.reply(b"answer")
    on.flusher.run()
    assert on.said == [b"other nodes", b"answer", b"committed"]
    assert not on.broker.dirty


def test_while_other_nodes_have_not_heard_everything_only_earlier_answers_leave(on: Desk) -> None:
    plain, answered = on.connection(), on.connection()

    def between() -> bool:
        answered.reply(b"committed")
        return False

    on.between = between
    plain.reply(b"answer")
    on.flusher.run()
    assert on.said == [b"answer"]
    on.between = None
    on.next_turn()
    assert on.said == [b"answer", b"committed"]


def test_a_client_whose_words_wait_here_is_looked_at_in_the_next_run(on: Desk) -> None:
    """Else what it says would be acknowledged before other nodes have it."""
    waiting = on.connection()

    def between() -> bool:
        waiting.held_back = True
        waiting.reply(b"committed")
        return True

    on.between = between
    on.flusher.run()
    assert on.said == []
    on.between = None
    on.next_turn()
    assert on.said == [b"committed"]


def test_what_is_long_leaves_with_the_next_run(on: Desk) -> None:
    """There is load then, and the next run gathers more."""
    short, long = on.connection(), on.connection()
    acks = b"\x40\x02\x00\x01" * 200

    def between() -> bool:
        long.reply(acks)
        short.reply(acks[:4])
        return True

    on.between = between
    on.flusher.run()
    assert on.said == [acks[:4]]
    on.between = None
    on.next_turn()
    assert on.said == [acks[:4], acks]


def test_a_bug_in_work_that_waited_ends_that_connection_and_no_other(on: Desk) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    on.gate.do = fail
    unlucky, plain, late = on.connection(), on.connection(), on.connection()
    for number, connection in enumerate((unlucky, late)):
        on.broker.receive(connection, encode_packet(Connect(4, f"c{number}", True, 0), 4), 0)
    on.flusher.run()
    on.said.clear()
    on.broker.node.turns.work = TURN
    on.broker.receive(unlucky, encode_packet(Publish(b"t", b""), 4), 0)
    on.broker.receive(late, b"\xc0\x00", 0)
    plain.reply(b"answer")
    on.flusher.run()
    assert on.said == [b"answer"]
    assert unlucky.phase == CLOSED
    assert [(doing, type(error)) for doing, error in on.faults] == [("turn", ZeroDivisionError)]
    on.next_turn()
    assert on.said == [b"answer", b"\xd0\x00"]
    assert [*on.broker.sessions] == ["c1"]


def test_runs_from_timers_add_none_to_the_turns_of_the_loop(on: Desk) -> None:
    """While there is always more to do, the loop comes to its sockets and timers after every single run."""
    runs = 0

    def between() -> bool:
        nonlocal runs
        runs += 1
        on.flusher.schedule()  # another turn is needed
        return True

    on.between = between
    on.flusher.schedule()
    for _ in range(5):
        on.flusher.run()
    runs = 0
    on.next_turn()
    on.next_turn()
    assert runs == 2


def test_one_pause_of_the_machine_is_not_taken_for_slow_code(on: Desk) -> None:
    def pause() -> None:
        on.seconds += 1

    on.gate.do = pause
    client = on.connection()
    on.broker.receive(client, encode_packet(Connect(4, "c", True, 0), 4), 0)
    on.flusher.run()
    turns = on.broker.node.turns
    filters = [SubscribeEntry(b"%d" % number, 0) for number in range(100)]
    said = encode_packet(Subscribe(1, filters), 4)
    shares: list[int] = []
    for number in range(10):
        turns.work = TURN
        on.broker.receive(client, said + encode_packet(Publish(b"t/%d" % number, b""), 4), 0)
        on.flusher.run()
        shares.append(turns.turn)
    assert shares[0] > TURN // 2
    assert shares[-1] < TURN // 10, "what lasts is learned"
