from __future__ import annotations

import pytest

from flockmq.config.units import parse_number, unit_of


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("packet_bytes_max", "bytes"),
        ("connect_timeout_ms", "ms"),
        ("session_expiry_s_max", "s"),
        ("keep_alive_s_max", "s"),
        ("messages_per_s_max", ""),
        ("topic_levels_max", ""),
        ("sessions_max", ""),
        ("max", ""),
    ],
)
def test_a_name_tells_its_unit(name: str, unit: str) -> None:
    assert unit_of(name) == unit


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("0", "", 0),
        ("1_000", "", 1000),
        (" 17 ", "bytes", 17),
        ("1MB", "bytes", 1_000_000),
        ("1MiB", "bytes", 1_048_576),
        ("1.5 kib", "bytes", 1536),
        ("2gb", "bytes", 2_000_000_000),
        ("12B", "bytes", 12),
        ("250", "ms", 250),
        ("250ms", "ms", 250),
        ("30s", "ms", 30_000),
        ("0.5s", "ms", 500),
        ("1h30m", "s", 5400),
        ("7d", "s", 604_800),
        ("1w", "s", 604_800),
        ("1m 5s", "s", 65),
        ("2000ms", "s", 2),
    ],
)
def test_what_people_write(text: str, unit: str, number: int) -> None:
    assert parse_number(text, unit) == number


@pytest.mark.parametrize(
    ("text", "unit", "sentence"),
    [
        ("ten", "", "a whole number"),
        ("10s", "", "a whole number"),
        ("-1", "", "a whole number"),
        ("", "bytes", "a size like"),
        ("1PB", "bytes", "a size like"),
        ("30s", "bytes", "a size like"),
        ("0.5b", "bytes", "a whole number of bytes"),
        ("1MB", "s", "a duration like"),
        ("1h 30", "s", "a duration like"),
        ("250ms", "s", "a whole number of seconds"),
        ("٣", "", "a whole number"),
    ],
)
def test_what_is_refused(text: str, unit: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_number(text, unit)
