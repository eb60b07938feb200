"""A fingerprint of a run, and on demand its story.

Everything that happens is folded into one hash. Two runs of a seed must end with the same one, in any process, compiled
or not: that is what makes a failing seed worth keeping.
"""

from __future__ import annotations

import hashlib

from flockmq.testing.simulation.events import EventQueue


class Trace:
    """``lines`` is None unless the story is wanted; then it gets a line for each thing that happens."""

    def __init__(self, queue: EventQueue, wanted: bool = False) -> None:
        self.lines: list[str] | None = [] if wanted else None
        self._queue = queue
        self._digest = hashlib.blake2b(digest_size=16)

    def note(self, what: str, *numbers: int) -> None:
        """Fold something that happened into the fingerprint."""
        self._digest.update(b"%d %s %r;" % (self._queue.now, what.encode(), numbers))
        if self.lines is not None:
            self.lines.append(f"{self._queue.now / 1000:>10.3f} ms  {what} {' '.join(map(str, numbers))}")

    def say(self, text: str) -> None:
        """Tell a reader something that is no news for the fingerprint. Callers check ``lines`` first."""
        if self.lines is not None:
            self.lines.append(f"{self._queue.now / 1000:>10.3f} ms    {text}")

    def fingerprint(self) -> str:
        """The hash so far."""
        return self._digest.hexdigest()
