"""The hidden topics, made when the first persistent session or will comes, or the first client of several nodes.

```
 $capture --> known to all nodes, or STATE_LEASE_MS later --> $sessions --> claims
   |            a node without it has no lease by then         |
   |            and acknowledges nothing (leases.py)           `-- a node that knows the filters captures these alone
   `-- a node that knows it captures every QoS 1 and 2 message
```
So once ``$sessions`` exists, no node acknowledges a message that a persistent session could miss. A node that makes the
topics may die at any step: another node goes on from the topics that exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import CreateHidden
from flockmq.cluster.model import CAPTURE_TOPIC, DEFAULT_NAMESPACE, SESSIONS_TOPIC
from flockmq.cluster.tables import key_of
from flockmq.durable.sessions.leases import STATE_LEASE_MS
from flockmq.tasks import Sleep, within

if TYPE_CHECKING:
    from flockmq.cluster.model import TopicRecord
    from flockmq.durable.state.barrier import AppliedBarrier
    from flockmq.durable.state.meta import Meta
    from flockmq.tasks import Task

LOOK_MS: Final = 20
NOT_KNOWN: Final = -1


class HiddenTopics:
    """See the module."""

    def __init__(self, node_id: int, meta: Meta, barrier: AppliedBarrier) -> None:
        self._node_id = node_id
        self._meta = meta
        self._barrier = barrier
        self._since = NOT_KNOWN
        """When this node first saw ``$capture`` alone."""

    def are_made(self) -> bool:
        """Whether both topics are there."""
        return self._find(SESSIONS_TOPIC) is not None and self._find(CAPTURE_TOPIC) is not None

    def make(self, due_at: int) -> Task[bool]:
        """Make both topics, and wait until most likely all live nodes know them; False: not made in time."""
        if self.are_made():
            return True
        while self._find(CAPTURE_TOPIC) is None:
            if not (yield from self._create(CAPTURE_TOPIC, due_at)):
                return False
        due_at += STATE_LEASE_MS
        while self._find(SESSIONS_TOPIC) is None:
            if not self._is_safe():
                yield Sleep(LOOK_MS)
            elif not (yield from self._create(SESSIONS_TOPIC, due_at)):
                return False
        yield from self._barrier.wait(self._meta.state.index, self._meta.calls.now)
        return True

    def _create(self, name: str, due_at: int) -> Task[bool]:
        """Try once to make a topic; False: the time is over."""
        left_ms = due_at - self._meta.calls.now
        if left_ms <= 0:
            return False
        yield from within(self._meta.submit(CreateHidden(name)), left_ms)
        if self._find(name) is None:
            yield Sleep(LOOK_MS)
        return True

    def _find(self, name: str) -> TopicRecord | None:
        return self._meta.state.topics.get(key_of(DEFAULT_NAMESPACE, name))

    def _is_safe(self) -> bool:
        """Whether each node knows ``$capture``, or has no lease of a state without it."""
        topic = self._find(CAPTURE_TOPIC)
        if topic is None:
            return False
        now = self._meta.calls.now
        if self._since == NOT_KNOWN:
            self._since = now
        if now - self._since >= STATE_LEASE_MS:
            return True
        facts = self._meta.facts
        heads = facts.heads()
        others = {*self._meta.state.nodes, *facts.alive()} - {self._node_id}
        return all(node in heads and heads[node].index >= topic.changed_index for node in others)
