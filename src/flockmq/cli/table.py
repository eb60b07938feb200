"""Tables that fit a terminal: what to do when the columns need more room than there is.

```
 fits                --> one table
 cells hold spaces   --> those wrap at spaces, as few as needed
 still too wide      --> columns that the caller can spare are left out, least wanted first
                      or, without such columns: several tables below each other, each begins with the key column
 one cell too wide   --> it is folded
```
Pure: width comes in, lines come out. A width of None is endless: nothing is wrapped or cut for a script.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

GAP: Final = "  "
FOLD_MIN: Final = 12
"""A cell without spaces is folded to no less than this."""
_NUMBER: Final = re.compile(r"[+-]?[\d,]+(\.\d+)?")
_NOT_NUMBERS: Final = frozenset({"-", "?"})


class Layout(NamedTuple):
    """A table as lines, which of these are headings, and the names of columns that had no room."""

    lines: list[str]
    headings: set[int]
    left_out: list[str]


class Column(NamedTuple):
    """A heading and the cells below it."""

    name: str
    cells: list[str]

    def room(self) -> int:
        """Width without any wrapping."""
        return max(text_width(text) for text in (self.name, *self.cells))

    def least(self) -> int:
        """Width below which words would be broken."""
        return max(text_width(word) for text in (self.name, *self.cells) for word in text.split(" "))

    def is_numeric(self) -> bool:
        """Whether all cells are numbers, which stand to the right."""
        cells = set(self.cells) - _NOT_NUMBERS
        return bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)


def lay_out(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None, spare: Sequence[str] | None = None
) -> Layout:
    """The lines of a table; see the module for what happens when it is wider than the terminal."""
    columns = [Column(name, [row[index] for row in rows]) for index, name in enumerate(names)]
    if width is None or fits(columns, width):
        return _drawn([columns], width, [])
    if spare is None:
        return _drawn(_split(columns, width), width, [])
    left_out: list[str] = []
    for name in spare:
        columns = [column for column in columns if column.name != name]
        left_out.append(name)
        if fits(columns, width):
            break
    return _drawn([columns], width, [name for name in names if name in left_out])


def _drawn(parts: list[list[Column]], width: int | None, left_out: list[str]) -> Layout:
    lines: list[str] = []
    headings: set[int] = set()
    for columns in parts:
        if lines:
            lines.append("")
        widths = _widths(columns, width)
        right = [column.is_numeric() for column in columns]
        heading = list(_lines([column.name for column in columns], widths, right))
        headings.update(range(len(lines), len(lines) + len(heading)))
        lines += heading
        for row in zip(*(column.cells for column in columns), strict=True):
            lines += _lines(row, widths, right)
    return Layout(lines, headings, left_out)


def fits(columns: Sequence[Column], width: int) -> bool:
    """Whether these columns have room beside each other without a broken word."""
    return sum(column.least() for column in columns) + len(GAP) * (len(columns) - 1) <= width


def text_width(text: str) -> int:
    """Columns of a terminal that this text takes: East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def _split(columns: list[Column], width: int) -> list[list[Column]]:
    """Parts that fit, each with the first column, so that a reader knows what its rows are about."""
    key = columns[0]
    parts: list[list[Column]] = [[key]]
    for column in columns[1:]:
        if len(parts[-1]) > 1 and not fits([*parts[-1], column], width):
            parts.append([key])
        parts[-1].append(column)
    return parts


def _widths(columns: Sequence[Column], width: int | None) -> list[int]:
    """How wide each column is: as it likes, or as little less as needed."""
    wanted = [column.room() for column in columns]
    if width is None:
        return wanted
    over = sum(wanted) + len(GAP) * (len(columns) - 1) - width
    for least in (
        [column.least() for column in columns],  # wrap first
        [min(FOLD_MIN, column.least()) for column in columns],  # then fold
    ):
        while over > 0:
            slack = [want - low for want, low in zip(wanted, least, strict=True)]
            widest = max(range(len(slack)), key=lambda index: (slack[index] > 0, wanted[index]))
            if slack[widest] <= 0:
                break
            wanted[widest] -= 1
            over -= 1
    return wanted


def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    wrapped = [list(wrap(cell, width)) for cell, width in zip(row, widths, strict=True)]
    for index in range(max(len(cell) for cell in wrapped)):
        pieces = [cell[index] if index < len(cell) else "" for cell in wrapped]
        yield GAP.join(map(_pad, pieces, widths, right)).rstrip()


def _pad(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - text_width(text))
    return blanks + text if right else text + blanks


def wrap(text: str, width: int) -> Iterator[str]:
    """Lines of at most this width: broken at spaces, within a word only if the word alone is wider."""
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if text_width(joined) <= width:
            line = joined
            continue
        if line:
            yield line
        while text_width(word) > width:
            cut = _cut(word, width)
            yield word[:cut]
            word = word[cut:]  # noqa: PLW2901
        line = word
    yield line


def _cut(word: str, width: int) -> int:
    """How many characters of a word have room; at least one."""
    taken = 0
    for index, character in enumerate(word):
        taken += text_width(character)
        if taken > width and index:
            return index
    return len(word)
