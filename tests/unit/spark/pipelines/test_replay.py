from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.errors import FlockError
from flockmq.spark.pipelines.folders import LocalFolder
from flockmq.spark.pipelines.replay import SLICE_RECORDS, Clock, Plan, parse_speed, slice_ms_max
from flockmq.spark.pipelines.tape import clamped, moment_ms

NOW_MS = 1_772_366_400_000
"""2026-03-01T12:00:00Z"""


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW_MS),
        ("2h", NOW_MS - 7_200_000),
        ("2026-03-01T12:00:00Z", NOW_MS),
        ("2026-03-01T13:00:00+01:00", NOW_MS),
        ("2026-03-01", NOW_MS - 12 * 3_600_000),
        ("1772366400001", NOW_MS + 1),
    ],
)
def test_moments_as_people_write_them(text: str, moment: int) -> None:
    assert moment_ms("from", text, NOW_MS) == moment


def test_other_moments_are_refused() -> None:
    with pytest.raises(FlockError, match="--from can't be 'yesterday'"):
        moment_ms("from", "yesterday", NOW_MS)


def test_speeds() -> None:
    assert [parse_speed(text) for text in ("1.0", "10", "0.5x", "max")] == [1.0, 10.0, 0.5, 0.0]
    for text in ("0", "-1", "fast", "inf", "nan"):
        with pytest.raises(FlockError, match="or max"):
            parse_speed(text)


def test_the_tape_goes_as_fast_as_it_should() -> None:
    clock = Clock(10.0, 5_000, now_s=100.0)
    assert [clock.tape_ms(now_s, 60_000) for now_s in (100.0, 101.5, 200.0)] == [5_000, 20_000, 60_000]
    assert Clock(0.0, 5_000, now_s=100.0).tape_ms(100.0, 60_000) == 60_000


def test_slices_hold_a_bounded_number_of_records() -> None:
    assert slice_ms_max(60_000, 4 * SLICE_RECORDS) == 15_000
    assert slice_ms_max(60_000, 0) > 60_000
    assert slice_ms_max(10, 10**12) == 1
    assert slice_ms_max(86_400_000, None) == 86_400
    assert slice_ms_max(5_000, None) == 1_000


def test_marks_stay_between_others() -> None:
    assert clamped([5, 20, 7], [6, 0, 0], [10, 10, 10]) == [6, 10, 7]
    assert clamped(7, 0, 5) == 7


def test_a_plan_is_kept(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path / "plan"))
    assert Plan.load(folder) is None
    plan = Plan("replay-1", 0, 10, [1, 2], [5, 6], end=[3, 4], number=7, at_ms=3, next_ms=5, records=9)
    plan.save(folder)
    assert Plan.load(folder) == plan
