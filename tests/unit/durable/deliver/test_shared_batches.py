"""Sessions that stand near each other read a batch once for all, and each gets what its own subscriptions match."""

from __future__ import annotations

import random

import pytest

from delivery_world import World, got, numbered
from flockmq.durable.deliver.catchup import Catchup
from flockmq.durable.deliver.shared_batches import SPAN_RECORDS, SharedBatch, SharedBatches, Tally
from flockmq.log.batch import BatchBuilder, stamp
from flockmq.mqtt.packets import Publish
from flockmq.routing.table import SubscriptionTable
from routing_cases import session_of, subscription_of

NAMES = (b"plant/a", b"plant/b", b"plant/b/c", b"$x/a")


def batch_of(*records: tuple[bytes, bytes], base: int = 0, expires_at: int = 0) -> bytes:
    builder = BatchBuilder()
    for topic, payload in records:
        builder.add(topic, b"publisher", 1, 1, payload)
        builder.mark(expires_at=expires_at)
    return stamp(builder.build(), 1, 1, base)


@pytest.mark.parametrize("node", [1, 2])
def test_many_sessions_cost_as_many_reads_as_one(node: int) -> None:
    reads: list[int] = []
    for count in (1, 40):
        world = World(2)
        world.create("plant", 5, on=(1,))
        for first in range(0, 2_000, 100):
            world.commit(5, *numbered(b"plant/a", 100, first))
        clients = [world[node].client(f"c{number}") for number in range(count)]
        for client in clients:
            client.subscribe(b"plant/#", 0)
        before = world[1].replicas.reads
        for number, client in enumerate(clients):
            session = world[node].broker.sessions[f"c{number}"]
            world[node].delivery.readers.lag(session, 5, number % 3)
            assert not client.received()
        world.settle()
        for number, client in enumerate(clients):
            assert got([one for one in client.received() if isinstance(one, Publish)]) == [
                b"%d" % one for one in range(number % 3, 2_000)
            ]
        reads.append(world[1].replicas.reads - before)
        assert world[node].delivery.readers.shared.kept_bytes() == 0  # no session reads any more
    assert reads[1] <= reads[0] + 1


def test_a_session_gets_the_same_by_filters_and_by_names() -> None:
    rng = random.Random(7)
    filters = [b"#", b"+/a", b"plant/#", b"plant/+", *NAMES, b"+/b/#", b"other", b"$x/#"]
    for _ in range(200):
        records = [(rng.choice(NAMES), b"%d" % number) for number in range(rng.randrange(1, 12))]
        batch = SharedBatch(batch_of(*records, base=100), Tally())
        table = SubscriptionTable(100, "random", random.Random(1))
        session = session_of("one")
        catchup = Catchup(session)
        for number, topic_filter in enumerate(rng.sample(filters, rng.randrange(1, 5))):
            subscription = subscription_of(session, topic_filter, qos=1, identifier=number + 1)
            session.subscriptions[topic_filter] = subscription
            table.add(subscription)
        by_filter = catchup.wanted(table, 5, batch, 100)
        by_name = catchup._wanted_by_name(table, 5, batch, 100)
        found: list[list[tuple[int, tuple[int, ...]]]] = []
        for wanted in (by_filter, by_name):
            rows: list[tuple[int, tuple[int, ...]]] = []
            if wanted is not None:
                for piece in batch.pieces(wanted.filters, 100, 200, 5, False, 0):
                    target = wanted.target(piece.topic_index)
                    assert target is not None
                    assert piece.run.topic == records[piece.offset - 100][0]
                    rows += [(piece.offset + at, target.identifiers) for at in range(piece.run.count)]
            found.append(rows)
        expected: list[tuple[int, tuple[int, ...]]] = []
        for number, (topic, _) in enumerate(records):
            target = catchup.target(table, 5, topic, 100)
            if target is not None:
                expected.append((100 + number, target.identifiers))
        assert found == [expected, expected]


def test_sessions_share_runs_also_when_they_begin_within_one() -> None:
    batch = SharedBatch(batch_of(*numbered(b"a", 3 * SPAN_RECORDS)), Tally())
    one = batch.pieces((b"a",), 0, 10_000, 5, False, 0)
    other = batch.pieces((b"#",), 10, 10_000, 5, False, 0)
    assert [piece.run.count for piece in one] == [SPAN_RECORDS] * 3
    assert other[0].offset == 10
    assert other[0].run.payload(0) == b"10"
    assert [piece.run for piece in other[1:]] == [piece.run for piece in one[1:]]
    cut = batch.pieces((b"a",), 5, 8, 5, False, 0)
    assert [(piece.offset, piece.run.count) for piece in cut] == [(5, 3)]


def test_runs_are_made_anew_when_the_wall_clock_is_set() -> None:
    batch = SharedBatch(batch_of((b"a", b"1"), expires_at=10_000), Tally())
    assert batch.pieces((b"a",), 0, 1, 5, False, 1_000)[0].run.expires_at == 9_000
    assert batch.pieces((b"a",), 0, 1, 5, False, 4_000)[0].run.expires_at == 6_000


class Source:
    """A log of batches with one record each; counts reads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reads = 0

    def read(self, group: int, offset: int, bytes_max: int) -> list[bytes] | None:
        self.reads += 1
        return [batch_of((b"a", b"x" * self.size), base=offset)]


def test_what_is_kept_is_bounded() -> None:
    source = Source(1_000)
    shared = SharedBatches(source, 20_000)
    for offset in range(100):
        batches = shared.read(5, offset)
        assert batches is not None
        assert len(batches[0].pieces((b"a",), 0, 1_000, 5, False, 0)) == 1
    assert shared.kept_bytes() <= 24_000
    assert source.reads == 100
    shared.read(5, 99)
    assert source.reads == 100
    shared.read(5, 0)
    assert source.reads == 101
