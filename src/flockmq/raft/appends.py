"""Records on their way into logs: one batch per group and loop turn, whose outcome each publisher hears.

```
 open_batch(group) --> OpenBatch: records, and how many each waiter added
        submit()   --> the group's Forwarder (exactly once, to the leader) --> RaftHost ...
        settle()   <-- outcomes --> Waiter.settled(batch, count, outcome)        once, the outcome
                                `-> BatchListener.heard(batch, outcome)          everything: what comes early, and late
```
A group that takes no more for now (``has_room``) keeps its records here, in batches of bounded size; its publisher
asks first and lets its own clients wait until ``on_room`` names the group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.errors import FlockError
from flockmq.log.batch import BatchBuilder
from flockmq.raft.forwarder import NEVER_TAKEN, Forwarder
from flockmq.raft.outcome import Outcome
from flockmq.raft.senders import COMMITTED, FENCED, REFUSED, REPLAN, STORED, TAKEN, UNKNOWN

if TYPE_CHECKING:
    from flockmq.raft.host import RaftHost

__all__ = [
    "COMMITTED",
    "REFUSED",
    "REPLAN",
    "STORED",
    "TAKEN",
    "UNKNOWN",
    "Appends",
    "BatchListener",
    "OpenBatch",
    "Outcome",
    "Waiter",
]

BATCH_BYTES: Final = 512 * 1024
"""A batch that reached this size is followed by another one."""
OPEN_BATCHES_MAX: Final = 4
"""Batches of a group that may wait here before ``has_room`` says no."""
GIVE_UP_MS: Final = 10_000
"""How long a publisher waits for an outcome. Longer rides out longer failures, and lets publishers wait in the dark."""
_NOTHING: Final = BatchBuilder()
"""In the place of what is built."""


class Waiter(Protocol):
    """A publisher of records."""

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:
        """Your ``count`` records in this batch have this outcome."""
        ...


class BatchListener(Protocol):
    """A publisher of records that hears every outcome, early and late ones too."""

    def heard(self, batch: OpenBatch, outcome: Outcome) -> None:
        """This is known of the batch now."""
        ...

    def fenced(self, batch: OpenBatch, data: bytes, position: int) -> bytes:
        """The record at ``position`` of the batch, which was built as ``data``, must not get into the log.

        What takes its place, with the same note; nothing if no record is left, and then it is refused.
        """
        ...


class OpenBatch:
    """Add a record to ``builder`` and count it in ``waiting``, in the same turn that you were given this in."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.builder = BatchBuilder()
        self.plan = 0
        """Cluster-state index of the oldest plan by which records came in here; 0: they go by none."""
        self.is_promised = False
        """Some of the records were acknowledged before, in another batch: they are never given up."""
        self.waiting: dict[Waiter, int] = {}
        self.listener: BatchListener | None = None
        self.settled = False
        """The publishers in ``waiting`` were told."""


def _no_waiter(group: int) -> None:
    """No publisher waits for room."""


class Appends:
    """All records that this node appends. ``schedule`` asks for a turn."""

    def __init__(
        self,
        host: RaftHost,
        schedule: Callable[[], None],
        on_room: Callable[[int], None] = _no_waiter,
        give_up_ms: int = GIVE_UP_MS,
    ) -> None:
        """``on_room``: called when a group that was said to have no room has some again."""
        self.give_up_ms = give_up_ms
        self._on_room = on_room
        self._host = host
        self._schedule = schedule
        self._open: dict[int, list[OpenBatch]] = {}
        self._submitted: dict[int, dict[int, OpenBatch]] = {}
        """By group and token; groups without any are not here."""
        self._token = 0
        self._full: dict[int, None] = {}
        """Groups whose publishers were told that there is no room."""
        self._stopped = False

    def open_batch(self, group: int, size: int = 0) -> OpenBatch:
        """Where a record for a group, or ``size`` bytes of them, goes."""
        if self._stopped:
            raise FlockError("This node takes part in consensus no more; ask another one.")
        batches = self._open.get(group)
        if batches is None:
            batches = self._open[group] = [OpenBatch(group)]
            self._schedule()
        else:
            builder = batches[-1].builder
            if builder.size >= BATCH_BYTES or (builder.count and builder.size + size > BATCH_BYTES):
                batches.append(OpenBatch(group))
        return batches[-1]

    def without_outcome(self) -> list[OpenBatch]:
        """Batches that may be in the log or not: sent off, or about to be."""
        batches = [batch for opened in self._open.values() for batch in opened]
        for submitted in self._submitted.values():
            batches += submitted.values()
        return batches

    def is_stopped(self) -> bool:
        """Whether nothing can be appended from here any more."""
        return self._stopped

    def has_room(self, group: int) -> bool:
        """Whether more records for a group should be read."""
        batches = self._open.get(group)
        if batches is None or len(batches) < OPEN_BATCHES_MAX:
            return True
        self._full[group] = None
        return False

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
        if self._full:
            self._make_room()

    def _make_room(self) -> None:
        """Tell the publishers of groups that have room again."""
        for group in [group for group in self._full if len(self._open.get(group, ())) < OPEN_BATCHES_MAX]:
            del self._full[group]
            self._on_room(group)

    def _submit_group(self, group: int, batches: list[OpenBatch]) -> list[OpenBatch]:
        forwarder = self._host.forwarders.get(group)
        if forwarder is None:
            forwarder = Forwarder(group, self._host.node_id, self._host.boot, give_up_ms=self.give_up_ms)
            self._host.add_forwarder(forwarder)
        forwarder.set_time(self._host.clock.elapsed)
        submitted = self._submitted.setdefault(group, {})
        for position, batch in enumerate(batches):
            if not forwarder.has_room():
                return batches[position:]
            if not batch.builder.count:
                continue
            self._token += 1
            data = batch.builder.build(note=forwarder.note(batch.plan))
            forwarder.submit(data, self._token, batch.is_promised)
            batch.builder = _NOTHING
            submitted[self._token] = batch
            self._host.submitted(group)
        return []

    def settle(self) -> None:
        """Tell all waiters what is known now."""
        done: list[int] = []
        for group, submitted in list(self._submitted.items()):
            for outcome in self._host.forwarders[group].take_outcomes():
                if outcome.kind == FENCED:
                    self._take_out(group, outcome)
                    continue
                batch = submitted.pop(outcome.token) if outcome.final else submitted[outcome.token]
                self._tell(batch, outcome)
                if outcome.kind == REFUSED and outcome.offset == NEVER_TAKEN:
                    self._refuse_open(group)
            if not submitted:
                done.append(group)
        for group in done:
            del self._submitted[group]
        for group in self._open:
            forwarder = self._host.forwarders.get(group)
            if forwarder is None or forwarder.has_room():
                self._schedule()
                return

    def _take_out(self, group: int, outcome: Outcome) -> None:
        """A record of a run must not get into the log: ask its publisher what is left."""
        batch = self._submitted[group][outcome.token]
        listener = batch.listener
        data = b"" if listener is None else listener.fenced(batch, outcome.batch, outcome.offset)
        self._host.forwarders[group].replace(outcome.token, data)
        self._host.submitted(group)
        self._schedule()
        if not data:
            del self._submitted[group][outcome.token]
            self._tell(batch, Outcome(REFUSED))

    def _refuse_open(self, group: int) -> None:
        """What is behind refused runs would overtake them when they come again."""
        batches = self._open.pop(group, [])
        kept = [batch for batch in batches if batch.is_promised]
        if kept:
            self._open[group] = kept
        for batch in batches:
            if not batch.is_promised:
                self._tell(batch, Outcome(REFUSED))

    def forget(self, group: int) -> None:
        """A group is no more: the outcome of its records is not told to any waiter. Not within an outcome."""
        submitted = self._submitted.pop(group, {})
        opened = self._open.pop(group, [])
        self._host.remove_forwarder(group)
        if group in self._full:
            del self._full[group]
            self._on_room(group)
        for batch in submitted.values():
            self._tell(batch, Outcome(UNKNOWN))
        for batch in opened:
            self._tell(batch, Outcome(REFUSED))

    def stop(self) -> None:
        """No more outcomes will come."""
        self._stopped = True
        submitted = self._submitted
        opened = self._open
        self._submitted = {}
        self._open = {}
        for by_token in submitted.values():
            for batch in by_token.values():
                self._tell(batch, Outcome(UNKNOWN))
        for batches in opened.values():
            for batch in batches:
                self._tell(batch, Outcome(REFUSED))

    def _tell(self, batch: OpenBatch, outcome: Outcome) -> None:
        if outcome.kind not in (TAKEN, STORED) and not batch.settled:
            batch.settled = True
            told = Outcome(REFUSED) if outcome.kind == REPLAN else outcome
            for waiter, count in batch.waiting.items():
                waiter.settled(batch, count, told)
        if batch.listener is not None:
            batch.listener.heard(batch, outcome)
