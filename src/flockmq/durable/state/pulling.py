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

from functools import partial
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.cluster.commands import Result
    from flockmq.durable.state.facts import Facts
    from flockmq.durable.state.ledger import Ledger
    from flockmq.peering.calls import Calls

LOOK_MS: Final = 200
"""How often it is seen who is ahead, while nobody tells anything new."""
AVOID_MS: Final = 2_000
"""How long a peer that did not answer is left alone."""
PATIENCE_MS: Final = 500
"""How long a node that hears the leader of group 0 waits for it, while nothing comes, before it asks others."""


class Puller:
    """See the module. ``applied`` is called with index, command and result of each command that a peer had."""

    def __init__(
        self,
        ledger: Ledger,
        calls: Calls,
        facts: Facts,
        rng: random.Random,
        applied: Callable[[int, bytes, Result], None],
    ) -> None:
        self._ledger = ledger
        self._calls = calls
        self._facts = facts
        self._rng = rng
        self._applied = applied
        self._asked = 0
        """The peer that a question is open at."""
        self._avoid: dict[int, int] = {}
        self._look_at = 0
        self._behind_since = -1
        self._behind_at = 0
        """The index at which it has been since then."""
        self._now = 0
        # A whole state that comes in pieces.
        self._state_index = 0
        self._pieces: list[bytes] = []
        self._received = 0
        calls.serve(META_PULL, self._serve)

    def tick(self, now: int, has_leader: bool) -> None:
        """Ask somebody, if this node is behind. ``has_leader``: that of group 0 serves a replica here."""
        self._now = now
        if self._asked or now < self._look_at:
            return
        self._look_at = now + LOOK_MS
        ahead = [node for node, head in self._facts.heads().items() if head.index > self._ledger.index]
        if not ahead:
            self._behind_since = -1
            return
        if self._behind_since < 0 or self._behind_at != self._ledger.index:
            self._behind_since = now
            self._behind_at = self._ledger.index
        if has_leader and now - self._behind_since < PATIENCE_MS:
            return
        willing = [node for node in ahead if self._avoid.get(node, 0) <= now]
        if willing:
            self._ask(willing[int(self._rng.random() * len(willing))])

    def told(self) -> None:
        """A peer has told how far it is: the next tick, which may be at the end of this turn, looks at it."""
        self._look_at = 0

    @property
    def is_told(self) -> bool:
        """Whether one has, and nobody looked at it yet."""
        return not self._look_at and not self._asked

    def pull_from(self, peer: int, now: int) -> None:
        """This peer is known to be ahead."""
        self._now = now
        if not self._asked:
            self._ask(peer)

    def _ask(self, peer: int) -> None:
        self._asked = peer
        pull = Pull(self._ledger.index, self._state_index, self._received)
        self._calls.ask(peer, META_PULL, encode_pull(pull)).then(partial(self._answered, peer))

    def _answered(self, peer: int, body: bytes | None) -> None:
        self._asked = 0
        if body is None:
            self._avoid = {node: until for node, until in self._avoid.items() if until > self._now}
            self._avoid[peer] = self._now + AVOID_MS
            return
        pulled = decode_pulled(body)
        if pulled.kind == COMMANDS:
            if self._take_commands(pulled):
                self._ask(peer)  # there may be more
        elif self._take_piece(pulled):
            self._ask(peer)

    def _take_commands(self, pulled: Pulled) -> bool:
        self._drop_pieces()
        index = pulled.index
        moved = False
        for data in pulled.commands:
            index += 1
            result = self._ledger.feed(index, data)
            if result is not None:
                moved = True
                self._applied(index, data, result)
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
