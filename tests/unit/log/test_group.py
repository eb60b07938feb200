from __future__ import annotations

import random
from typing import Final

import pytest

from flockmq.errors import OffsetGone
from flockmq.log.batch import CURSOR, NOOP, BatchError, BatchView, control_batch, stamp
from flockmq.log.errors import DamageError, EntryGone, StoreBusy
from flockmq.log.group import GroupLog
from flockmq.log.settings import SMALL_SEGMENTS_MAX, Retention, StoreSettings
from flockmq.log.store import Store
from flockmq.testing.simulation.disk import SimulatedDisk
from log_cases import append, batch_of, everything, fill, new_disk, opened, payloads, settle

DAY_MS: Final = 24 * 3600 * 1000
LARGE: Final = StoreSettings(journal_bytes=1 << 22, commit_bytes=1 << 21, segment_bytes=1 << 20)


class Setup:
    """A store with one log, whose entries can be in memory or in files."""

    def __init__(self, in_files: bool) -> None:
        self.disk: SimulatedDisk = new_disk()
        self.store: Store = opened(self.disk)
        self.log: GroupLog = self.store.create(1)
        self._in_files = in_files

    def flush(self) -> None:
        """Where entries are meant to be in files: put them there, and nothing stays in memory."""
        if self._in_files:
            settle(self.store, self.disk, checkpoint=True)
            assert not self.log.recent


@pytest.fixture(params=[False, True], ids=["in memory", "in files"])
def setup(request: pytest.FixtureRequest) -> Setup:
    return Setup(request.param)


def test_an_empty_log(setup: Setup) -> None:
    log = setup.log
    assert (log.first_index(), log.last_index(), log.next_offset(), log.term_at(0)) == (1, 0, 0, 0)
    assert log.entries(1, 2, 100) == []
    assert log.read(0, 0, 100) == []
    assert log.offset_at(0, 0) == 0
    assert log.term_at(1) == -1


def test_entries_come_back_byte_for_byte(setup: Setup) -> None:
    stored = fill(setup.log, 30)
    setup.flush()
    assert everything(setup.log) == stored
    for low in range(1, 31):
        assert setup.log.entries(low, 31, 1) == [stored[low - 1]], "at least one, however large"
        assert setup.log.entries(low, 31, 3 * len(stored[0])) == stored[low - 1 : low + 2]
    assert setup.log.entries(5, 8, 10**9) == stored[4:7]
    assert setup.log.entries(31, 99, 10**9) == []


def test_reading_across_what_is_in_files_and_what_is_not(setup: Setup) -> None:
    stored = fill(setup.log, 10)
    setup.flush()
    stored += fill(setup.log, 10)
    assert everything(setup.log) == stored


@pytest.mark.parametrize(("index", "offset"), [(3, 0), (1, 0), (2, 1)])
def test_what_does_not_follow_on_is_refused(setup: Setup, index: int, offset: int) -> None:
    append(setup.log, batch_of(b"one"))
    with pytest.raises(BatchError, match="does not follow"):
        setup.log.append([stamp(batch_of(b"x"), 1, index + (index == 2), offset + (index == 2))])
    assert setup.log.last_index() == 1


def test_terms(setup: Setup) -> None:
    for term, count in ((1, 3), (4, 2), (5, 4)):
        append(setup.log, *[batch_of(b"x")] * count, term=term)
    setup.flush()
    assert [setup.log.term_at(index) for index in range(-1, 11)] == [-1, 0, 1, 1, 1, 4, 4, 5, 5, 5, 5, -1]


def test_every_cut(setup: Setup) -> None:
    for index in range(1, 31):
        fresh = Setup(setup._in_files)
        stored = fill(fresh.log, 30)
        fresh.flush()
        fresh.log.truncate_from(index)
        offset = BatchView(stored[index - 1]).base_offset
        assert (fresh.log.last_index(), fresh.log.next_offset()) == (index - 1, offset)
        assert everything(fresh.log) == stored[: index - 1]
        other = append(fresh.log, batch_of(b"other"), term=7)
        fresh.flush()
        assert everything(fresh.log) == stored[: index - 1] + other
        assert fresh.log.term_at(index) == 7
        assert fresh.log.read(offset, index, 1) == other


def test_cutting_behind_the_end_is_nothing(setup: Setup) -> None:
    stored = fill(setup.log, 3)
    setup.log.truncate_from(4)
    assert everything(setup.log) == stored


def test_forgetting_the_start(setup: Setup) -> None:
    stored = fill(setup.log, 30)
    setup.flush()
    starts = [segment.first_index for segment in setup.log.segments]
    setup.log.compact_to(starts[2] - 2)
    assert setup.log.first_index() == starts[1], "only whole segments go"
    setup.log.compact_to(starts[2] - 1)
    assert setup.log.first_index() == starts[2]
    assert setup.log.term_at(starts[2] - 1) == 1
    assert setup.log.term_at(starts[2] - 2) == -1
    assert everything(setup.log) == stored[starts[2] - 1 :]
    with pytest.raises(EntryGone, match="Send a snapshot"):
        setup.log.entries(1, 5, 100)
    with pytest.raises(OffsetGone, match="oldest one is"):
        setup.log.read(0, 30, 100)
    with pytest.raises(EntryGone, match="can't be cut"):
        setup.log.truncate_from(2)


def test_forgetting_everything_and_going_on(setup: Setup) -> None:
    fill(setup.log, 30)
    setup.flush()
    setup.log.compact_to(30)
    log = setup.log
    assert (log.first_index(), log.last_index(), log.first_offset, log.next_offset()) == (31, 30, 60, 60)
    assert log.term_at(30) == 1
    more = fill(log, 2)
    setup.flush()
    assert everything(log) == more


def test_a_fetch_returns_the_whole_batch_that_holds_the_offset(setup: Setup) -> None:
    stored = fill(setup.log, 30)
    setup.flush()
    for offset in range(60):
        assert setup.log.read(offset, 30, 1) == [stored[offset // 2]]
    assert setup.log.read(7, 30, 2 * len(stored[5])) == stored[3:5]
    assert setup.log.read(60, 30, 100) == []


def test_a_fetch_ends_at_the_committed_position(setup: Setup) -> None:
    stored = fill(setup.log, 30)
    setup.flush()
    assert setup.log.read(0, 12, 10**9) == stored[:12]
    assert setup.log.read(24, 12, 10**9) == [], "offset 24 is in entry 13"
    assert setup.log.read(0, 0, 10**9) == []


def test_control_batches_are_not_for_readers(setup: Setup) -> None:
    data = []
    for number in range(12):
        append(setup.log, *[control_batch(NOOP, bytes(300))] * (number % 4))
        data += append(setup.log, batch_of(b"%d" % number))
    setup.flush()
    for offset in range(12):
        assert payloads(setup.log.read(offset, setup.log.last_index(), 1)) == [b"%d" % offset]
    assert setup.log.read(0, setup.log.last_index(), 10**9) == data


def test_reading_by_time(setup: Setup) -> None:
    fill(setup.log, 30, start_ms=0)
    setup.flush()
    assert setup.log.offset_at(0, 30) == 0
    for second in range(1, 31):
        assert setup.log.offset_at(1000 * second, 30) == 2 * (second - 1)
        assert setup.log.offset_at(1000 * second - 999, 30) == 2 * (second - 1)
    assert setup.log.offset_at(30_001, 30) == 60
    assert setup.log.offset_at(20_000, 10) == 20, "not beyond what is committed"


def test_reading_by_time_where_clocks_went_back(setup: Setup) -> None:
    times = [50, 70, 20, 90, 10, 10, 95, 30, 99, 5]
    for time in times:
        append(setup.log, batch_of(b"x" * 400, timestamp_ms=time))
    setup.flush()
    for wanted in range(1, 101):
        first = next((number for number, time in enumerate(times) if time >= wanted), 10)
        assert setup.log.offset_at(wanted, 10) == first


def test_reading_by_time_within_a_batch(setup: Setup) -> None:
    from flockmq.log.batch import BatchBuilder

    builder = BatchBuilder()
    for time in (10, 20, 15, 30):
        builder.add(b"t", b"c", time, 0, b"")
    append(setup.log, builder.build())
    setup.flush()
    assert [setup.log.offset_at(time, 1) for time in (10, 11, 21, 31)] == [0, 1, 3, 4]


def test_segments_roll_by_size_and_age(setup: Setup) -> None:
    day = DAY_MS
    append(setup.log, batch_of(b"x", timestamp_ms=1000), batch_of(b"x", timestamp_ms=1000 + day - 1))
    assert len(setup.log.segments) == 1
    append(setup.log, batch_of(b"x", timestamp_ms=1000 + day))
    assert len(setup.log.segments) == 2
    append(setup.log, batch_of(b"x" * 1900, timestamp_ms=1000 + day))
    append(setup.log, batch_of(b"x" * 5000, timestamp_ms=1000 + day), batch_of(b"x", timestamp_ms=1000 + day))
    assert [segment.first_index for segment in setup.log.segments] == [1, 3, 4, 5, 6], "one batch may be larger"


def test_a_log_that_keeps_little_has_small_segments() -> None:
    log = opened(new_disk(), LARGE).create(1)
    batch = batch_of(random.Random(3).randbytes(30_000))

    def length(count: int) -> list[int]:
        log.reset(log.last_index(), 1, log.next_offset())
        append(log, *[batch] * count)
        return [segment.length // len(batch) for segment in log.segments]

    log.roll_for(Retention(bytes=400_000))
    assert length(8) == [3, 3, 2], "a quarter of that"
    log.roll_for(Retention(bytes=1_000))
    assert length(5) == [2, 2, 1], "not less than 64 KiB"
    log.roll_for(Retention(bytes=1 << 30))
    assert length(36) == [34, 2], "not more than the store has"
    log.roll_for(Retention())
    assert length(36) == [34, 2]


@pytest.mark.parametrize(
    ("age_ms", "rolls_after_ms"), [(20_000, 5_000), (1, 1_000), (7 * DAY_MS, DAY_MS), (0, DAY_MS), (3_600_000, 900_000)]
)
def test_a_log_that_keeps_records_for_a_short_time_closes_segments_sooner(
    setup: Setup, age_ms: int, rolls_after_ms: int
) -> None:
    setup.log.roll_for(Retention(age_ms=age_ms))
    append(setup.log, batch_of(b"x", timestamp_ms=1000), batch_of(b"x", timestamp_ms=999 + rolls_after_ms))
    assert len(setup.log.segments) == 1
    append(setup.log, batch_of(b"x", timestamp_ms=1000 + rolls_after_ms))
    assert [segment.first_index for segment in setup.log.segments] == [1, 3]


def test_a_log_that_can_not_forget_does_not_get_ever_more_files() -> None:
    log = opened(new_disk(), LARGE).create(1)
    log.roll_for(Retention(age_ms=4_000))
    for second in range(1, 101):
        append(log, batch_of(b"x", timestamp_ms=1000 * second))
    assert len(log.segments) == SMALL_SEGMENTS_MAX
    log.compact_to(20)
    append(log, batch_of(b"x", timestamp_ms=101_000))
    assert log.segments[-1].first_index == 101, "it goes on as before when it has forgotten"


def test_a_segment_without_records_need_not_be_closed_soon(setup: Setup) -> None:
    setup.log.roll_for(Retention(age_ms=4_000))
    for second in range(1, 10):
        append(setup.log, control_batch(CURSOR, b"", 1000 * second))
    assert len(setup.log.segments) == 1
    append(setup.log, batch_of(b"x", timestamp_ms=10_000), control_batch(CURSOR, b"", 10_000))
    append(setup.log, control_batch(CURSOR, b"", 11_000), control_batch(CURSOR, b"", 12_000))
    assert [segment.first_index for segment in setup.log.segments] == [1, 11], "the record can go at its time"


def test_a_control_batch_without_a_time_does_not_age_a_segment(setup: Setup) -> None:
    append(setup.log, control_batch(NOOP), batch_of(b"x", timestamp_ms=10**12), batch_of(b"x", timestamp_ms=10**12))
    assert len(setup.log.segments) == 1


def test_the_index_can_always_be_rebuilt(setup: Setup) -> None:
    stored = fill(setup.log, 60)
    setup.flush()
    for name in setup.disk.names(setup.log.folder):
        if name.endswith(".index"):
            setup.disk.remove(f"{setup.log.folder}/{name}")
    for segment in setup.log.segments[:-1]:
        if segment.flushed == segment.length:
            segment.rows = None
    for offset in range(120):
        assert setup.log.read(offset, 60, 1) == [stored[offset // 2]]
    assert [setup.log.offset_at(1000 * second, 60) for second in (2, 41)] == [0, 78]


def test_an_index_that_names_wrong_places_is_not_believed(setup: Setup) -> None:
    stored = fill(setup.log, 60)
    setup.flush()
    first, second = setup.log.segments[0], setup.log.segments[1]
    assert second.rows is not None or setup._in_files
    from flockmq.log.segment import pack_row

    for wrong in (333, 2 * len(stored[0])):  # within a batch, and where another one starts
        first.rows = bytearray(pack_row(1, 0, 0, 0) + pack_row(4, 6, 1, wrong))
        for index in range(1, 8):
            assert setup.log.entries(index, index + 1, 1) == [stored[index - 1]]


def test_the_index_file_follows_a_cut(setup: Setup) -> None:
    fill(setup.log, 6)
    settle(setup.store, setup.disk, checkpoint=True)
    setup.log.truncate_from(2)
    append(setup.log, batch_of(b"x" * 700), batch_of(b"x" * 500), term=2)
    settle(setup.store, setup.disk, checkpoint=True)
    segment = setup.log.segments[0]
    assert bytearray(setup.disk.read(setup.log.path(segment.index_name()), 0, 10_000)) == segment.rows


def test_a_snapshot(setup: Setup) -> None:
    fill(setup.log, 5)
    assert setup.log.load_snapshot() is None
    snapshot = setup.log.save_snapshot(b"state after 3", 3, 1, 6)
    with pytest.raises(BatchError, match="not saved yet"):
        setup.log.use_snapshot(snapshot)
    settle(setup.store, setup.disk)
    assert snapshot.saved
    assert setup.log.load_snapshot() is None, "saved is not used"
    setup.log.use_snapshot(snapshot)
    assert setup.log.load_snapshot() == b"state after 3"
    assert setup.log.snapshot is snapshot
    old = setup.log.path(snapshot.file_name())
    newer = setup.log.save_snapshot(b"state after 4", 4, 1, 8)
    settle(setup.store, setup.disk)
    setup.log.use_snapshot(newer)
    settle(setup.store, setup.disk, checkpoint=True)
    assert setup.disk.size(old) == -1
    assert setup.log.load_snapshot() == b"state after 4"


def test_a_snapshot_takes_the_place_of_the_log(setup: Setup) -> None:
    fill(setup.log, 5)
    setup.flush()
    setup.log.reset(100, 9, 5000)
    log = setup.log
    assert (log.first_index(), log.last_index(), log.next_offset(), log.term_at(100)) == (101, 100, 5000, 9)
    stored = append(log, batch_of(b"x"), term=9)
    setup.flush()
    assert everything(log) == stored
    assert log.read(5000, 101, 1) == stored


def test_damage_is_told_and_not_served() -> None:
    setup = Setup(in_files=True)
    stored = fill(setup.log, 30)
    setup.flush()
    segment = setup.log.segments[1]
    path = setup.log.path(segment.file_name())
    setup.disk.write(path, 350, b"\xff")
    damaged = segment.first_index + 350 // len(stored[0])
    with pytest.raises(DamageError, match=f"Entry {damaged} of group 1"):
        everything_from(setup.log, 1)
    assert setup.log.damage is not None
    assert (setup.log.damage.first, setup.log.damage.last, setup.log.damage.everything) == (damaged, 30, False)
    assert setup.log.entries(1, damaged, 10**9) == stored[: damaged - 1], "what is before it still is"
    settle(setup.store, setup.disk)
    again = opened(setup.disk).groups[1]
    assert again.damage is not None
    assert (again.damage.first, again.damage.last, again.last_index()) == (damaged, 30, damaged - 1)
    append(again, *[batch_of(b"%d" % index, b"refilled") for index in range(damaged, 31)])
    again.repaired()
    assert again.damage is None


def everything_from(log: GroupLog, index: int) -> None:
    while index <= log.last_index():
        index += len(log.entries(index, log.last_index() + 1, 500))


@pytest.mark.parametrize("spoil", ["flip", "cut", "remove"])
def test_a_damaged_snapshot_is_told(spoil: str) -> None:
    setup = Setup(in_files=True)
    snapshot = setup.log.save_snapshot(b"state", 0, 0, 0)
    settle(setup.store, setup.disk)
    setup.log.use_snapshot(snapshot)
    path = setup.log.path(snapshot.file_name())
    if spoil == "flip":
        setup.disk.write(path, 2, b"X")
    elif spoil == "cut":
        setup.disk.truncate(path, 3)
    else:
        setup.disk.remove(path)
    with pytest.raises(DamageError, match="has to be sent again"):
        setup.log.load_snapshot()
    assert setup.log.damage is not None


def test_more_than_a_commit_can_hold_is_refused(setup: Setup) -> None:
    with pytest.raises(BatchError, match="too large"):
        append(setup.log, batch_of(b"x" * 9000))
    with pytest.raises(StoreBusy, match="has_room"):
        append(setup.log, *[batch_of(b"x" * 7000)] * 10)
    before = setup.log.last_index()
    settle(setup.store, setup.disk)
    append(setup.log, batch_of(b"x" * 7000))
    assert setup.log.last_index() == before + 1
