"""Sinks on a cluster in one process: staged at leaders, committed once, whoever dies in between."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from flockmq.durable.machine.sink_table import STAGE_MS
from flockmq.durable.sinks.committing import PARTS_AHEAD
from flockmq.durable.sinks.sinks import Committed, SinkStatus, Staged
from flockmq.log.assembling import assemble
from flockmq.log.batch import BatchView
from partition_cluster import WALL_MS, Node, PartitionCluster

QUERY = b"query"


def chunk_of(*payloads: bytes) -> bytes:
    count = len(payloads)
    ends = [0]
    for payload in payloads:
        ends.append(ends[-1] + len(payload))
    zeros = bytes(4 * count)
    offsets = struct.pack(f"<{count + 1}i", *ends)
    return assemble([b"t/x"], zeros, [b"spark"], zeros, b"\1" * count, offsets, b"".join(payloads))


class Writer:
    """Writes through one node, and notes what came of it."""

    def __init__(self, cluster: PartitionCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number

    @property
    def node(self) -> Node:
        return self.cluster.nodes[self.number]

    def stage(self, batch: int, task: int, attempt: int, sequence: int, chunk: bytes, ms: int = 200) -> Staged | None:
        told: list[Staged] = []
        self.node.sinks.stage(1, QUERY, batch, task, attempt, sequence, chunk).then(told.append)
        self.cluster.run(ms)
        return told[0] if told else None

    def must_stage(self, batch: int, task: int, attempt: int, *chunks: bytes) -> None:
        for sequence, chunk in enumerate(chunks):
            told = self.stage(batch, task, attempt, sequence, chunk)
            assert told is not None
            assert told.reason == ""

    def commit(self, batch: int, *parts: tuple[int, int, int], ms: int = 1_000) -> Committed:
        told: list[Committed] = []
        self.node.sinks.commit(1, QUERY, batch, list(parts)).then(told.append)
        self.cluster.run(ms)
        assert len(told) == 1
        return told[0]

    def last(self) -> SinkStatus:
        told: list[tuple[dict[int, SinkStatus], list[int]]] = []
        self.node.sinks.states([1], QUERY).then(told.append)
        self.cluster.run(200)
        return told[0][0][1]


@pytest.fixture
def cluster() -> PartitionCluster:
    return PartitionCluster(nodes=4)


def records(cluster: PartitionCluster) -> list[bytes]:
    """All payloads of the partition, the same on all replicas."""
    cluster.run(500)
    found: list[list[bytes]] = []
    replicas = [node for node in cluster.nodes.values() if node.running and 1 in node.machines.by_group]
    first = max(node.local.first(1) for node in replicas)  # each forgets by itself
    for node in replicas:
        payloads: list[bytes] = []
        offset = first
        while offset < node.local.end(1):
            for batch in node.local.read(1, offset, 100_000):
                view = BatchView(batch)
                view.verify()
                payloads += [record.payload for record in view.records() if record.offset >= first]
                offset = view.next_offset
        found.append(payloads)
    assert all(one == found[0] for one in found)
    return found[0]


def states(cluster: PartitionCluster) -> set[bytes]:
    return {node.machines.state_of(1) for node in cluster.nodes.values() if node.running and node.id in cluster.voters}


@pytest.mark.parametrize("through", [1, 2, 4])
def test_what_is_staged_is_read_after_its_commit_in_order_of_tasks(cluster: PartitionCluster, through: int) -> None:
    cluster.lead(1, 1)
    writer = Writer(cluster, through)
    writer.must_stage(0, 1, 0, chunk_of(b"c"), chunk_of(b"d", b"e"))
    writer.must_stage(0, 0, 7, chunk_of(b"a", b"b"))
    writer.must_stage(0, 0, 6, chunk_of(b"an attempt that lost"))
    assert records(cluster) == []
    assert writer.last().staged_bytes > 0
    told = writer.commit(0, (1, 0, 2), (0, 7, 1))
    assert (told.is_done, told.is_repeat, told.first, told.next) == (True, False, 0, 5)
    assert records(cluster) == [b"a", b"b", b"c", b"d", b"e"]
    assert (writer.last().last, writer.last().staged_bytes) == (0, 0)
    assert len(states(cluster)) == 1


def test_records_have_the_time_of_the_commit_and_what_their_writer_said(cluster: PartitionCluster) -> None:
    writer = Writer(cluster, 2)
    writer.must_stage(0, 0, 0, chunk_of(b"a"))
    cluster.run(60_000)
    before = cluster.now - cluster.start + WALL_MS
    writer.commit(0, (0, 0, 1))
    [batch] = cluster.leader(1).local.read(1, 0, 1_000)
    [record] = BatchView(batch).records()
    assert before <= record.timestamp_ms <= cluster.now - cluster.start + WALL_MS
    assert (record.topic, record.client, record.flags) == (b"t/x", b"spark", 1)


def test_a_commit_said_twice_is_answered_as_the_first_time(cluster: PartitionCluster) -> None:
    writer = Writer(cluster, 2)
    writer.must_stage(3, 0, 0, chunk_of(b"a"))
    first = writer.commit(3, (0, 0, 1))
    again = writer.commit(3, (0, 0, 1))
    assert (again.is_done, again.is_repeat, again.first, again.next) == (True, True, first.first, first.next)
    older = writer.commit(2, (5, 5, 5))
    assert (older.is_done, older.is_repeat, older.first) == (True, True, -1)
    # Stages for a batch that is committed are taken and forgotten.
    writer.must_stage(3, 0, 1, chunk_of(b"a"))
    assert writer.last().staged_bytes == 0
    assert records(cluster) == [b"a"]


def test_what_is_not_all_staged_is_not_committed(cluster: PartitionCluster) -> None:
    writer = Writer(cluster, 3)
    writer.must_stage(0, 0, 0, chunk_of(b"a"))
    told = writer.commit(0, (0, 0, 2))
    assert told.is_final
    assert told.reason.startswith("Chunk 1 of task 0, attempt 0, batch 0 is not staged here")
    assert records(cluster) == []
    writer.stage(0, 0, 0, 1, chunk_of(b"b"))
    assert writer.commit(0, (0, 0, 2)).is_done
    assert records(cluster) == [b"a", b"b"]


def test_a_batch_without_records_counts_as_committed(cluster: PartitionCluster) -> None:
    writer = Writer(cluster, 2)
    told = writer.commit(4)
    assert (told.is_done, told.first, told.next) == (True, 0, 0)
    assert writer.last().last == 4


def test_chunks_come_in_pieces(cluster: PartitionCluster) -> None:
    cluster.lead(1, 1)
    writer = Writer(cluster, 4)
    writer.node.sinks.piece_bytes = 100
    payload = bytes(range(256)) * 4
    writer.must_stage(0, 0, 0, chunk_of(payload, b"", payload))
    assert writer.commit(0, (0, 0, 1)).is_done
    assert records(cluster) == [payload, b"", payload]


def test_a_new_leader_gets_all_pieces_again(cluster: PartitionCluster) -> None:
    cluster.lead(1, 1)
    writer = Writer(cluster, 4)
    writer.node.sinks.piece_bytes = 100
    told: list[Staged] = []
    writer.node.sinks.stage(1, QUERY, 0, 0, 0, 0, chunk_of(b"x" * 2_000)).then(told.append)
    for _ in range(8):
        cluster.turn()
    cluster.kill(1)
    cluster.run(6_000)
    assert [one.reason for one in told] == [""]
    assert writer.commit(0, (0, 0, 1)).is_done
    assert records(cluster) == [b"x" * 2_000]


def test_a_chunk_that_no_log_takes_is_refused(cluster: PartitionCluster) -> None:
    told = Writer(cluster, 4).stage(0, 0, 0, 0, chunk_of(bytes(5_000_000)))
    assert told is not None
    assert told.is_final
    assert told.reason.startswith("A chunk may have 4,192,256 bytes")


def test_dropped_stages_are_gone(cluster: PartitionCluster) -> None:
    writer = Writer(cluster, 2)
    writer.must_stage(0, 0, 0, chunk_of(b"a"))
    writer.must_stage(1, 0, 0, chunk_of(b"b"))
    told: list[bool] = []
    writer.node.sinks.drop(1, QUERY, 0).then(told.append)
    cluster.run(200)
    assert told == [True]
    assert writer.commit(0, (0, 0, 1)).is_final
    assert writer.commit(1, (0, 0, 1)).is_done


def test_stages_expire_also_where_nothing_else_happens(cluster: PartitionCluster) -> None:
    writer = Writer(cluster, 2)
    writer.must_stage(0, 0, 0, chunk_of(b"a"))
    cluster.now += STAGE_MS
    cluster.run(61_000)
    assert [node.machines.by_group[1].sinks.chunks for node in cluster.nodes.values() if node.id < 4] == [0, 0, 0]
    assert writer.commit(0, (0, 0, 1)).is_final


def test_the_leader_dies_between_stage_and_commit(cluster: PartitionCluster) -> None:
    cluster.lead(1, 1)
    writer = Writer(cluster, 4)
    writer.must_stage(0, 0, 0, chunk_of(b"a"), chunk_of(b"b"))
    cluster.kill(1)
    cluster.run(4_000)
    assert writer.commit(0, (0, 0, 2)).is_done
    cluster.restart(1)
    cluster.run(3_000)
    assert records(cluster) == [b"a", b"b"]
    assert len(states(cluster)) == 1


@pytest.mark.parametrize("turns", range(12))
def test_the_leader_dies_in_the_middle_of_a_commit(turns: int) -> None:
    cluster = PartitionCluster(nodes=4, seed=turns)
    cluster.lead(1, 1)
    writer = Writer(cluster, 4)
    chunks = [chunk_of(b"%d" % number) for number in range(3 * PARTS_AHEAD)]
    writer.must_stage(0, 0, 0, *chunks)
    told: list[Committed] = []
    writer.node.sinks.commit(1, QUERY, 0, [(0, 0, len(chunks))]).then(told.append)
    for _ in range(turns):  # a part of what happens without time passing
        cluster.turn()
    cluster.kill(1)
    cluster.run(6_000)
    # Somebody starts the batch anew, with other attempts, and does not know that it was begun.
    writer.must_stage(0, 0, 1, chunk_of(b"other"))
    again = writer.commit(0, (0, 0, len(chunks)))
    assert again.is_done
    cluster.restart(1)
    cluster.run(3_000)
    assert records(cluster) == [b"%d" % number for number in range(3 * PARTS_AHEAD)]
    assert len(states(cluster)) == 1


def test_a_commit_that_was_begun_is_finished_though_nobody_asks(cluster: PartitionCluster) -> None:
    cluster.lead(1, 1)
    writer = Writer(cluster, 1)
    chunks = [chunk_of(b"%d" % number) for number in range(20)]
    writer.must_stage(0, 0, 0, *chunks)
    writer.node.sinks.commit(1, QUERY, 0, [(0, 0, 20)])
    while not cluster.nodes[2].machines.by_group[1].sinks.committing:
        cluster.turn()
    cluster.kill(1)
    cluster.run(5_000)
    assert Writer(cluster, 4).last().last == 0
    assert records(cluster) == [b"%d" % number for number in range(20)]


def test_leadership_moves_to_and_fro_during_a_commit(cluster: PartitionCluster) -> None:
    cluster.lead(1, 1)
    writer = Writer(cluster, 1)
    chunks = [chunk_of(b"%d" % number) for number in range(60)]
    writer.must_stage(0, 0, 0, *chunks)
    writer.node.sinks.commit(1, QUERY, 0, [(0, 0, 60)])
    for target in (2, 3, 1, 2):
        for _ in range(3):
            cluster.turn()
        leader = next((node for node in cluster.nodes.values() if node.engine.is_leader(1)), None)
        if leader is not None and leader.id != target:
            leader.engine.host.transfer(1, target)
    cluster.run(3_000)
    assert Writer(cluster, 4).last().last == 0
    assert records(cluster) == [b"%d" % number for number in range(60)]


def test_others_publish_while_a_batch_is_committed(cluster: PartitionCluster) -> None:
    writer = Writer(cluster, 2)
    chunks = [chunk_of(b"%d" % number) for number in range(30)]
    writer.must_stage(0, 0, 0, *chunks)
    writer.node.sinks.commit(1, QUERY, 0, [(0, 0, 30)])
    for _ in range(20):
        cluster.publish(3, 1, b"other")
        cluster.turn()
    found = records(cluster)
    assert found.count(b"other") == 20
    assert [one for one in found if one != b"other"] == [b"%d" % number for number in range(30)]


def test_retention_keeps_what_is_staged_until_it_is_committed(cluster: PartitionCluster) -> None:
    cluster.set_topic(retention_bytes=8_000)
    writer = Writer(cluster, 2)
    writer.must_stage(0, 0, 0, chunk_of(b"staged"))
    cluster.fill(1, 60)
    cluster.run(30_000)
    log = cluster.leader(1).store.groups[1]
    assert log.first_index() == 1
    assert writer.commit(0, (0, 0, 1)).is_done
    cluster.fill(1, 60)
    cluster.run(30_000)
    assert log.first_index() > 1


def test_beyond_its_bound_a_partition_lets_stages_go(cluster: PartitionCluster) -> None:
    cluster.set_topic(retention_bytes=8_000)
    writer = Writer(cluster, 2)
    writer.must_stage(0, 0, 0, chunk_of(b"staged"))
    cluster.fill(1, 300)
    cluster.run(40_000)
    told = writer.commit(0, (0, 0, 1))
    assert told.is_final
    writer.must_stage(0, 0, 0, chunk_of(b"staged"))
    assert writer.commit(0, (0, 0, 1)).is_done
    assert records(cluster).count(b"staged") == 1


def test_a_replica_that_was_filled_by_a_checkpoint_can_commit(cluster: PartitionCluster) -> None:
    cluster.lead(1, 1)
    cluster.kill(3)
    cluster.set_topic(retention_bytes=8_000)
    cluster.fill(1, 150)
    cluster.run(30_000)
    writer = Writer(cluster, 4)
    writer.must_stage(0, 0, 0, chunk_of(b"staged"), chunk_of(b"too"))
    cluster.fill(1, 20)
    cluster.restart(3)
    cluster.run(5_000)
    late = cluster.nodes[3]
    assert late.store.groups[1].first_index() > 1  # entries alone could not have done it
    cluster.lead(1, 3)
    assert writer.commit(0, (0, 0, 2)).is_done
    assert [one for one in records(cluster) if one in (b"staged", b"too")] == [b"staged", b"too"]
    assert len(states(cluster)) == 1


class Driver:
    """A writer that is killed and started again like everything else: each start stages anew, with another attempt."""

    def __init__(self, cluster: PartitionCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.attempt = 0

    def pass_some_time(self) -> None:
        for _ in range(self.rng.choice((0, 1, 2, 5, 20))):
            self.cluster.turn()
        running = [number for number, node in self.cluster.nodes.items() if node.running]
        what = self.rng.random()
        if what < 0.15 and len(running) == 4:
            self.cluster.kill(self.rng.choice((1, 2, 3)))
        elif what < 0.4 and len(running) < 4:
            self.cluster.restart(next(number for number in (1, 2, 3) if number not in running))
        elif what < 0.7:
            self.cluster.run(self.rng.choice((50, 500, 3_000)))

    def ask(self, group: Callable[[Node], None]) -> None:
        running = [node for node in self.cluster.nodes.values() if node.running]
        group(self.rng.choice(running))
        self.pass_some_time()

    def write(self, batch: int) -> None:
        """Until somebody says that it is committed."""
        for _ in range(200):
            self.attempt += 1
            staged: list[Staged] = []
            count = self.rng.randint(1, 12)
            for sequence in range(count):
                chunk = chunk_of(b"%d/%d/%d" % (batch, self.attempt, sequence))
                self.stage(batch, sequence, chunk, staged)
            self.cluster.run(1_000)
            if len([one for one in staged if not one.reason]) == count and self.commit(batch, count):
                return
        raise AssertionError("it never ends")

    def stage(self, batch: int, sequence: int, chunk: bytes, staged: list[Staged]) -> None:
        self.ask(lambda node: node.sinks.stage(1, QUERY, batch, 0, self.attempt, sequence, chunk).then(staged.append))

    def commit(self, batch: int, count: int) -> bool:
        told: list[Committed] = []
        for _ in range(self.rng.randint(1, 3)):
            parts = [(0, self.attempt, count)]
            self.ask(lambda node: node.sinks.commit(1, QUERY, batch, parts).then(told.append))  # noqa: B023
        return any(one.is_done for one in told)


@pytest.mark.parametrize("seed", range(6))
def test_whoever_dies_whenever_each_batch_is_there_once(seed: int) -> None:
    cluster = PartitionCluster(nodes=4, groups=1, seed=seed)
    driver = Driver(cluster, random.Random(seed))
    for batch in range(6):
        driver.write(batch)
    for number in (1, 2, 3):
        if not cluster.nodes[number].running:
            cluster.restart(number)
    cluster.run(5_000)
    found = [tuple(map(int, payload.split(b"/"))) for payload in records(cluster)]
    by_batch: dict[int, list[tuple[int, int]]] = {}
    for batch, attempt, sequence in found:
        by_batch.setdefault(batch, []).append((attempt, sequence))
    assert list(by_batch) == list(range(6))
    for parts in by_batch.values():
        attempt = parts[0][0]
        assert parts == [(attempt, sequence) for sequence in range(len(parts))]
    assert len(states(cluster)) == 1
