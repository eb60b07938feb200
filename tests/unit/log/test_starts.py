"""Where people want to begin in a log."""

from __future__ import annotations

import pytest

from flockmq.log.starts import EARLIEST, LATEST, OFFSET, TIME, Start, parse_start


@pytest.mark.parametrize(
    ("text", "what", "value"),
    [
        ("earliest", EARLIEST, 0),
        ("latest", LATEST, 0),
        ("offset:0", OFFSET, 0),
        ("offset:123", OFFSET, 123),
        ("time:1970-01-01T00:00:01Z", TIME, 1_000),
        ("time:1970-01-01T00:00:01.5", TIME, 1_500),
        ("time:1970-01-01T01:00:01+01:00", TIME, 1_000),
        ("time:1970-01-02", TIME, 86_400_000),
        ("time:1772366400000", TIME, 1_772_366_400_000),
    ],
)
def test_a_start_is_read(text: str, what: int, value: int) -> None:
    start = parse_start(text)
    assert (start.what, start.value, start.by_shard) == (what, value, None)


def test_offsets_by_shard() -> None:
    start = parse_start("offset:0=5,2=7")
    found = [start.of_shard(shard) for shard in range(3)]
    assert [(one.what, one.value) for one in found] == [(OFFSET, 5), (LATEST, 0), (OFFSET, 7)]
    moment = Start(TIME, 9)
    assert moment.of_shard(1) is moment


NO_STARTS = """first earliest:1 latest: offset offset: offset:-1 offset:x offset:1= offset:1=2, time: time:now
offset:0=1,0=2 offset:99999999999999999999"""


@pytest.mark.parametrize("text", ["", *NO_STARTS.split()])
def test_what_is_no_start_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"use|write|twice"):
        parse_start(text)


@pytest.mark.parametrize("digits", ["0", "2026", "202603", "20260301", "1772366400"])
def test_few_digits_are_a_year_a_date_or_seconds_and_no_milliseconds(digits: str) -> None:
    with pytest.raises(ValueError, match="too few digits for milliseconds since 1970; write a time like"):
        parse_start(f"time:{digits}")


@pytest.mark.parametrize(
    ("text", "shards", "hint"),
    [
        ("earliest", 3, ""),
        ("time:1970-01-02", 3, ""),
        ("offset:5", 1, ""),
        ("offset:5", 3, "use offset:SHARD=N"),
        ("offset:0=5,2=1", 3, ""),
        ("offset:3=5", 3, "3 shards, counted from 0"),
    ],
)
def test_what_an_offset_means_depends_on_the_shards(text: str, shards: int, hint: str) -> None:
    problem = parse_start(text).refusal(shards)
    assert hint in problem if hint else not problem


def test_where_that_is_in_a_log() -> None:
    for text, offset in (("earliest", 3), ("latest", 9), ("offset:5", 5), ("offset:1", 3), ("offset:10", 9)):
        assert parse_start(text).offset_in(0, 3, 9) == offset
    assert parse_start("offset:1=5").offset_in(0, 3, 9) == 9
