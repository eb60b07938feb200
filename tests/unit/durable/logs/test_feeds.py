"""Feeds between nodes: bounded by a window, resumed elsewhere, fetched in pieces, and what malformed ones lead to."""

from __future__ import annotations

import pytest

from delivery_world import World, ask, got, numbered
from flockmq.durable.logs import feed_messages as m
from flockmq.durable.logs import feed_serving, history
from flockmq.durable.logs.feed_serving import FeedServer
from flockmq.errors import Damaged, FlockError, OffsetGone, RemoteProtocolError
from flockmq.log.batch import BatchView

A = b"plant/a"


def plant(size: int = 2, on: tuple[int, ...] = (1,)) -> World:
    world = World(size)
    world.create("plant", 5, on=on)
    return world


# --- messages ---


def data_of(number: int, *batches: bytes) -> bytes:
    message = m.FeedMessage(m.DATA, number)
    message.batches = list(batches)
    return message.encode()


def test_messages_are_read_as_they_were_written() -> None:
    world = plant()
    world.commit(5, (A, b"1"))
    batch = world.truths[5].entries[-1]
    opened = m.decode_feed(m.FeedMessage(m.OPEN, 7, 5, 9).encode())
    assert opened is not None
    assert (opened.kind, opened.feed, opened.group, opened.offset) == (m.OPEN, 7, 5, 9)
    data = m.decode_feed(data_of(7, batch, batch))
    assert data is not None
    assert (data.feed, data.batches, data.size) == (7, [batch, batch], 2 * len(batch))
    ended = m.decode_feed(m.FeedMessage(m.END, 7, 0, 12, m.GONE).encode())
    assert ended is not None
    assert (ended.feed, ended.why, ended.offset) == (7, m.GONE, 12)
    for kind in (m.AT, m.ACK, m.CLOSE):
        found = m.decode_feed(m.FeedMessage(kind, 7, 0, 3).encode())
        assert found is not None
        assert found.kind == kind


def test_a_kind_that_is_not_known_is_left_alone() -> None:
    assert m.decode_feed(b"\xff") is None


def test_damaged_messages_end_the_link() -> None:
    world = plant()
    world.commit(5, (A, b"1"))
    data = data_of(7, world.truths[5].entries[-1])
    flipped = bytearray(data)
    flipped[-1] ^= 1
    for body in (data[:-1], data[:40], bytes(flipped), b"\x01", m.FeedMessage(m.OPEN, 1, 2, 3).encode()[:-1]):
        with pytest.raises(FlockError):
            m.decode_feed(body)


# --- the side that serves ---


class Said:
    """An outbox that a test looks into."""

    def __init__(self) -> None:
        self.messages: list[m.FeedMessage] = []

    def send(self, peer: int, channel: int, body: bytes) -> None:
        message = m.decode_feed(body)
        assert message is not None
        self.messages.append(message)

    def take(self) -> list[m.FeedMessage]:
        taken = self.messages
        self.messages = []
        return taken


def serving(world: World, caught_up: set[int] | None = None) -> tuple[FeedServer, Said]:
    said = Said()
    return FeedServer(world[1].replicas, said, caught_up if caught_up is not None else {5}), said


def opening(number: int, offset: int = 0) -> m.FeedMessage:
    return m.FeedMessage(m.OPEN, number, 5, offset)


def test_no_more_is_sent_than_was_worked_off(monkeypatch: pytest.MonkeyPatch) -> None:
    world = plant()
    for number in range(20):
        world.commit(5, (A, b"%d" % number))
    size = len(world.truths[5].entries[-1])
    monkeypatch.setattr(feed_serving, "WINDOW_BYTES", 2 * size)
    monkeypatch.setattr(feed_serving, "CHUNK_BYTES", size)
    server, said = serving(world)
    for number in (1, 2):
        server.receive(9, opening(number))
    while server.flush():
        pass
    sent = [one.feed for one in said.take() if one.kind == m.DATA]
    assert sent == [1, 2]  # both had a turn
    server.receive(9, m.FeedMessage(m.ACK, offset=2 * size))
    while server.flush():
        pass
    assert [one.feed for one in said.take()] == [1, 2]


@pytest.mark.parametrize(("offset", "why", "told"), [(0, m.GONE, 2), (m.FROM_END, m.NOT_HERE, 0)])
def test_feeds_that_can_not_be(offset: int, why: int, told: int) -> None:
    world = plant()
    world.commit(5, *numbered(A, 3))
    world[1].replicas.kept[5] = 2
    server, said = serving(world, set())
    server.receive(9, opening(1, offset))
    assert [(one.kind, one.why, one.offset) for one in said.take()] == [(m.END, why, told)]


def test_a_feed_is_opened_once() -> None:
    server, _ = serving(plant())
    server.receive(9, opening(1))
    with pytest.raises(RemoteProtocolError):
        server.receive(9, opening(1))


def test_a_replica_without_a_leader_sends_its_consumers_elsewhere() -> None:
    world = plant()
    server, said = serving(world)
    server.receive(9, opening(1))
    world.truths[5].leader = 0
    server.tick(0)
    server.tick(1_500)
    assert [one.kind for one in said.take()] == [m.AT]
    server.tick(2_000)
    assert [(one.kind, one.why) for one in said.take()] == [(m.END, m.LEADERLESS)]


def test_closing_and_leaving() -> None:
    world = plant()
    server, said = serving(world)
    for number in (1, 2):
        server.receive(9, opening(number))
    server.receive(9, m.FeedMessage(m.CLOSE, 1))
    server.peer_gone(9)
    said.take()
    world.commit(5, (A, b"1"))
    server.applied(5)
    assert not server.flush()
    assert said.take() == []


def test_a_replica_that_can_not_read_says_so() -> None:
    world = plant()
    world.commit(5, (A, b"1"))
    world[1].replicas.broken.add(5)
    server, said = serving(world)
    server.receive(9, opening(1))
    server.flush()
    assert [(one.kind, one.why) for one in said.take()] == [(m.AT, 0), (m.END, m.NOT_HERE)]


# --- the side that consumes ---


def test_a_replica_that_does_not_answer_is_left_for_another() -> None:
    world = plant(3, on=(1, 2))
    world.cuts |= {(1, 3), (3, 1)}  # nobody has noticed
    screen = world[3].client("screen")
    with pytest.raises(AssertionError, match="No Suback"):
        ask(screen, b"plant/#")
    world.run(2_500)
    world.commit(5, (A, b"1"))
    assert got(screen.consume()) == [b"1"]


def test_a_feed_from_the_end_begins_anew_when_its_offset_is_known_in_another_way() -> None:
    world = plant(2)
    world.cuts |= {(1, 2), (2, 1)}
    screen = world[2].client("screen")
    with pytest.raises(AssertionError, match="No Suback"):
        ask(screen, b"plant/#")
    world.commit(5, (A, b"1"), (A, b"2"))
    streams = world[2].delivery.streams
    streams.know(streams.by_group[5], 0)  # as a replica says that was here a moment ago
    streams.find_source(streams.by_group[5], world.now)
    world.cuts.clear()
    world.run(5_000)
    world.commit(5, (A, b"3"))
    assert got(screen.consume()) == [b"1", b"2", b"3"]


def test_history_is_kept_for_those_who_read_it_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = plant()
    for number in range(6):
        world.commit(5, (A, b"%d" % number))
    size = len(world.truths[5].entries[-1])
    monkeypatch.setattr(history, "CHUNK_BYTES", size)
    monkeypatch.setattr(history, "KEPT_BYTES_MAX", 2 * size)
    here = world[2].logs.history
    for offset in range(6):
        assert here.read(5, offset) is None
        world.settle()
        found = here.read(5, offset)
        assert found is not None
        assert BatchView(found[0]).base_offset == offset
    assert here.read(5, 5) is not None
    assert here.read(5, 0) is None  # it made room


def test_what_no_living_replica_has_is_gone() -> None:
    world = plant(3, on=(1, 2))
    world.commit(5, *numbered(A, 4))
    for number in (1, 2):
        world[number].replicas.kept[5] = 1 + number
    here = world[3].logs.history
    assert here.read(5, 0) is None
    world.settle()
    with pytest.raises(OffsetGone) as error:
        here.read(5, 0)
    assert error.value.first == 2


def test_what_a_replica_out_of_reach_may_have_is_not_gone_until_that_is_dead() -> None:
    world = plant(3, on=(1, 2))
    world.commit(5, *numbered(A, 4))
    world[1].replicas.kept[5] = 3
    world.cut(2, 3)
    here = world[3].logs.history
    assert here.read(5, 0) is None
    world.run(1_000)
    assert here.read(5, 0) is None
    world[3].delivery.peer_dead(2, world.now)
    world.run(500)
    with pytest.raises(OffsetGone):
        here.read(5, 0)


def test_a_node_whose_replica_does_not_work_keeps_nobody_waiting() -> None:
    world = plant(3, on=(1, 2))
    world.commit(5, *numbered(A, 4))
    world[1].replicas.kept[5] = 3
    del world[2].replicas.applied[5]  # it is to have one, and has none that works
    here = world[3].logs.history
    assert here.read(5, 0) is None
    world.run(1_000)
    with pytest.raises(OffsetGone):
        here.read(5, 0)
    screen = world[3].client("screen")
    assert ask(screen, b"plant/#", start="earliest").reasons == [1]
    assert got(screen.consume()) == [b"3"]


def test_what_is_damaged_on_the_only_replica_is_skipped_and_told() -> None:
    world = plant()
    screen = world[2].client("screen")
    ask(screen, b"plant/#")
    world.commit(5, (A, b"0"))
    world.cut(1, 2)
    world.commit(5, *numbered(A, 2, 1))
    world.commit(5, (A, b"3"))
    world[1].replicas.lost[5] = 3
    world.mend(1, 2)
    world.run(700)
    assert got(screen.consume()) == [b"0", b"3"]
    assert world[2].delivery.readers.gone == 2
    assert world[2].logs.history.read(5, 1) is None, "it has to ask the replica"
    world.settle()
    for number in (1, 2):
        with pytest.raises(Damaged, match="Offsets 1 to 2 of partition group 5 are damaged") as error:
            world[number].logs.history.read(5, 1)
        assert (error.value.first, error.value.end) == (1, 3)
