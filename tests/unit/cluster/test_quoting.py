"""Text that stays on its line."""

from __future__ import annotations

import tomllib

import pytest

from flockmq.cluster.quoting import quoted


@pytest.mark.parametrize(
    "text", ["", "a/+", 'say "hi"', "back\\slash", "a\nb", "\x1b[2J", "\u202eevil", "grün", "\x00\x7f"]
)
def test_what_is_quoted_is_one_line_and_reads_back(text: str) -> None:
    written = quoted(text)
    assert written.isprintable()
    assert tomllib.loads(f"text = {written}")["text"] == text
