"""Catching up with cluster state from peers, and letting peers catch up.

```
 a peer tells that it is ahead --> META_PULL(our index) --> following commands --> Ledger.feed
                                          |
                                          '--> too far behind: the whole state, piece by piece --> Ledger.replace
```
One question is open at a time. A peer that does not answer is left alone for a moment, another one is asked. Nodes with
a replica of group 0 get everything from its leader, as long as they hear one that has brought them something; they pull
only when nothing came for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.state.group0 import hears_leader
from flockmq.durable.state.wire import (
    COMMANDS,
    PIECE_BYTES_MAX,
    Pull,
    Pulled,
    decode_pull,
    decode_pulled,
    encode_commands,
    encode_piece,
    encode_pull,
)
from flockmq.log.checksum import crc32c
from flockmq.peering.kinds import META_PULL
from flockmq.tasks import within

if TYPE_CHECKING:
    import random

    from flockmq.durable.state.facts import Facts
    from flockmq.durable.state.ledger import Ledger
    from flockmq.durable.state.submitting import Submitting
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Task

LOOK_MS: Final = 200
"""How often the node looks which peers are ahead, while no peer tells anything new."""
AVOID_MS: Final = 2_000
"""How long a peer that did not answer is left alone."""
PATIENCE_MS: Final = 500
"""How long a node that hears the leader of group 0 waits for it, while nothing comes, before it asks others."""


class Puller:
    """See the module. ``pull`` is a standing task."""

    def __init__(
        self,
        ledger: Ledger,
        engine: RaftEngine,
        calls: Calls,
        facts: Facts,
        rng: random.Random,
        submitting: Submitting,
    ) -> None:
        self._ledger = ledger
        self._engine = engine
        self._calls = calls
        self._facts = facts
        self._rng = rng
        self._submitting = submitting
        self._avoid: dict[int, int] = {}
        """Peers that did not answer, and until when they are left alone."""
        self._behind_since = -1
        self._behind_at = 0
        """The index at which this node has been since ``_behind_since``."""
        # A whole state that comes in pieces.
        self._state_index = 0
        self._pieces: list[bytes] = []
        self._received = 0
        calls.serve(META_PULL, self._serve)

    def pull(self) -> Task[None]:
        """Ask a peer that is ahead, as long as it has more; then wait until peers tell something, or LOOK_MS."""
        while True:
            peer = self._peer_ahead()
            while peer and (yield from self._pull_from(peer)):
                pass
            yield from within(self._submitting.news.next(), LOOK_MS)

    def _peer_ahead(self) -> int:
        """A peer to ask; 0: none, or the leader of group 0 will bring what is missing."""
        now = self._calls.now
        known, self._submitting.ahead = self._submitting.ahead, {}
        if known:
            return next(iter(known))
        ahead = [node for node, head in self._facts.heads().items() if head.index > self._ledger.index]
        if not ahead:
            self._behind_since = -1
            return 0
        if self._behind_since < 0 or self._behind_at != self._ledger.index:
            self._behind_since = now
            self._behind_at = self._ledger.index
        if hears_leader(self._engine) and now - self._behind_since < PATIENCE_MS:
            return 0
        willing = [node for node in ahead if self._avoid.get(node, 0) <= now]
        return willing[int(self._rng.random() * len(willing))] if willing else 0

    def _pull_from(self, peer: int) -> Task[bool]:
        """Ask a peer once; whether it may have more."""
        pull = Pull(self._ledger.index, self._state_index, self._received)
        body = yield from self._calls.ask(peer, META_PULL, encode_pull(pull))
        if body is None:
            now = self._calls.now
            self._avoid = {node: until for node, until in self._avoid.items() if until > now}
            self._avoid[peer] = now + AVOID_MS
            return False
        pulled = decode_pulled(body)
        return self._take_commands(pulled) if pulled.kind == COMMANDS else self._take_piece(pulled)

    def _take_commands(self, pulled: Pulled) -> bool:
        self._drop_pieces()
        index = pulled.index
        moved = False
        for data in pulled.commands:
            index += 1
            result = self._ledger.feed(index, data)
            if result is not None:
                moved = True
                self._submitting.applied(index, data, result)
        return moved

    def _take_piece(self, pulled: Pulled) -> bool:
        if pulled.index != self._state_index or pulled.position != self._received:
            self._drop_pieces()
            if pulled.position:
                return False
            self._state_index = pulled.index
        if not pulled.piece:
            self._drop_pieces()
            return False
        self._pieces.append(pulled.piece)
        self._received += len(pulled.piece)
        if self._received < pulled.size:
            return True
        whole = b"".join(self._pieces)
        self._drop_pieces()
        return crc32c(whole) == pulled.checksum and self._ledger.replace(whole)

    def _drop_pieces(self) -> None:
        self._state_index = 0
        self._pieces = []
        self._received = 0

    def _serve(self, body: bytes) -> bytes:
        """A peer is behind."""
        pull = decode_pull(body)
        ledger = self._ledger
        if pull.index >= ledger.index:
            return encode_commands(pull.index, [])
        if pull.index >= max(ledger.oldest, 0) and not pull.state_index:
            return encode_commands(pull.index, ledger.commands_after(pull.index, PIECE_BYTES_MAX))
        index, whole = ledger.whole()
        position = pull.position if pull.state_index == index and pull.position < len(whole) else 0
        piece = whole[position : position + PIECE_BYTES_MAX]
        return encode_piece(index, len(whole), crc32c(whole), position, piece)
