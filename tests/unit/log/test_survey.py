"""What is left of a segment file after damage, and how it is brought back."""

from __future__ import annotations

import random

import pytest

from flockmq.log.batch import BatchView
from flockmq.log.errors import DamageError, SpoiledError
from flockmq.log.group import GroupLog
from flockmq.log.segment import Segment
from flockmq.log.state import Gap
from flockmq.log.store import Store
from flockmq.log.survey import Inspection
from flockmq.log.work import Repair
from flockmq.testing.simulation.disk import PowerLoss, SimulatedDisk
from log_cases import append, batch_of, new_disk, opened, settle

PIECE = 1 << 20


def filled() -> tuple[SimulatedDisk, Store, GroupLog, list[bytes]]:
    """A log of several segments, all of it in files and committed."""
    disk = new_disk()
    store = opened(disk)
    store.leave_to_mender()
    log = store.create(7)
    batches: list[bytes] = []
    for number in range(40):
        batches += append(log, batch_of(b"%03d" % number * 30))
        settle(store, disk)
    settle(store, disk, checkpoint=True)
    log.recent.clear()
    log.settle(log.last)
    return disk, store, log, batches


def inspect(disk: SimulatedDisk, log: GroupLog, segment: Segment, piece: int = PIECE) -> list[Gap]:
    work = Inspection(log, segment, piece)
    gaps: list[Gap] = []
    while not work.is_over():
        work.again()
        work.perform(disk)
        assert not work.error
        gaps += work.gaps
    return gaps


def damage(disk: SimulatedDisk, path: str, position: int, length: int = 1) -> None:
    for at in range(position, position + length):
        byte = disk.read(path, at, 1)[0]
        disk.write(path, at, bytes((byte ^ 0x10,)))
    disk.sync(path)


def test_sound_segments_have_no_gaps_and_the_same_marks_in_any_pieces() -> None:
    disk, _, log, batches = filled()
    assert len(log.segments) > 3
    marks = bytearray()
    for segment in log.segments:
        assert inspect(disk, log, segment, 1) == []
        work = Inspection(log, segment, PIECE)
        work.perform(disk)
        for run in work.marks:
            marks += run.data
    assert bytes(marks) == b"".join([batch[4:8] for batch in batches])


def test_any_byte_that_goes_bad_is_a_gap_around_its_batch() -> None:
    disk, _, log, _ = filled()
    segment = log.segments[1]
    path = log.path(segment.file_name())
    whole = disk.read(path, 0, segment.length)
    starts = [0]
    while starts[-1] < len(whole):
        starts.append(BatchView(whole, starts[-1]).end)
    for position in range(0, len(whole), 7):
        damage(disk, path, position)
        [gap] = inspect(disk, log, segment)
        assert gap.start <= position < gap.stop
        assert {gap.start, gap.stop} <= set(starts)
        assert gap.first == segment.first_index + starts.index(gap.start)
        assert gap.next == segment.first_index + starts.index(gap.stop)
        assert (gap.first_offset, gap.end_offset) == (gap.first - 1, gap.next - 1)
        if position - max(one for one in starts if one <= position) >= 96:
            assert gap.next == gap.first + 1
        damage(disk, path, position)
    assert disk.read(path, 0, segment.length) == whole


@pytest.mark.parametrize("lost", [0, 100, 500])
def test_a_file_that_is_cut_or_gone_is_a_gap_to_its_end(lost: int) -> None:
    disk, _, log, _ = filled()
    segment = log.segments[1]
    path = log.path(segment.file_name())
    if lost:
        disk.truncate(path, lost)
    else:
        disk.remove(path)
    [gap] = inspect(disk, log, segment)
    assert (gap.stop, gap.next) == (segment.length, segment.next_index)
    assert gap.end_offset == log.segments[2].base_offset


def test_what_is_around_a_gap_is_read_and_what_is_in_it_never() -> None:
    disk, store, log, batches = filled()
    segment = log.segments[1]
    damage(disk, log.path(segment.file_name()), 10, 300)
    [gap] = inspect(disk, log, segment)
    with pytest.raises(SpoiledError) as caught:
        log.entries(gap.first, gap.next, PIECE)
    assert caught.value.index == gap.first
    assert (7, gap.first) in store.staging.suspects
    assert log.damage is None, "the log is not cut for it"
    assert log.add_gap(gap)
    assert not log.add_gap(gap)
    for index in range(1, 41):
        if gap.first <= index < gap.next:
            with pytest.raises(SpoiledError):
                log.entries(index, index + 1, 1)
        else:
            assert log.entries(index, index + 1, 1) == [batches[index - 1]]
    assert log.read(0, log.last, PIECE) == batches[: gap.first - 1]
    assert log.read(gap.end_offset, log.last, PIECE) == batches[gap.next - 1 :]
    with pytest.raises(SpoiledError):
        log.read(gap.first_offset, log.last, PIECE)


def test_what_is_not_known_to_be_committed_is_damage_of_the_whole_log() -> None:
    disk, _, log, _ = filled()
    segment = log.segments[1]
    log.settle(segment.first_index - 1)
    damage(disk, log.path(segment.file_name()), 10)
    with pytest.raises(DamageError) as caught:
        log.entries(segment.first_index, segment.first_index + 1, 1)
    assert not isinstance(caught.value, SpoiledError)
    assert log.damage is not None


def repair(store: Store, log: GroupLog, gap: Gap, batches: list[bytes]) -> Repair:
    segment = log.segment_of(gap.first)
    found = Repair(log, segment, gap.start, b"".join(batches[gap.first - 1 : gap.next - 1]))
    store.repair(found)
    return found


def test_a_repair_gives_the_same_file_again() -> None:
    disk, store, log, batches = filled()
    segment = log.segments[1]
    path = log.path(segment.file_name())
    whole = disk.read(path, 0, segment.length)
    damage(disk, path, 40)
    damage(disk, path, segment.length - 20)
    first, second = inspect(disk, log, segment)
    log.add_gap(first)
    log.add_gap(second)
    for gap in (first, second):
        chore = repair(store, log, gap, batches)
        settle(store, disk)
        assert (chore.is_over, chore.error) == (True, "")
        log.gaps.remove(gap)
    assert disk.read(path, 0, segment.length + 1) == whole
    assert inspect(disk, log, segment) == []
    disk.lose_power(random.Random(1))
    assert disk.read(path, 0, segment.length + 1) == whole


@pytest.mark.parametrize("calls", range(1, 8))
def test_power_lost_in_a_repair_leaves_the_old_file_or_the_new_one(calls: int) -> None:
    disk, store, log, batches = filled()
    segment = log.segments[1]
    path = log.path(segment.file_name())
    whole = disk.read(path, 0, segment.length)
    damage(disk, path, 150)
    spoiled = disk.read(path, 0, segment.length)
    [gap] = inspect(disk, log, segment)
    log.add_gap(gap)
    repair(store, log, gap, batches)
    disk.lose_power_after(calls)
    try:
        settle(store, disk)
    except PowerLoss:
        disk.lose_power(random.Random(calls))
    assert disk.read(path, 0, segment.length + 1) in (whole, spoiled)
    again = opened(disk)
    names = disk.names(log.folder)
    assert not [name for name in names if name.endswith(".repair")]
    assert again.groups[7].last == 40


def test_a_repair_brings_no_file_back_that_retention_took() -> None:
    disk, store, log, batches = filled()
    segment = log.segments[0]
    damage(disk, log.path(segment.file_name()), 150)
    [gap] = inspect(disk, log, segment)
    log.add_gap(gap)
    chore = repair(store, log, gap, batches)
    log.compact_to(segment.next_index - 1)
    settle(store, disk)
    assert chore.is_over
    assert chore.error
    assert disk.size(log.path(segment.file_name())) == -1
    log.drop_stale_gaps()
    assert log.gaps == []


def test_a_disk_without_room_stops_nothing_but_the_repair() -> None:
    disk, store, log, batches = filled()
    segment = log.segments[1]
    damage(disk, log.path(segment.file_name()), 150)
    [gap] = inspect(disk, log, segment)
    log.add_gap(gap)
    chore = repair(store, log, gap, batches)
    disk.full = True
    settle(store, disk)
    assert chore.is_over
    assert chore.error
    assert not store.down


def test_a_cut_takes_gaps_and_their_repairs_with_it() -> None:
    """What is written there afterwards is something else."""
    disk, store, log, batches = filled()
    segment = log.segments[-1]
    path = log.path(segment.file_name())
    damage(disk, path, 150)
    [gap] = inspect(disk, log, segment)
    log.add_gap(gap)
    chore = repair(store, log, gap, batches)
    log.truncate_from(gap.first)
    assert log.gaps == []
    fresh = append(log, *[batch_of(b"else" * 30) for _ in range(gap.first, 41)], term=2)
    settle(store, disk, checkpoint=True)
    assert (chore.is_over, chore.error) == (True, "its segment is gone or was cut")
    log.recent.clear()
    assert log.entries(gap.first, log.last + 1, PIECE) == fresh
