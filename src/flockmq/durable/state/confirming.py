"""How much was committed when this node started: what it must have applied before its state counts as current.

```
 leader of group 0:  read index, confirmed by a quorum --> the index of its own state
 everybody else:     META_HEAD to the leader, or to one after the other that may be it --> the index that it says
```
Asked until there is an answer, once in the life of a node.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.state.wire import decode_number, encode_number
from flockmq.peering.kinds import META_HEAD

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.durable.state.facts import Facts
    from flockmq.durable.state.ledger import Ledger
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine

CONFIRM_MS: Final = 500
ASKS_MAX: Final = 1_024


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
        self._index = -1
        """What was committed; -1 while that is not known."""
        self._is_open = False
        self._next_at = 0
        self._asks: list[Callable[[bytes | None], None]] = []
        calls.serve_later(META_HEAD, self._serve)

    def is_reached(self) -> bool:
        """Whether everything that was committed at the start is applied."""
        return 0 <= self._index <= self._ledger.index

    def tick(self, now: int) -> None:
        """Find out how much is committed, if that is not known."""
        if self._index >= 0 or self._is_open or now < self._next_at:
            return
        self._next_at = now + CONFIRM_MS
        if self._engine.is_leader(self._group):
            self._is_open = True
            self._engine.read(self._group, self._read_here, now)
            return
        leader = self._engine.leader_of(self._group) if self._group in self._engine.replicas else 0
        able = [leader] if leader else [node for node, head in self._facts.heads().items() if head.has_replica]
        if able:
            self._is_open = True
            peer = able[int(self._rng.random() * len(able))]
            self._calls.ask(peer, META_HEAD, b"", self._answered, now)

    def flush(self, now: int) -> None:
        """A turn ends: answer those who asked, now that it is known what time it is."""
        if self._asks:
            asks = self._asks
            self._asks = []
            self._engine.read(self._group, partial(self._tell, asks), now)

    def _read_here(self, done: bool) -> None:
        self._is_open = False
        if done:
            self._index = self._ledger.index

    def _answered(self, body: bytes | None) -> None:
        self._is_open = False
        if body is not None:
            self._index = decode_number(body)

    def _serve(self, peer: int, body: bytes, answer: Callable[[bytes | None], None]) -> None:  # noqa: ARG002
        if self._engine.is_leader(self._group) and len(self._asks) < ASKS_MAX:
            self._asks.append(answer)
        else:
            answer(None)

    def _tell(self, asks: list[Callable[[bytes | None], None]], done: bool) -> None:
        body = encode_number(self._ledger.index) if done else None
        for answer in asks:
            answer(body)
