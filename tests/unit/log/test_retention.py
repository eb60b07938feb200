from __future__ import annotations

import pytest

from flockmq.log.group import GroupLog
from flockmq.log.retention import expired
from flockmq.log.settings import Retention
from log_cases import append, batch_of, commit, fill, new_disk, opened, settle


@pytest.fixture
def log() -> GroupLog:
    """Segments of six entries, of two records each; entry n is from second n."""
    log = opened(new_disk()).create(1)
    fill(log, 30, start_ms=0, size=140)
    assert [segment.first_index for segment in log.segments] == [1, 7, 13, 19, 25]
    return log


def go(log: GroupLog, rule: Retention, now_ms: int = 0, held: int | None = None, applied: int = 30) -> tuple[int, int]:
    found = expired(log, rule, now_ms, held, applied)
    return found.index, found.overrun


def test_without_limits_everything_stays(log: GroupLog) -> None:
    assert go(log, Retention(), now_ms=10**15) == (0, 0)


def test_by_age_whole_segments_go_once_their_newest_record_is_too_old(log: GroupLog) -> None:
    rule = Retention(age_ms=10_000)
    assert go(log, rule, now_ms=16_000) == (0, 0)
    assert go(log, rule, now_ms=16_001) == (6, 0)
    assert go(log, rule, now_ms=29_000) == (18, 0)
    assert go(log, rule, now_ms=10**9) == (30, 0), "an idle log may become empty"


def test_by_size_the_oldest_go_while_the_rest_is_still_as_much_as_was_asked_for(log: GroupLog) -> None:
    sizes = [segment.length for segment in log.segments]
    assert go(log, Retention(bytes=sum(sizes[1:]) + 1)) == (0, 0)
    assert go(log, Retention(bytes=sum(sizes[1:]))) == (6, 0)
    assert go(log, Retention(bytes=sizes[4] + 1)) == (18, 0)
    assert go(log, Retention(bytes=sizes[4])) == (24, 0)


def test_by_size_the_segment_that_is_written_to_never_goes(log: GroupLog) -> None:
    assert go(log, Retention(bytes=1)) == (24, 0)
    assert go(log, Retention(bytes=1, bytes_bound=1), held=0) == (24, 48)


def test_what_a_cursor_needs_stays(log: GroupLog) -> None:
    rule = Retention(age_ms=1)
    assert go(log, rule, 10**9, held=0) == (0, 0)
    assert go(log, rule, 10**9, held=11) == (0, 0), "offsets 0 to 11 are in the first segment"
    assert go(log, rule, 10**9, held=12) == (6, 0)
    assert go(log, rule, 10**9, held=60) == (30, 0)


def test_within_a_bound_of_the_disk(log: GroupLog) -> None:
    sizes = [segment.length for segment in log.segments]
    rule = Retention(bytes=1, bytes_bound=sum(sizes[2:]))
    assert go(log, Retention(bytes=1, bytes_bound=sum(sizes[1:]) + 1), held=0) == (0, 0), "less than that would be left"
    assert go(log, rule, held=0) == (12, 24), "the cursor lost everything before offset 24"
    assert go(log, rule, held=12) == (12, 24)
    assert go(log, rule, held=24) == (12, 0), "it needed none of what went"
    assert go(log, rule, held=60) == (24, 0)


def test_what_a_cursor_needs_goes_once_it_is_older_than_the_bound_of_age(log: GroupLog) -> None:
    rule = Retention(age_ms=1, age_bound_ms=10_000)
    assert go(log, rule, 16_000, held=0) == (0, 0)
    assert go(log, rule, 16_001, held=0) == (6, 12)
    assert go(log, rule, 16_001, held=24) == (12, 0), "what is not held goes by age alone"


def test_the_bound_is_for_what_is_held_alone(log: GroupLog) -> None:
    assert go(log, Retention(age_ms=10**12, bytes_bound=1), 10**9) == (0, 0), "it is not too old"
    assert go(log, Retention(bytes_bound=1), 10**9, held=0) == (0, 0), "everything is kept for ever"


def test_nothing_goes_that_the_state_machine_still_needs(log: GroupLog) -> None:
    rule = Retention(age_ms=1, bytes=1, bytes_bound=1)
    assert go(log, rule, 10**9, applied=5) == (0, 0)
    assert go(log, rule, 10**9, applied=6) == (6, 0)
    assert go(log, rule, 10**9, applied=17) == (12, 0)


def test_it_tells_how_much_goes(log: GroupLog) -> None:
    assert expired(log, Retention(age_ms=1), 10**9, None, 12).bytes == sum(one.length for one in log.segments[:2])


def test_carried_out_it_frees_the_disk_and_the_log_goes_on() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    fill(log, 30, start_ms=0, size=140)
    settle(store, disk, checkpoint=True)
    files = [path for path in disk.names(log.folder) if path.endswith(".log")]
    assert len(files) == 5
    log.compact_to(expired(log, Retention(age_ms=10_000), 29_000, None, 30).index)
    commit(store, disk)
    assert len([path for path in disk.names(log.folder) if path.endswith(".log")]) == 5, "a manifest still names them"
    settle(store, disk)
    assert [path for path in disk.names(log.folder) if path.endswith(".log")] == files[3:]
    append(log, batch_of(b"more"))
    assert (log.first_index(), log.first_offset, log.last_index(), log.next_offset()) == (19, 36, 31, 61)
