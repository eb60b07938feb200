"""How much was committed when this node started: what it must have applied before its state counts as current.

```
 leader of group 0:  read index, confirmed by a quorum --> the index of its own state
 any other node:     META_HEAD to the leader, or to one replica after the other --> the index that the leader says
```
Asked until a leader answers, once in the life of a node; and again and again by a node that must not miss a change
(``sessions/leases.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.state.read_index import read_index
from flockmq.durable.state.wire import decode_number, encode_number
from flockmq.peering.calls import TIMEOUT_MS
from flockmq.peering.kinds import META_HEAD
from flockmq.tasks import Sleep, within

if TYPE_CHECKING:
    import random

    from flockmq.durable.state.facts import Facts
    from flockmq.durable.state.ledger import Ledger
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Task

CONFIRM_MS: Final = 500
"""How long after a question without an answer the next node is asked."""


class Confirmation:
    """See the module."""

    def __init__(
        self, group: int, ledger: Ledger, engine: RaftEngine, calls: Calls, facts: Facts, rng: random.Random
    ) -> None:
        self._group = group
        self._ledger = ledger
        self._engine = engine
        self._calls = calls
        self._facts = facts
        self._rng = rng
        self._answered = 0
        """The node that answered the last question: it leads, most likely."""
        self._index = -1
        """What was committed; -1 while that is not known."""
        calls.serve_task(META_HEAD, self._tell)

    def is_reached(self) -> bool:
        """Whether everything that was committed at the start is applied."""
        return 0 <= self._index <= self._ledger.index

    def confirm(self) -> Task[bool]:
        """Find out how much is committed; True: done."""
        self._index = yield from self.ask()
        if self._index < 0 and not self._engine.is_leader(self._group) and self._leader_or_any_replica():
            yield Sleep(CONFIRM_MS)
        return self._index >= 0

    def ask(self, timeout_ms: int = TIMEOUT_MS) -> Task[int]:
        """The index of all that was committed before the question; -1: no leader answered."""
        if self._engine.is_leader(self._group):
            is_confirmed = yield from within(read_index(self._engine, self._group, self._calls.now), timeout_ms)
            return self._ledger.index if is_confirmed else -1
        peer = self._leader_or_any_replica()
        body = (yield from self._calls.ask(peer, META_HEAD, b"", timeout_ms)) if peer else None
        self._answered = peer if body is not None else 0
        return decode_number(body) if body is not None else -1

    def _leader_or_any_replica(self) -> int:
        leader = self._engine.leader_of(self._group) if self._group in self._engine.replicas else 0
        leader = leader or self._answered
        able = [leader] if leader else [node for node, head in self._facts.heads().items() if head.has_replica]
        return able[int(self._rng.random() * len(able))] if able else 0

    def _tell(self, peer: int, body: bytes) -> Task[bytes | None]:  # noqa: ARG002
        is_confirmed = yield from read_index(self._engine, self._group, self._calls.now)
        return encode_number(self._ledger.index) if is_confirmed else None
