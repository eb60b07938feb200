"""Records on their way into logs: those of one loop turn become one batch per group, whose outcome everybody hears.

```
 open_batch(group) --> OpenBatch: records, and who added how many
        submit()   --> the group's Forwarder (exactly once, to whoever leads) --> RaftHost ...
        settle()   <-- outcomes --> Waiter.settled(batch, count, outcome)
```
A group that takes no more for now (``has_room``) keeps its records here, in batches of bounded size; whoever feeds it
asks first and lets its own clients wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flockmq.errors import FlockError
from flockmq.log.batch import BatchBuilder
from flockmq.raft.forwarder import Forwarder
from flockmq.raft.senders import COMMITTED, REFUSED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.raft.host import RaftHost

__all__ = ["COMMITTED", "REFUSED", "UNKNOWN", "Appends", "OpenBatch", "Outcome", "Waiter"]

BATCH_BYTES: Final = 512 * 1024
"""A batch that reached this size is followed by another one."""
OPEN_BATCHES_MAX: Final = 4
"""Batches of a group that may wait here before ``has_room`` says no."""


class Outcome:
    """What became of a batch: COMMITTED, REFUSED (certainly not in the log), or UNKNOWN (maybe in the log)."""

    def __init__(self, kind: int, base_offset: int = -1) -> None:
        self.kind = kind
        self.base_offset = base_offset
        """Offset of its first record, when it is committed."""


class Waiter(Protocol):
    """Somebody who adds records."""

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:
        """Your ``count`` records in this batch have this outcome."""
        ...


class OpenBatch:
    """Add a record to ``builder`` and count it in ``waiting``, in the same turn that you were given this in."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.builder = BatchBuilder()
        self.waiting: dict[Waiter, int] = {}


class Appends:
    """All records that this node appends. ``schedule`` asks for a turn."""

    def __init__(self, host: RaftHost, schedule: Callable[[], None]) -> None:
        self._host = host
        self._schedule = schedule
        self._open: dict[int, list[OpenBatch]] = {}
        self._submitted: dict[int, dict[int, OpenBatch]] = {}
        """By group and token; groups without any are not here."""
        self._token = 0
        self._stopped = False

    def open_batch(self, group: int) -> OpenBatch:
        """Where a record for a group goes."""
        if self._stopped:
            raise FlockError("This node takes part in consensus no more; ask another one.")
        batches = self._open.get(group)
        if batches is None:
            batches = self._open[group] = [OpenBatch(group)]
            self._schedule()
        elif batches[-1].builder.size >= BATCH_BYTES:
            batches.append(OpenBatch(group))
        return batches[-1]

    def has_room(self, group: int) -> bool:
        """Whether more records for a group should be read."""
        return len(self._open.get(group, ())) < OPEN_BATCHES_MAX

    def submit(self) -> None:
        """Send off what this turn brought."""
        if not self._open:
            return
        opened = self._open
        self._open = {}
        for group, batches in opened.items():
            kept = self._submit_group(group, batches)
            if kept:
                self._open[group] = kept

    def _submit_group(self, group: int, batches: list[OpenBatch]) -> list[OpenBatch]:
        forwarder = self._host.forwarders.get(group)
        if forwarder is None:
            forwarder = Forwarder(group, self._host.node, self._host.boot)
            self._host.add_forwarder(forwarder)
        submitted = self._submitted.setdefault(group, {})
        for position, batch in enumerate(batches):
            if not forwarder.has_room():
                return batches[position:]
            if not batch.builder.count:
                continue
            self._token += 1
            forwarder.submit(batch.builder.build(note=forwarder.note()), self._token)
            submitted[self._token] = batch
            self._host.submitted(group)
        return []

    def settle(self) -> None:
        """Tell everybody what is known now."""
        done: list[int] = []
        for group, submitted in self._submitted.items():
            for outcome in self._host.forwarders[group].take_outcomes():
                batch = submitted.pop(outcome.token)
                self._tell(batch, Outcome(outcome.kind, outcome.offset))
            if not submitted:
                done.append(group)
        for group in done:
            del self._submitted[group]
        if self._open and any(self._host.forwarders[group].has_room() for group in self._open):
            self._schedule()

    def stop(self) -> None:
        """No more outcomes will come."""
        self._stopped = True
        for submitted in self._submitted.values():
            for batch in submitted.values():
                self._tell(batch, Outcome(UNKNOWN))
        for batches in self._open.values():
            for batch in batches:
                self._tell(batch, Outcome(REFUSED))
        self._submitted = {}
        self._open = {}

    def _tell(self, batch: OpenBatch, outcome: Outcome) -> None:
        for waiter, count in batch.waiting.items():
            waiter.settled(batch, count, outcome)
