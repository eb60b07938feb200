from __future__ import annotations

import pytest

from flockmq.log.segment import Segment
from flockmq.log.state import LogState


def log_with_segments(*firsts: int) -> LogState:
    log = LogState(1)
    for number, first in enumerate(firsts):
        segment = Segment(number + 1, first, first)
        segment.next_index = firsts[number + 1] if number + 1 < len(firsts) else 100
        log.segments.append(segment)
    log.first, log.last = firsts[0], 99
    return log


@pytest.mark.parametrize(("index", "number"), [(5, 1), (9, 1), (10, 2), (11, 2), (49, 2), (50, 3), (99, 3)])
def test_the_segment_of_an_entry(index: int, number: int) -> None:
    assert log_with_segments(5, 10, 50).segment_of(index).number == number


def test_terms_are_known_from_the_start_of_the_log_on() -> None:
    log = log_with_segments(5, 10, 50)
    log.term_before = 3
    log.term_starts, log.terms = [5, 20, 60], [3, 4, 9]
    expected = {3: -1, 4: 3, 5: 3, 19: 3, 20: 4, 59: 4, 60: 9, 99: 9, 100: -1}
    assert {index: log.term_at(index) for index in expected} == expected


def test_a_start_within_a_term_keeps_the_term() -> None:
    log = log_with_segments(5, 10, 50)
    log.term_starts, log.terms = [5, 20, 60], [3, 4, 9]
    gone = log.apply_start(50, 50, 4)
    assert [log.term_at(index) for index in (48, 49, 50, 59, 60)] == [-1, 4, 4, 4, 9]
    assert gone == [log.path(name) for name in names(1, 5) + names(2, 10)]


def names(number: int, offset: int) -> list[str]:
    return [f"{offset:020d}-{number:x}.{kind}" for kind in ("log", "index", "names")]


def test_a_cut_forgets_later_terms_and_files() -> None:
    log = log_with_segments(5, 10, 50)
    log.term_starts, log.terms = [5, 20, 60], [3, 4, 9]
    assert log.apply_cut(2, 0, 30, 30) == [log.path(name) for name in names(3, 50)]
    assert (log.terms, log.last, log.end_offset) == ([3, 4], 30, 30)
    assert log.apply_cut(0, 0, 4, 5) == [log.path(name) for name in names(2, 10) + names(1, 5)]
    assert (log.terms, log.segments) == ([], [])
