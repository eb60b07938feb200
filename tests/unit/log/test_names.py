"""The index of topic names: a reader passes blocks without a wanted name, and never one that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from flockmq.log.batch import NOOP, BatchBuilder, BatchView, control_batch, stamp
from flockmq.log.names import SCANNED_MAX, Found, NameTest, SegmentNames, decode_names
from flockmq.log.settings import Retention, StoreSettings
from log_cases import append, batch_of, fill, new_disk, opened, settle

if TYPE_CHECKING:
    from flockmq.log.group import GroupLog
    from flockmq.log.store import Store
    from flockmq.testing.simulation.disk import SimulatedDisk

NAMED: Final = Retention(names=True)
BLOCK: Final = 512


def exactly(name: bytes) -> NameTest:
    return NameTest(name, name, None)


def beginning(prefix: bytes) -> NameTest:
    return NameTest(prefix + b"#", prefix, lambda name: name.startswith(prefix))


def never(name: bytes) -> bool:
    return False


def passed(log: GroupLog, *tests: NameTest) -> list[range]:
    """What a reader with these tests reads, from the beginning to the end."""
    found: list[range] = []
    offset = log.first_offset
    while offset < log.end_offset:
        answer = log.find_names(offset, log.end_offset, list(tests))
        assert answer.low >= offset
        assert answer.high > offset, "there is progress"
        if answer.high > answer.low:
            found.append(range(answer.low, answer.high))
        offset = answer.high
    return found


def reads(log: GroupLog, *tests: NameTest) -> int:
    """Records that such a reader reads."""
    return sum(len(one) for one in passed(log, *tests))


class Setup:
    """A log of 60 batches, one record each: entry 30 is named `b`, all others `a`."""

    def __init__(self) -> None:
        self.disk: SimulatedDisk = new_disk()
        self.store: Store = opened(self.disk)
        self.log = self.store.create(1)
        self.log.roll_for(NAMED)
        for number in range(1, 61):
            append(self.log, batch_of(bytes(100), topic=b"b" if number == 30 else b"a"))
            if number % 20 == 0:
                settle(self.store, self.disk)

    def checkpoint(self) -> None:
        settle(self.store, self.disk, checkpoint=True)

    def restart(self) -> None:
        """As a new process finds it."""
        self.store = opened(self.disk)
        self.log = self.store.groups[1]
        self.log.roll_for(NAMED)

    def names_files(self) -> list[str]:
        folder = self.log.folder
        return [f"{folder}/{name}" for name in self.disk.names(folder) if name.endswith(".names")]

    def is_right(self) -> bool:
        """Whether a reader finds the record of `b`, in little, and nothing that is not there."""
        found = passed(self.log, exactly(b"b"))
        return len(found) == 1 and 29 in found[0] and len(found[0]) < 5 and not passed(self.log, exactly(b"c"))


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_only_blocks_with_a_wanted_name_are_read(setup: Setup) -> None:
    assert len(setup.log.segments) > 3
    assert setup.is_right()
    assert reads(setup.log, exactly(b"a")) == 60
    assert reads(setup.log, exactly(b"c"), exactly(b"b")) < 5
    assert reads(setup.log, beginning(b"")) == 60
    assert reads(setup.log, beginning(b"b")) < 5
    assert not passed(setup.log)


def test_a_log_that_keeps_no_names_is_read_whole() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    fill(log, 30)
    settle(store, disk, checkpoint=True)
    assert reads(log, exactly(b"none")) == 60
    assert not [name for name in disk.names(log.folder) if name.endswith(".names")]


def test_names_of_closed_segments_are_written_and_go_with_them(setup: Setup) -> None:
    setup.checkpoint()
    assert len(setup.names_files()) == len(setup.log.segments) - 1
    setup.log.compact_to(setup.log.segments[2].first_index - 1)
    setup.checkpoint()
    assert len(setup.names_files()) == len(setup.log.segments) - 1
    assert reads(setup.log, exactly(b"c")) == 0


def test_a_restart_reads_the_files_and_builds_what_has_none(setup: Setup) -> None:
    setup.checkpoint()
    setup.restart()
    assert all(segment.names is None for segment in setup.log.segments)
    assert setup.is_right()
    written = [segment.names is not None and segment.names.is_written for segment in setup.log.segments]
    assert written == [True] * (len(written) - 1) + [False]


def test_a_restart_before_a_checkpoint(setup: Setup) -> None:
    settle(setup.store, setup.disk)
    setup.restart()
    assert setup.is_right()
    setup.checkpoint()
    assert len(setup.names_files()) == len(setup.log.segments) - 1


@pytest.mark.parametrize("how", ["missing", "torn", "flipped", "longer", "empty", "another"])
def test_a_file_that_is_not_sound_is_built_anew(setup: Setup, how: str) -> None:
    setup.checkpoint()
    files = setup.names_files()
    for path in files:
        data = setup.disk.read(path, 0, setup.disk.size(path))
        setup.disk.remove(path)
        if how == "torn":
            setup.disk.write(path, 0, data[: len(data) // 2])
        elif how == "flipped":
            setup.disk.write(path, 0, data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        elif how == "longer":
            setup.disk.write(path, 0, data + b"\0")
        elif how == "empty":
            setup.disk.write(path, 0, b"")
        elif how == "another":
            other = files[0] if path != files[0] else files[1]
            size = setup.disk.size(other)
            setup.disk.write(path, 0, setup.disk.read(other, 0, size))
    setup.restart()
    assert setup.is_right()
    setup.checkpoint()
    for path in files:
        found = decode_names(setup.disk.read(path, 0, setup.disk.size(path)))
        assert found is not None
        assert set(found.blocks) <= {b"a", b"b"}


def test_every_byte_that_goes_bad_is_noticed() -> None:
    names = SegmentNames(1, 0, BLOCK)
    names.add(BatchView(append(opened(new_disk()).create(1), batch_of(b"1", topic=b"a"))[0]))
    data = names.encode()
    assert decode_names(data) is not None
    for at in range(len(data)):
        assert decode_names(data[:at]) is None
        assert decode_names(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]) is None


def test_a_log_that_was_cut_does_not_take_the_names_from_before(setup: Setup) -> None:
    """A closed segment becomes the last one again, gets other entries, and its old names are still in the file."""
    setup.checkpoint()
    segment = setup.log.segments[1]
    index = segment.first_index + 3
    end = segment.next_index
    setup.log.truncate_from(index)
    while setup.log.last_index() < end + 5:
        append(setup.log, batch_of(bytes(100), topic=b"new"), term=2)
    assert reads(setup.log, exactly(b"b")) == 0
    new = setup.log.end_offset - (index - 1)
    assert reads(setup.log, exactly(b"new")) in range(new, new + 5)
    settle(setup.store, setup.disk)
    setup.restart()
    found = passed(setup.log, exactly(b"new"))
    assert {offset for one in found for offset in one} >= set(range(index - 1, setup.log.end_offset))
    setup.checkpoint()
    setup.restart()
    assert reads(setup.log, exactly(b"new")) in range(new, new + 5)


def test_too_many_names_may_be_anything() -> None:
    names = SegmentNames(1, 0, BLOCK, 2_000)
    log = opened(new_disk()).create(1)
    for number in range(60):
        names.add(BatchView(append(log, batch_of(b"", topic=b"%d" % number))[0]))
    assert names.is_full
    covered = names.next_offset
    assert 5 < covered < 20
    assert names.cost < 2_200
    again = decode_names(names.encode())
    assert again is not None
    for one in (names, again):
        assert one.find(0, 60, [exactly(b"none")])[:2] == (covered, 60)
        assert one.find(covered + 3, 60, [exactly(b"none")])[:2] == (covered + 3, 60)
        assert one.find(0, 60, [exactly(b"3")])[0] <= 3
        assert one.find(0, 60, [exactly(b"50")])[:2] == (covered, 60)


def test_a_filter_that_many_names_may_match_counts_as_matching() -> None:
    builder = BatchBuilder()
    for number in range(SCANNED_MAX + 2_000):
        builder.add(b"x/%d" % (number % 2) + b"/%d" % number, b"c", 1, 1, b"")
    names = SegmentNames(1, 0, BLOCK)
    names.add(BatchView(stamp(builder.build(), 1, 1, 0)))
    end = names.next_offset
    assert names.find(0, end, [NameTest(b"x/+/y", b"x/", never)])[:2] == (0, end)
    assert names.find(0, end, [NameTest(b"x/1/+", b"x/1", never)])[:2] == (end, end)


def test_control_batches_and_large_ones_take_blocks_as_well() -> None:
    store = opened(new_disk())
    log = store.create(1)
    log.roll_for(NAMED)
    append(log, control_batch(NOOP, bytes(700)), batch_of(bytes(1_300), topic=b"a"), control_batch(NOOP))
    append(log, batch_of(b"", topic=b"b"), batch_of(b"", topic=b"a"))
    assert log.find_names(0, 3, [exactly(b"b")])[:2] in ((1, 3), (1, 2))
    assert log.find_names(0, 3, [exactly(b"a")]).low == 0
    assert log.find_names(1, 2, [exactly(b"a")]).low in (1, 2)


def test_what_is_not_there_is_not_passed(setup: Setup) -> None:
    log = setup.log
    log.compact_to(log.segments[1].first_index - 1)
    assert log.find_names(0, log.end_offset, [])[:2] == (0, 60)
    assert log.find_names(60, 60, [])[:2] == (60, 60)
    assert log.find_names(50, 61, [])[:2] == (50, 61)
    assert log.find_names(59, 60, []) == Found(60, 60, 0)


def test_names_in_memory_are_bounded(setup: Setup) -> None:
    setup.checkpoint()
    setup.restart()
    setup.store.staging.names_cost_max = 300
    assert setup.is_right()
    loaded = [segment for segment in setup.log.segments if segment.names is not None]
    assert len(loaded) < len(setup.log.segments)


def test_entries_that_cannot_be_read_may_be_anything(setup: Setup) -> None:
    setup.checkpoint()
    for path in setup.names_files():
        setup.disk.remove(path)
    setup.restart()
    segment = setup.log.segments[1]
    setup.disk.write(setup.log.path(segment.file_name()), 100, b"\xff" * 8)
    found = passed(setup.log, exactly(b"c"))
    assert found == [range(segment.base_offset, setup.log.segments[2].base_offset)]


def test_runs_go_over_large_batches_and_short_gaps() -> None:
    store = opened(new_disk(), StoreSettings(journal_bytes=1 << 20, commit_bytes=1 << 18, index_bytes=BLOCK))
    log = store.create(1)
    log.roll_for(NAMED)
    for _ in range(5):
        append(log, batch_of(bytes(5 * BLOCK), topic=b"a"))
    assert passed(log, exactly(b"a")) == [range(5)]
    assert log.find_names(0, 5, [exactly(b"a")]).size == log.size()
    append(log, batch_of(bytes(BLOCK), topic=b"b"), batch_of(bytes(BLOCK), topic=b"a"))
    assert passed(log, exactly(b"a")) == [range(7)], "one block more is read at once"
    append(log, *[batch_of(bytes(BLOCK), topic=b"b")] * 3, batch_of(b"", topic=b"a"))
    assert passed(log, exactly(b"a")) == [range(7), range(10, 11)]
