"""What a partition knows of sinks: made of committed entries alone, bounded, the same after a checkpoint."""

from __future__ import annotations

import random
import struct

import pytest

from flockmq.durable.machine import sink_table as sinks_state
from flockmq.durable.machine.machine import PartitionMachine
from flockmq.durable.machine.sink_bodies import (
    CHUNKS_MAX,
    PartName,
    begin_body,
    drop_body,
    part_of,
    read_part,
    read_sink_entry,
    stage_body,
    stage_name,
    sweep_body,
)
from flockmq.durable.machine.sink_table import QUERIES_MAX, QUERY_MS, STAGE_MS
from flockmq.log.assembling import assemble
from flockmq.log.batch import SINK, BatchView, control_batch, stamp
from flockmq.raft.entry import entry_of

START_MS = 1_700_000_000_000
CHUNK = assemble([b"t/x"], bytes(8), [b"spark"], bytes(8), b"\1\5", struct.pack("<3i", 0, 1, 2), b"ab")


class Log:
    """Feeds machines with entries."""

    def __init__(self, *machines: PartitionMachine) -> None:
        self.machines = list(machines) or [PartitionMachine(1)]
        self.index = 0
        self.offset = 0
        self.now_ms = START_MS
        self.entries: list[bytes] = []

    @property
    def sinks(self) -> sinks_state.SinkTable:
        return self.machines[0].sinks

    def add(self, batch: bytes) -> int:
        self.index += 1
        stamped = stamp(batch, 1, self.index, self.offset)
        self.entries.append(stamped)
        self.offset += BatchView(stamped).count
        for machine in self.machines:
            machine.apply(entry_of(stamped))
        return self.index

    def sink(self, body: bytes) -> int:
        return self.add(control_batch(SINK, body, self.now_ms))

    def stage(self, query: bytes, batch: int, task: int = 0, attempt: int = 0, sequence: int = 0) -> int:
        return self.sink(stage_body(self.now_ms, stage_name(query, batch, task, attempt, sequence), CHUNK))

    def begin(self, query: bytes, batch: int, *indexes: int) -> None:
        self.sink(begin_body(self.now_ms, query, batch, list(indexes)))

    def part(self, query: bytes, batch: int, part: int) -> None:
        self.add(part_of(CHUNK, PartName(query, batch, part), self.now_ms))


def test_a_batch_is_committed_when_its_last_part_is_in_the_log() -> None:
    log = Log()
    indexes = [log.stage(b"q", 5, sequence=sequence) for sequence in range(2)]
    log.begin(b"q", 5, *indexes)
    known = log.sinks.queries[b"q"]
    assert (known.last, known.committing, known.plan, log.sinks.chunks) == (-1, 5, indexes, 0)
    log.part(b"q", 5, 0)
    assert (known.last, known.done) == (-1, 1)
    log.part(b"q", 5, 1)
    assert (known.last, known.committing, known.first_offset, known.next_offset) == (5, -1, 0, 4)
    assert not log.sinks.committing


def test_parts_that_do_not_come_next_change_nothing() -> None:
    log = Log()
    indexes = [log.stage(b"q", 5, sequence=sequence) for sequence in range(2)]
    log.begin(b"q", 5, *indexes)
    for query, batch, part in ((b"q", 5, 1), (b"q", 4, 0), (b"r", 5, 0)):
        log.part(query, batch, part)
    assert log.sinks.queries[b"q"].done == 0


def test_no_other_batch_begins_before_one_is_finished() -> None:
    log = Log()
    first, second = log.stage(b"q", 1), log.stage(b"q", 2)
    log.begin(b"q", 1, first)
    log.begin(b"q", 2, second)
    assert log.sinks.queries[b"q"].committing == 1
    log.part(b"q", 1, 0)
    log.begin(b"q", 1, second)
    log.begin(b"q", 0, second)
    assert (log.sinks.queries[b"q"].last, log.sinks.queries[b"q"].committing) == (1, -1)
    log.begin(b"q", 2, second)
    assert log.sinks.queries[b"q"].committing == 2


def test_nothing_begins_with_chunks_that_are_not_staged_for_it() -> None:
    log = Log()
    other = log.stage(b"r", 0)
    older = log.stage(b"q", 0)
    for index in (other, older, 99):
        log.begin(b"q", 1, index)
    assert b"q" not in log.sinks.queries


def test_attempts_that_lost_go_with_the_commit_and_late_ones_are_not_kept() -> None:
    log = Log()
    log.stage(b"q", 0, attempt=1)
    won = log.stage(b"q", 1, attempt=2)
    log.stage(b"q", 1, attempt=3)
    later = log.stage(b"q", 2)
    log.begin(b"q", 1, won)
    assert log.sinks.chunks == 1
    log.stage(b"q", 1, attempt=4)
    log.part(b"q", 1, 0)
    log.stage(b"q", 0, attempt=5)
    assert list(log.sinks.stages) == [(b"q", 2, 0, 0)]
    assert log.sinks.held_index() == later
    assert log.sinks.has_passed(b"q", 1)
    assert not log.sinks.has_passed(b"q", 2)


def test_a_chunk_that_is_staged_twice_counts_once_and_is_read_from_the_later_entry() -> None:
    log = Log()
    log.stage(b"q", 0)
    once = log.sinks.bytes
    again = log.stage(b"q", 0)
    assert (log.sinks.chunks, log.sinks.bytes) == (1, once)
    assert log.sinks.index_of((b"q", 0, 0, 0), 0) == again


def test_stages_expire_an_hour_after_their_last_chunk() -> None:
    log = Log()
    log.stage(b"old", 0)
    log.stage(b"kept", 0)
    log.now_ms += STAGE_MS - 1
    log.stage(b"kept", 0, sequence=1)
    log.now_ms += 1
    assert log.sinks.expires_ms() == log.now_ms
    log.sink(sweep_body(log.now_ms))
    assert list(log.sinks.stages) == [(b"kept", 0, 0, 0)]
    assert log.sinks.chunks == 2


def test_what_is_being_committed_does_not_expire() -> None:
    log = Log()
    index = log.stage(b"q", 0)
    log.begin(b"q", 0, index)
    log.now_ms += 10 * STAGE_MS
    log.sink(sweep_body(log.now_ms))
    assert log.sinks.held_index() == index
    log.part(b"q", 0, 0)
    assert log.sinks.queries[b"q"].last == 0
    assert log.sinks.held_index() == 0


def test_dropping_leaves_other_batches_alone() -> None:
    log = Log()
    for batch in (1, 2, 3):
        log.stage(b"q", batch)
    log.stage(b"r", 2)
    log.sink(drop_body(log.now_ms, b"q", 2))
    assert [key[:2] for key in log.sinks.stages] == [(b"q", 1), (b"q", 3), (b"r", 2)]


def test_chunks_are_bounded() -> None:
    log = Log()
    log.sinks.chunks = CHUNKS_MAX
    log.stage(b"q", 0)
    assert not log.sinks.stages
    log.sinks.chunks = 0
    log.sinks.bytes = sinks_state.STAGED_BYTES_MAX
    log.stage(b"q", 0)
    assert not log.sinks.stages
    assert not log.sinks.has_room(1)


def test_the_query_that_committed_least_recently_is_forgotten_first_but_none_within_an_hour() -> None:
    log = Log()
    for number in range(QUERIES_MAX):
        log.begin(b"%d" % number, 0)
    log.begin(b"0", 1)  # heard of again
    log.begin(b"new", 0)
    assert b"new" not in log.sinks.queries
    assert not log.sinks.has_room_for(b"new", log.now_ms)
    log.now_ms += QUERY_MS
    log.begin(b"new", 0)
    assert len(log.sinks.queries) == QUERIES_MAX
    assert b"1" not in log.sinks.queries
    assert log.sinks.queries[b"0"].last == 1
    assert log.sinks.forgotten == 1


def at_random(log: Log, rng: random.Random, steps: int) -> None:
    """Entries as leaders make them, and some that they would not."""
    for _ in range(steps):
        query = rng.choice([b"a", b"b"])
        batch = rng.randrange(5)
        what = rng.randrange(10)
        log.now_ms += rng.choice([0, 1, 60_000, STAGE_MS // 3])
        if what < 4:
            log.stage(query, batch, rng.randrange(2), rng.randrange(2), rng.randrange(3))
        elif what < 6:
            staged = [
                index for key, stage in log.sinks.stages.items() if key[:2] == (query, batch)
                for index in stage.indexes.values()
            ]  # fmt: skip
            log.begin(query, batch, *staged)
        elif what < 9:
            known = log.sinks.queries.get(query)
            log.part(query, max(known.committing, 0) if known else batch, known.done if known else 0)
        else:
            log.sink(drop_body(log.now_ms, query, batch))


@pytest.mark.parametrize("seed", range(20))
def test_a_checkpoint_goes_on_as_the_machine_that_made_it(seed: int) -> None:
    rng = random.Random(seed)
    log = Log()
    at_random(log, rng, 40)
    restored = PartitionMachine(1)
    restored.decode(log.machines[0].encode())
    assert restored.encode() == log.machines[0].encode()
    assert (restored.sinks.bytes, restored.sinks.chunks) == (log.sinks.bytes, log.sinks.chunks)
    log.machines.append(restored)
    at_random(log, rng, 40)
    replayed = PartitionMachine(1)
    for entry in log.entries:
        replayed.apply(entry_of(entry))
    assert {machine.encode() for machine in [*log.machines, replayed]} == {restored.encode()}


def test_counts_fit_what_is_staged() -> None:
    log = Log()
    for seed in range(5):
        at_random(log, random.Random(seed), 60)
        stages = log.sinks.stages.values()
        assert log.sinks.chunks == sum(len(stage.indexes) for stage in stages)
        assert log.sinks.bytes == sum(sum(stage.sizes.values()) for stage in stages)


def test_partitions_without_sinks_have_the_checkpoints_of_before() -> None:
    machine = PartitionMachine(1)
    assert machine.encode()[:4] == b"FLKP"
    assert PartitionMachine(1).encode() == machine.encode()
    log = Log(machine)
    before = machine.encode()
    log.stage(b"q", 0)
    assert len(machine.encode()) > len(before)
    log.sink(drop_body(log.now_ms, b"q", 0))
    assert len(machine.encode()) == len(before)


def test_a_part_is_the_chunk_with_a_note_and_the_time() -> None:
    part = part_of(CHUNK, PartName(b"q", 7, 3), 12_345)
    view = BatchView(part)
    view.verify()
    name = read_part(part)
    assert name is not None
    assert (name.query, name.batch, name.part) == (b"q", 7, 3)
    assert [(one.topic, one.payload, one.flags, one.timestamp_ms) for one in view.records()] == [
        (b"t/x", b"a", 1, 12_345),
        (b"t/x", b"b", 5, 12_345),
    ]


@pytest.mark.parametrize(
    "body", [b"", b"\1", b"\2\1" + bytes(40), stage_body(0, b"\0\0" + bytes(40), b""), begin_body(0, b"q", 0, [1])[:-1]]
)
def test_entries_that_this_version_cannot_read_are_counted(body: bytes) -> None:
    log = Log()
    log.sink(body)
    assert read_sink_entry(control_batch(SINK, body)) is None
    assert log.machines[0].unreadable == 1
