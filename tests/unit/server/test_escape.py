from __future__ import annotations

import pytest

from flockmq.server.escape import VALUE_CHARACTERS_MAX, as_text, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain/topic äöü 🐦", "plain/topic äöü 🐦"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x7f\x9b\x00", "\\x7f\\x9b\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\U000e0001", "\\U000e0001"),
        ("back\\slash", "back\\\\slash"),
    ],
)
def test_nothing_unprintable_gets_through(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_bytes_are_read_as_utf8_where_they_are() -> None:
    assert as_text("ä/b".encode()) == "ä/b"
    assert as_text(b"\xff\xfe") == "\\xff\\xfe"


def test_long_values_are_cut_and_say_so() -> None:
    text = as_text("x" * 70_000)
    assert text.startswith("x" * VALUE_CHARACTERS_MAX)
    assert text.endswith("...(70000 characters)")
    assert len(text) < VALUE_CHARACTERS_MAX + 30
