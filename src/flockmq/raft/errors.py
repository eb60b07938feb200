"""What goes wrong in consensus, as people and callers see it."""

from __future__ import annotations

from flockmq.errors import FlockError


class SafetyError(FlockError):
    """A promise of Raft would be broken: a bug or a lying disk. The replica stops; going on could lose messages."""
