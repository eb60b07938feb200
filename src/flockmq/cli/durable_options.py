"""What the commands on durable topics share: options, and sizes and ages as people write and read them."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from flockmq.errors import FlockError

NAMESPACE_DEFAULT: Final = "default"
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", metavar="N", help="The namespace.")]
AnyNamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="N", help="Only what is in this namespace.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
_SIZES: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_AGES: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that can't be undone; a program that can't be asked must say --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise FlockError(f"{question} Nobody can be asked here; say --yes if you are sure.")
    if not typer.confirm(question, err=True):
        raise FlockError("Nothing was changed.")


def parse_retention(texts: list[str]) -> tuple[int | None, int | None]:
    """Age in milliseconds and size in bytes of ``7d``, ``10GB`` or both; ``none`` sets no limit."""
    age_ms: int | None = None
    size: int | None = None
    for text in [part.strip() for one in texts for part in one.split(",")]:
        if text.lower() == "none":
            continue
        found_ms, found_bytes = _retention(text)
        age_ms = found_ms if found_ms is not None else age_ms
        size = found_bytes if found_bytes is not None else size
    return age_ms, size


def _retention(text: str) -> tuple[int | None, int | None]:
    from flockmq.config.units import BYTES, MILLISECONDS, parse_number

    if not text.isdigit():
        try:
            return parse_number(text, MILLISECONDS), None
        except ValueError:
            pass
        try:
            return None, parse_number(text, BYTES)
        except ValueError:
            pass
    raise FlockError(f"--retention can't be {text!r}: give an age like 7d or 12h, a size like 10GB, both, or none.")


def retention_text(age_ms: int | None, size: int | None) -> str:
    """``7d``, ``10GB``, ``7d, 10GB`` or ``none``."""
    parts = []
    if age_ms:
        parts.append(age_text(age_ms))
    if size:
        parts.append(str(size_text(size)))
    return ", ".join(parts) or "none"


def age_text(age_ms: int) -> str:
    """A duration in the largest unit that shows all of it."""
    for unit_ms, name in _AGES:
        if age_ms % unit_ms == 0:
            return f"{age_ms // unit_ms}{name}"
    return f"{age_ms}ms"


def size_text(size: int | None) -> str | None:
    """A size in a few characters."""
    if size is None:
        return None
    for unit, name in _SIZES:
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} B"
