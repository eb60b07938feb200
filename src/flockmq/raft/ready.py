"""What a replica asks of its surroundings, in the order in which it must be done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.raft.entry import Entry
    from flockmq.raft.messages import Message, SnapshotMeta
    from flockmq.raft.state import HardState, ReadAnswer

NOT_LEADER: Final = 1
"""Another replica leads, or will in a moment."""
BUSY: Final = 2
"""Too much is under way; the same request may succeed later."""
NOT_ALLOWED: Final = 3
"""The same request would be refused again."""


class Ready:
    """One turn's obligations.

    1. Write ``install``, ``truncate_from``, ``entries`` and ``hard_state``, in that order, behind all Readies before.
       When they are durable call ``persisted(number)``. Nothing to write: ``number`` is 0, nothing is to be reported.
    2. Send ``messages``. They need not wait for 1; what had to wait for earlier writes is among them.
    3. Apply ``committed`` and serve ``reads``.
    """

    def __init__(self, commit: int) -> None:
        self.number = 0
        self.install: SnapshotMeta | None = None
        """A snapshot, complete in the sink, takes the place of the log."""
        self.restores = False
        """The snapshot replaces the applied state as well; otherwise that is as new already, and must not go back."""
        self.truncate_from = 0
        """Forget entries from here on; 0 for none."""
        self.entries: list[Entry] = []
        self.hard_state: HardState | None = None
        self.messages: list[Message] = []
        self.committed: list[Entry] = []
        self.reads: list[ReadAnswer] = []
        self.commit = commit
        """How much is decided. Need not be durable; a store that keeps it spares a restart some waiting."""


class Proposal:
    """A batch has its place in the leader's log. Committed when the entry at ``index`` is, with this very ``term``."""

    def __init__(self, index: int, term: int, base_offset: int) -> None:
        self.index = index
        self.term = term
        self.base_offset = base_offset


class Refusal:
    """A request that was not begun: this attempt put nothing into any log."""

    def __init__(self, code: int, reason: str, leader: int) -> None:
        self.code = code
        self.reason = reason
        """One sentence for people: why, and what to do."""
        self.leader = leader
        """The node that may know better; 0 when none is known."""
