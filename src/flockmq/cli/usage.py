"""A command line that can't be meant: exit code 2, as what Typer finds wrong itself."""

from __future__ import annotations

from flockmq.errors import FlockError


class UsageError(FlockError):
    """What is wrong with the command line, in the words of its options."""


def seconds_of(option: str, duration: str) -> int | None:
    """A duration like 30s, 10m or 7d that an option was given; None where it was not."""
    from flockmq.config.units import parse_number

    if not duration:
        return None
    try:
        return parse_number(duration, "s")
    except ValueError as error:
        raise UsageError(f"{option} can't be {duration!r}: {error}.") from None
