"""What commands print: a table for people, JSON for programs, one sentence when something fails.

Text that clients chose is escaped before it reaches a terminal. ``rich`` is loaded only when a table is drawn.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from flockmq.server.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import msgspec

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
LimitOption = Annotated[int, typer.Option("--limit", min=0, help="Most entries to print; 0 prints all.")]
LIMIT_DEFAULT: Final = 1_000
NOTHING: Final = "-"
UNKNOWN: Final = "?"
"""In place of a figure that nobody could tell."""
_PIPE_WIDTH: Final = 10_000
"""Tables that don't go to a terminal are as wide as they need to be, so that nothing is cut for a script."""


def print_json(value: object) -> None:
    """Print a value (also an msgspec structure, or a list of them) as JSON."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=not sys.stdout.isatty()))


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "__struct_fields__"):
        import msgspec

        return msgspec.to_builtins(value)
    return value


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below their column names; numbers to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    body = [[_cell(value) for value in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        cells = {row[index] for row in body} - {NOTHING, UNKNOWN}
        numeric = bool(cells) and all(cell.replace(",", "").isdigit() for cell in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=_PIPE_WIDTH, highlight=False)
    with console.capture() as capture:
        console.print(table)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print one thing as lines of name and value."""
    cells = [(name, _cell(value)) for name, value in fields]
    width = max((len(name) for name, _ in cells), default=0)
    for name, value in cells:
        print(f"{name:<{width}}  {value}".rstrip())


def print_listing(
    items: Iterable[msgspec.Struct], columns: dict[str, str], *, as_json: bool, limit: int, nothing: str
) -> None:
    """Print a listing, up to the limit; ``columns`` maps headings to attributes."""
    shown, more = _take(items, limit)
    if as_json:
        print_json(shown)
    elif shown:
        print_table(list(columns), [[getattr(item, name) for name in columns.values()] for item in shown])
    else:
        print(nothing)
    if more:
        print(f"There are more than {limit}; print all with --limit 0.", file=sys.stderr)


def _take(items: Iterable[Any], limit: int) -> tuple[list[Any], bool]:
    shown: list[Any] = []
    for item in items:
        if limit and len(shown) == limit:
            return shown, True
        shown.append(item)
    return shown, False


def _cell(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return printable(str(value))
