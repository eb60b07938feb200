from __future__ import annotations

import pytest

from flockmq.admin.moments import Moments, rfc3339


@pytest.mark.parametrize(
    ("wall_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_772_366_400_123, "2026-03-01T12:00:00.123Z"),
        (-5, "1970-01-01T00:00:00.000Z"),
        (10**18, "9999-12-31T23:59:59.000Z"),
    ],
)
def test_dates(wall_ms: int, text: str) -> None:
    assert rfc3339(wall_ms) == text


class Clocks:
    now = 5_000
    wall = 1_772_366_400_000

    def moments(self) -> Moments:
        return Moments(lambda: self.now, lambda: self.wall)


def test_a_moment_keeps_its_date_while_the_clocks_tick_a_little_apart() -> None:
    clocks = Clocks()
    moments = clocks.moments()
    assert moments.date(4_000) == "2026-03-01T11:59:59.000Z"
    clocks.now, clocks.wall = 6_000, clocks.wall + 1_001
    assert moments.date(4_000) == "2026-03-01T11:59:59.000Z"


def test_dates_follow_when_somebody_sets_the_calendar() -> None:
    clocks = Clocks()
    moments = clocks.moments()
    clocks.wall += 3_600_000
    assert moments.date(4_000) == "2026-03-01T12:59:59.000Z"


def test_zero_is_no_moment() -> None:
    moments = Clocks().moments()
    assert moments.date_or_none(0) is None
    assert moments.date_or_none(5_000) == "2026-03-01T12:00:00.000Z"
