"""PUBREL for messages in logs: PUBCOMP when the logs have forgotten the ids, in the order of the PUBRELs."""

from __future__ import annotations

from collections.abc import Callable

from durable_broker import DurableBroker
from flockmq.mqtt.packets import PUBCOMP, PUBREL, Ack, Disconnect, Publish
from flockmq.session.session import Session
from flockmq.testing.harness import HarnessClient


class Logs:
    """Partitions that answer when the test says so."""

    def __init__(self) -> None:
        self.noted: dict[int, int] = {}
        self.unknown: set[int] = set()
        self.closed: list[int] = []
        self.asked: list[tuple[list[int], Callable[[bool], None]]] = []

    def is_open(self, session: Session, groups: list[int]) -> bool:
        return True

    def open(self, session: Session, groups: list[int], reply: Callable[[int], None]) -> None:
        raise AssertionError("it is open")

    def fenced(self, session: Session, group: int) -> None:
        self.closed.append(group)

    def may_append(self, session: Session, group: int) -> bool:
        return group not in self.unknown

    def tag(self, session: Session) -> int:
        return 77

    def note(self, session: Session, group: int, ids: list[int]) -> None:
        self.noted.update(dict.fromkeys(ids, group))

    def drop(self, session: Session, ids: list[int]) -> None:
        for packet_id in ids:
            del self.noted[packet_id]

    def known(self, session: Session) -> set[int]:
        return set(self.noted)

    def release(self, session: Session, ids: list[int], reply: Callable[[bool], None], now: int) -> bool:
        known = [packet_id for packet_id in ids if packet_id in self.noted]
        if known:
            self.asked.append((known, reply))
        return bool(known)


class World:
    def __init__(self) -> None:
        self.broker = DurableBroker()
        self.logs = Logs()
        self.broker.appending.releases = self.logs
        self.topic = self.broker.topic(b"t")
        self.client = self.broker.client("c")

    def publish(self, *packet_ids: int, topic: bytes = b"t/a") -> None:
        for packet_id in packet_ids:
            self.client.send(Publish(topic, b"x", 2, packet_id=packet_id))
        self.broker.settle()
        self.client.received()

    def release(self, *packet_ids: int) -> None:
        self.client.send(b"".join(b"\x62\x02" + packet_id.to_bytes(2, "big") for packet_id in packet_ids))

    def received(self) -> set[int]:
        session = self.client.connection.session
        assert session is not None
        return session.received or set()


def completed(client: HarnessClient) -> list[tuple[int, int]]:
    found = []
    for packet in client.received():
        assert isinstance(packet, Ack)
        assert packet.kind == PUBCOMP
        found.append((packet.packet_id, packet.reason))
    return found


def test_records_carry_the_epoch_that_the_logs_know() -> None:
    world = World()
    world.publish(5)
    assert world.logs.noted == {5: world.topic.groups[0]}
    [record] = world.broker.records(world.topic)
    assert (record.packet_id, record.session_epoch) == (5, 77)


def test_nothing_is_appended_where_nobody_knows_what_is_there() -> None:
    world = World()
    world.logs.unknown = {world.topic.groups[0]}
    world.client.send(Publish(b"t/a", b"x", 2, packet_id=5))
    world.broker.settle()
    assert world.client.connection.closing
    assert world.received() == set(), "or the client's next attempt would be taken for a repeat"
    assert world.broker.records(world.topic) == []


def test_pubcomp_waits_for_the_logs() -> None:
    world = World()
    world.publish(1, 2)
    world.release(1, 2)
    world.client.expect_nothing()
    assert world.received() == {1, 2}, "a PUBREL that is lost now comes again"
    [(ids, reply)] = world.logs.asked
    assert ids == [1, 2]
    reply(True)
    world.broker.flush()
    assert completed(world.client) == [(1, 0), (2, 0)]
    assert world.received() == set()


def test_what_no_log_knows_is_released_at_once_but_in_its_place() -> None:
    world = World()
    world.publish(3, topic=b"plain")
    world.release(3)
    assert completed(world.client) == [(3, 0)]
    world.publish(1)
    world.publish(2, topic=b"plain")
    world.release(1)
    world.release(2, 9)
    world.client.expect_nothing()
    world.logs.asked[0][1](True)
    world.broker.flush()
    assert completed(world.client) == [(1, 0), (2, 0), (9, 0x92)]


def test_a_pubrel_with_properties_goes_the_same_way() -> None:
    world = World()
    world.publish(1)
    world.client.send(bytes((PUBREL << 4 | 2, 3, 0, 1, 0)))
    world.client.expect_nothing()
    world.logs.asked[0][1](True)
    world.broker.flush()
    assert completed(world.client) == [(1, 0)]


def test_when_nobody_can_say_the_connection_ends_and_the_id_stays() -> None:
    world = World()
    world.publish(1)
    world.release(1)
    world.logs.asked[0][1](False)
    world.broker.flush()
    assert world.client.expect(Disconnect).reason == 0x80


def test_an_answer_that_comes_too_late_is_no_news_for_anybody() -> None:
    world = World()
    world.publish(1)
    world.release(1)
    world.client.drop()
    world.logs.asked[0][1](True)
    world.broker.flush()
    world.client.expect_nothing()


def test_ids_of_a_refused_message_are_in_no_log() -> None:
    world = World()
    world.client.send(Publish(b"t/a", b"x", 2, packet_id=1))
    assert world.logs.noted == {1: 1}
    world.broker.engine.stop("disk")
    world.broker.flush()
    assert world.logs.noted == {}
    assert world.received() == set()
