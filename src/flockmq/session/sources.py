"""Where messages for one session come from, when that hears what becomes of them: consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.session.ports import QueuePort


class MemberSource:
    """Where a run comes from: records of a group, which its member has to acknowledge. Places are those in the run."""

    def __init__(self, queue: QueuePort, of: object) -> None:
        self.queue = queue
        self.of = of
        """What the queue knows the run by."""
        self.acked: list[tuple[int, int]] = []
        """Ranges of places, as they were acknowledged."""
        self.is_refusing = False
        """What is settled now is not acknowledged."""

    def settled(self, place: int) -> None:
        """The message at a place needs no sending again."""
        if self.is_refusing:
            return
        acked = self.acked
        if acked and acked[-1][1] == place:
            acked[-1] = (acked[-1][0], place + 1)
        else:
            if not acked:
                self.queue.note(self)
            acked.append((place, place + 1))

    def take_acked(self) -> list[tuple[int, int]]:
        """What was acknowledged since the last time."""
        acked = self.acked
        self.acked = []
        return acked
