"""What commands print: a table for people, JSON for programs, one sentence when something fails.

Text that clients chose is escaped before it reaches a terminal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from flockmq.server.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import msgspec

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
LimitOption = Annotated[int, typer.Option("--limit", min=0, help="Most entries to print; 0 prints all.")]
NodeOption = Annotated[
    str | None, typer.Option("--node", metavar="NODE", help="Of this node only; else of the whole cluster.")
]
LIMIT_DEFAULT: Final = 1_000
NOTHING: Final = "-"
UNKNOWN: Final = "?"
"""In place of a figure that is not known."""
VALUE_WIDTH_MIN: Final = 20
"""Least room for a value beside its name."""


def print_json(value: object) -> None:
    """Print a value (also an msgspec structure, or a list of them) as JSON."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=not sys.stdout.isatty()))


def print_made(value: object, sentence: str, *, as_json: bool) -> None:
    """Print what a command made: all of it as JSON, or the sentence."""
    if as_json:
        print_json(value)
    else:
        print(sentence)


def print_change(sentence: str, *, as_json: bool, **values: object) -> None:
    """Print what a command changed: these values as JSON, or the sentence."""
    print_made(values, sentence, as_json=as_json)


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "__struct_fields__"):
        import msgspec

        return msgspec.to_builtins(value)
    return value


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, spare: Sequence[str] | None = None
) -> None:
    """Print rows below their column names; numbers to the right.

    A terminal that is too narrow gets several tables below each other, or, of a listing that may be long, one without
    the ``spare`` columns, the first of these first.
    """
    from flockmq.cli.table import lay_out

    width = terminal_width()
    body = [[_cell(value) for value in row] for row in rows]
    found = lay_out(columns, body, width, spare)
    for index, line in enumerate(found.lines):
        print(f"\x1b[1m{line}\x1b[0m" if index in found.headings and _has_styles() else line)
    if found.left_out:
        tell(f"No room for {', '.join(found.left_out)}: use a wider terminal or --json.")


def terminal_width() -> int | None:
    """Columns of the terminal; None where output goes to a file or a program, for which nothing is cut or wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def tell(text: str) -> None:
    """Say something on standard error, wrapped where that is a terminal."""
    from flockmq.cli.table import wrap

    lines = wrap(text, shutil.get_terminal_size().columns) if sys.stderr.isatty() else [text]
    for line in lines:
        print(line, file=sys.stderr)


def _has_styles() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print one thing as lines of name and value; a long value wraps below itself on a terminal."""
    from flockmq.cli.table import wrap

    cells = [(name, _cell(value)) for name, value in fields]
    width = max((len(name) for name, _ in cells), default=0)
    columns = terminal_width()
    for name, value in cells:
        lines = [value] if columns is None else list(wrap(value, max(columns - width - 2, VALUE_WIDTH_MIN)))
        print(f"{name:<{width}}  {lines[0]}".rstrip())
        for line in lines[1:]:
            print(f"{'':<{width}}  {line}".rstrip())


def print_listing(
    items: Iterable[msgspec.Struct], columns: dict[str, str], *, as_json: bool, limit: int, nothing: str
) -> None:
    """Print a listing, up to the limit; ``columns`` maps headings to attributes."""
    shown, more = _take(items, limit)
    if as_json:
        print_json(shown)
    elif shown:
        rows = [[getattr(item, name) for name in columns.values()] for item in shown]
        by_need = list(columns)[:0:-1]
        if all(getattr(item, columns.get("NAMESPACE", ""), None) == "default" for item in shown):
            by_need = [
                "NAMESPACE",
                *(name for name in by_need if name != "NAMESPACE"),
            ]  # says least where all are alike
        print_table(list(columns), rows, spare=by_need)
    else:
        print(nothing)
    if more:
        tell(f"There are more than {limit}; print all with --limit 0.")


def warn_unanswered(unanswered: Sequence[str], what: str) -> None:
    """Say on standard error which nodes are missing in a listing."""
    if unanswered:
        names = ", ".join(printable(name) for name in unanswered)
        tell(f"Not listed are the {what} of nodes and shards that did not answer: {names}.")


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
