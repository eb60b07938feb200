"""Messages of a durable topic between a publisher and the logs, in order even while the topic gets other shards.

```
 Lane: one topic         run --> records --> Batch per group and turn: who has which records in it (Share)
   |                                            |
   |                                            '--> outcome --> answers
   |-- given_back: batches whose plan was out of date. They are put in again, first, when nothing of the topic is
   |               under way any more and the new plan is known
   '-- held: runs that came meanwhile, put in after those
```
Records of one key are in one group, so they stay in order as long as nothing overtakes what was given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.publish.pausing import Stopped
from flockmq.raft.appends import OpenBatch, Outcome

if TYPE_CHECKING:
    from flockmq.durable.publish.answers import Answer
    from flockmq.durable.publish.appending import Appending
    from flockmq.mqtt.run import Run
    from flockmq.routing.durable import DurableTopic
    from flockmq.session.connection import Connection


class Share:
    """Consecutive records of a batch that came with one run."""

    def __init__(
        self, answer: Answer | None, connection: Connection | None, first: int, at: int, count: int, size: int
    ) -> None:
        self.answer = answer
        self.connection = connection
        self.first = first
        """Position of the first within its run,"""
        self.at = at
        """and within the batch."""
        self.count = count
        self.size = size
        self.told = False
        """Whoever waits has its answer."""
        self.promised = False
        """And that was that they are stored."""


class Batch:
    """An open batch, and whose records it holds."""

    def __init__(self, owner: Appending, lane: Lane, opened: OpenBatch, shard: int, number: int) -> None:
        self.owner = owner
        self.lane = lane
        self.opened = opened
        self.shard = shard
        self.number = number
        """Grows from batch to batch."""
        self.shares: list[Share] = []
        self.settled = False
        """It has an outcome, as well as that is known."""
        self.data = b""
        """Given back: its records."""

    def share_at(self, position: int) -> Share | None:
        """Whose record this is."""
        for share in self.shares:
            if share.at <= position < share.at + share.count:
                return share
        return None

    def has_promises(self) -> bool:
        """Whether something in it was acknowledged before it had an outcome."""
        return any(share.promised for share in self.shares)

    def heard(self, batch: OpenBatch, outcome: Outcome) -> None:  # noqa: ARG002
        """See ``BatchListener``."""
        self.owner.heard(self, outcome)

    def fenced(self, batch: OpenBatch, data: bytes, position: int) -> bytes:  # noqa: ARG002
        """See ``BatchListener``."""
        return self.owner.fenced(self, data, position)


class HeldRun:
    """A run that waits for a plan."""

    def __init__(
        self,
        run: Run,
        answer: Answer | None,
        connection: Connection | None,
        client: bytes,
        epoch: int,
        wall_ms: int,
        expires_at: int,
    ) -> None:
        self.run = run
        self.answer = answer
        self.connection = connection
        self.client = client
        self.epoch = epoch
        self.wall_ms = wall_ms
        self.expires_at = expires_at
        """By the calendar; 0: never."""

    def whole(self) -> Share:
        """All of it, as if it were in a batch."""
        return Share(self.answer, self.connection, 0, 0, self.run.count, 0)


class Lane:
    """See the module."""

    def __init__(self, topic: DurableTopic) -> None:
        self.topic = topic
        """By which records go into groups now."""
        self.batches: dict[int, Batch] = {}
        """By group: the latest one."""
        self.unsettled = 0
        """Batches without an outcome."""
        self.needs = 0
        """Cluster-state index that a plan must have."""
        self.given_back: list[Batch] = []
        self.held: list[HeldRun] = []
        self.since = 0
        """When it began to wait."""
        self.stopped = Stopped()
        """Clients that are not read while it waits."""

    def is_waiting(self) -> bool:
        """Whether something waits for a plan."""
        return bool(self.given_back or self.held)

    def must_wait(self, topic: DurableTopic) -> bool:
        """Whether a run must be held back; if not, ``topic`` is the plan from now on."""
        if topic is not self.topic:
            if self.unsettled and not topic.shards_like(self.topic):
                return True
            if not self.is_waiting():
                self.topic = topic
        return self.is_waiting()
