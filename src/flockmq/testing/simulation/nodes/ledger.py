"""What publishers sent, and what they were told about it: the promises that rules hold a cluster to.

```
 publisher: sent --> sent_again (DUP)* --> acknowledged (PUBACK, PUBREC) | refused (a code from 0x80 on)
 node:      died --> its early answers are no promises any more
```
``rules.py`` has the ledger of the durable topic; names of no durable topic have a ledger of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.testing.simulation.nodes.world import NodesWorld

Line = tuple[bytes, int]
"""Messages that have an order among themselves: of one topic name, and of one connection (0: of all of them)."""


class Ledger:
    """By payload, which is unique."""

    def __init__(self, cluster: NodesWorld, is_early: bool = False, kind: str = "") -> None:
        """``is_early``: answers of QoS 1 hold while their node lives. ``kind`` stands before names of figures."""
        self.promised: dict[bytes, int] = {}
        """What is acknowledged, and by which node."""
        self.messages: dict[bytes, tuple[bytes, int]] = {}
        """Topic name and QoS of all that was sent."""
        self.sent_at: dict[bytes, int] = {}
        self.acknowledged_at: dict[bytes, int] = {}
        self.lines: dict[bytes, Line] = {}
        self.connections: dict[bytes, int] = {}
        """On which connection of its publisher it was sent first."""
        self.again: set[bytes] = set()
        """What was sent more than once."""
        self.refusals: dict[bytes, int] = {}
        """Reason codes."""
        self._cluster = cluster
        self._is_early = is_early
        self._kind = kind

    def sent(self, payload: bytes, topic: bytes, qos: int, connection: int = 0) -> None:
        """For the first time. Order is that of a publisher; at QoS 0, where nothing is sent again, of a connection."""
        self.messages[payload] = (topic, qos)
        self.lines[payload] = (topic, connection if qos == 0 or self.is_early_at(qos) else 0)
        self.connections[payload] = connection
        self.sent_at[payload] = self._cluster.queue.now
        self._cluster.count(f"{self._kind}sent")

    def sent_again(self, payload: bytes) -> None:
        """With DUP."""
        self.again.add(payload)
        self._cluster.count(f"{self._kind}sent again")

    def acknowledged(self, payload: bytes, node: int = 0) -> None:
        """The message is in a log, or will be, says a node."""
        if payload not in self.promised:
            self._cluster.count(f"{self._kind}acknowledged")
        self.promised[payload] = node
        self.acknowledged_at[payload] = self._cluster.queue.now

    def refused(self, payload: bytes, reason: int) -> None:
        """The message is certainly in no log, and never will be: not by an earlier attempt either."""
        self._cluster.count(f"{self._kind}refused")
        self.refusals[payload] = reason

    def died(self, node: int) -> None:
        """What this node saw through by itself may be gone with the node."""
        if self._is_early:
            for payload in [one for one, by in self.promised.items() if by == node]:
                if self.is_early_at(self.messages[payload][1]):
                    del self.promised[payload]

    def is_early_at(self, qos: int) -> bool:
        """QoS 2 always waits for the commit."""
        return self._is_early and qos == 1

    def has_order(self, payload: bytes) -> bool:
        """Whether the message has a place in its line: where answers are early, an earlier message of the line may
        still wait at the node where both were sent first."""
        return not (payload in self.again and self.is_early_at(self.messages[payload][1]))

    def is_moved(self, topic: bytes) -> bool:  # noqa: ARG002
        """Whether messages of a topic name are in two logs, which subscribers read side by side."""
        return False
