"""What a replica asks of its surroundings, in the order in which it must be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.raft.entry import Entry
    from flockmq.raft.messages import Message, SnapshotMeta
    from flockmq.raft.state import HardState, ReadAnswer


class Ready:
    """One turn's obligations.

    1. Write ``install``, ``truncate_from``, ``entries`` and ``hard_state``, in that order, behind all Readies before.
       When they are durable call ``persisted(number)``. Nothing to write: ``number`` is 0, nothing is to be reported.
    2. Send ``messages``. They need not wait for 1; what had to wait for earlier writes is among them.
    3. Apply ``committed`` and serve ``reads``.
    """

    def __init__(
        self,
        number: int,
        hard_state: HardState | None,
        install: SnapshotMeta | None,
        truncate_from: int,
        entries: list[Entry],
        messages: list[Message],
        committed: list[Entry],
        reads: list[ReadAnswer],
        commit: int,
    ) -> None:
        self.number = number
        self.hard_state = hard_state
        self.install = install
        """A snapshot, complete in the sink, takes the place of the log and of the applied state."""
        self.truncate_from = truncate_from
        """Forget entries from here on; 0 for none."""
        self.entries = entries
        self.messages = messages
        self.committed = committed
        self.reads = reads
        self.commit = commit
        """How much is decided. Need not be durable; a store that keeps it spares a restart some replay."""


class Proposal:
    """A batch has its place in the leader's log. Committed when the entry at ``index`` is, with this very ``term``."""

    def __init__(self, index: int, term: int, base_offset: int) -> None:
        self.index = index
        self.term = term
        self.base_offset = base_offset


class Refusal:
    """A request that was not begun: nothing of it is in any log, nor ever will be."""

    def __init__(self, reason: str, leader: int) -> None:
        self.reason = reason
        """One sentence for people: why, and what to do."""
        self.leader = leader
        """Who may know better; 0 when nobody is known."""
