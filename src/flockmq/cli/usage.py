"""A command line that can't be meant: exit code 2, as what Typer finds wrong itself."""

from __future__ import annotations

from flockmq.errors import FlockError


class UsageError(FlockError):
    """What is wrong with the command line, in the words of its options."""
