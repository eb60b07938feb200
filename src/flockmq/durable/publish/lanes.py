"""Messages of a durable topic between a publisher and the logs, in order even while the topic gets other shards.

```
 Lane: one topic         run --> records --> Batch per group and turn, and its outcome (batches.py)
   |
   |-- given_back: batches whose plan was out of date. They are put in again, first, when nothing of the topic is
   |               under way any more and the new plan is known
   '-- held: runs that came meanwhile, put in after those
```
Records of one key are in one group, so they stay in order as long as nothing overtakes what was given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.publish.batches import Batch, Share
from flockmq.durable.publish.pausing import Stopped

if TYPE_CHECKING:
    from flockmq.durable.publish.answers import Answer
    from flockmq.mqtt.run import Run
    from flockmq.routing.durable import DurableTopic
    from flockmq.session.connection import Connection


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
