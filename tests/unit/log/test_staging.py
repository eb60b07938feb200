from __future__ import annotations

from flockmq.log.journal import APPEND, CUT, Row
from flockmq.log.segment import Segment
from flockmq.log.staging import Staging
from log_cases import SMALL, new_disk


def test_a_change_between_appends_keeps_their_order() -> None:
    staging = Staging(new_disk(), SMALL)
    staging.stage(Row(APPEND, 1, 5))
    assert staging.appends[1].segment == 5
    staging.stage(Row(CUT, 2))
    assert 1 in staging.appends, "another group does not matter"
    staging.stage(Row(CUT, 1))
    assert 1 not in staging.appends


def test_indexes_of_closed_segments_leave_memory_one_by_one() -> None:
    staging = Staging(new_disk(), SMALL)
    segments = [Segment(number, 0, 1) for number in range(4)]
    for segment in segments:
        staging.loaded(segment)
    assert [segment.rows is None for segment in segments] == [True, True, False, False]


def test_an_index_that_only_memory_has_stays() -> None:
    staging = Staging(new_disk(), SMALL)
    segments = [Segment(number, 0, 1) for number in range(4)]
    segments[0].length = 100
    for segment in segments:
        staging.loaded(segment)
    assert segments[0].rows is not None
