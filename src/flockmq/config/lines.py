"""Finds the line of a TOML file on which a key is set, for error messages (``tomllib`` doesn't tell).

It only has to follow files that ``tomllib`` already accepted: table headers, then the keys below them. Keys within
inline tables are found at the line of the outer key; what it can't find has no line, and the message goes without.
"""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = re.compile(r"\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?")
_KEY: Final = re.compile(
    r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=(.*)"
)
_PART: Final = re.compile(r"[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Line number of each key and table header, by path."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    within: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if within is not None:  # inside a multi-line string: nothing here is a key
            within = None if within in line else within
            continue
        if header := _HEADER.fullmatch(line):
            table = _parts(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault((*table, *_parts(key[1])), number)
            within = _opens_string(key[2])
    return lines


def line_of(lines: dict[tuple[str, ...], int], path: tuple[str, ...]) -> int | None:
    """Line of a path, or of the nearest table around it."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _opens_string(value: str) -> str | None:
    for quotes in ('"""', "'''"):
        if value.count(quotes) == 1:
            return quotes
    return None
