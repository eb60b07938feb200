from __future__ import annotations

import pytest

from flockmq.raft.log_view import RaftLog
from raft_cluster import MemoryLog, entry


def stable(*terms: int) -> MemoryLog:
    log = MemoryLog()
    log.items = [entry(index, term).data for index, term in enumerate(terms, start=1)]
    return log


def tailed(*terms: int, before: tuple[int, ...] = (1, 1)) -> RaftLog:
    """Entries of ``before`` on disk, the others in memory."""
    log = RaftLog(stable(*before), 1 << 20)
    for index, term in enumerate(terms, start=len(before) + 1):
        log.append(entry(index, term))
    return log


def test_disk_and_memory_are_one_log() -> None:
    log = tailed(2, 3)
    assert [log.term_at(index) for index in range(6)] == [0, 1, 1, 2, 3, -1]
    assert [found.index for found in log.read(1, 5, 1 << 20)] == [1, 2, 3, 4]
    assert [found.index for found in log.read(2, 4, 1 << 20)] == [2, 3]
    assert [found.index for found in log.read(1, 5, 1)] == [1]
    assert [found.index for found in log.read(3, 5, 1)] == [3]
    assert (log.first_index(), log.last_index, log.last_term, log.next_offset) == (1, 4, 3, 4)
    assert [log.offset_at(index) for index in range(1, 6)] == [0, 1, 2, 3, 4]


def test_offsets_are_known_where_one_entry_is_damaged() -> None:
    disk = stable(1, 1, 1, 1)
    disk.compact(1)
    log = RaftLog(disk, 1 << 20)
    for index in (2, 3, 4):
        disk.spoiled = {index}
        assert [log.offset_at(one) for one in (2, 3, 4, 5)] == [1, 2, 3, 4]


def test_entries_follow_on_each_other() -> None:
    with pytest.raises(AssertionError, match="one behind the other"):
        tailed().append(entry(5, 1))


def test_what_is_not_written_is_given_out_once() -> None:
    log = tailed(2, 2, 2)
    size = len(entry(3, 2).data)
    assert [found.index for found in log.take_unwritten(2 * size)] == [3, 4]
    assert [found.index for found in log.take_unwritten(1)] == [5]
    assert log.take_unwritten(1) == []
    assert (log.handed, log.durable) == (5, 2)


def test_truncation_of_what_the_disk_never_saw_is_no_matter_for_it() -> None:
    log = tailed(2, 2)
    log.truncate_from(4)
    assert (log.last_index, log.last_term, log.next_offset) == (3, 2, 3)
    assert (log.take_truncation(), log.rewritten) == (0, False)


@pytest.mark.parametrize("index", [2, 3, 4])
def test_truncation_of_what_was_given_out_must_reach_the_disk(index: int) -> None:
    log = tailed(2, 2)
    log.take_unwritten(1 << 20)
    log.truncate_from(index)
    assert (log.last_index, log.handed, log.durable) == (index - 1, index - 1, min(2, index - 1))
    log.append(entry(index, 3))
    log.truncate_from(index)
    log.append(entry(index, 4))
    assert (log.take_truncation(), log.rewritten) == (index, True)
    assert [found.term for found in log.take_unwritten(1 << 20)] == [4]
    assert log.take_truncation() == 0


def test_truncation_beyond_the_end_is_nothing() -> None:
    log = tailed(2)
    log.truncate_from(9)
    assert log.last_index == 3


@pytest.mark.parametrize(
    ("index", "term", "low", "expected"),
    [(9, 9, 0, 7), (7, 2, 0, 4), (7, 1, 0, 2), (7, 0, 0, 0), (3, 9, 0, 3), (7, 0, 2, 2), (0, 5, 0, 0)],
)
def test_where_two_logs_may_agree(index: int, term: int, low: int, expected: int) -> None:
    log = tailed(2, 2, 4, 4, 4)
    assert log.agreement(index, term, low) == expected


def test_the_tail_keeps_what_is_not_durable_and_a_little_more() -> None:
    log = tailed(2, 2, 2, 2)
    size = len(entry(3, 2).data)
    log.stable = stable(1, 1, 2, 2, 2, 2)
    log.take_unwritten(1 << 20)
    log.tail_bytes_max = size
    log.trim()
    assert log.tail_first == 3, "nothing of it is durable"
    log.became_durable(5)
    log.trim()
    assert (log.tail_first, len(log.tail), log.tail_bytes) == (6, 1, size)
    assert [found.index for found in log.read(3, 7, 1 << 20)] == [3, 4, 5, 6]


def test_what_memory_has_can_be_sent_although_the_disk_forgot_it() -> None:
    log = tailed(2, 3)
    log.stable = MemoryLog(4, 3, 4)
    assert (log.first_index(), log.term_at(2), log.term_at(1)) == (3, 1, -1)
    log.truncate_from(3)
    assert (log.last_term, log.term_at(2)) == (1, 1)


def test_a_snapshot_hides_what_the_disk_still_has() -> None:
    log = tailed(2, 2)
    log.restart_at(10, 4, 77)
    assert (log.first_index(), log.last_index, log.last_term, log.next_offset) == (11, 10, 4, 77)
    assert [log.term_at(index) for index in (2, 9, 10, 11)] == [-1, -1, 4, -1]
    log.append(entry(11, 4))
    assert log.term_at(10) == 4
    assert (log.durable, log.rewritten) == (0, True)
    log.stable = MemoryLog(10, 4, 77)
    log.became_durable(10)
    assert log.first_index() == 11
    assert log.term_at(10) == 4
