"""Questions to another node, and their answers: small ones, such as those in the table of ``kinds``.

```
 ask(peer, kind, body, reply) --> QUESTION number kind body --> serve(kind) there: body in, body out
 reply(body) <------------------- ANSWER number body <----------'
 reply(None) when the link breaks, the peer dies or nothing comes within ``timeout_ms``: exactly one call either way
```
Questions that wait are bounded, both for each peer and in all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.peering.channels import CALLS

if TYPE_CHECKING:
    from flockmq.peering.ports import Outbox

QUESTION: Final = 1
ANSWER: Final = 2
REFUSAL: Final = 3
"""An answer that says no: nobody serves this kind there, or what was asked made no sense."""

TIMEOUT_MS: Final = 2_000
OPEN_MAX: Final = 1_024
BODY_BYTES_MAX: Final = 1 << 20
_HEAD: Final = struct.Struct("<BQH")

Reply = Callable[[bytes | None], None]
Serve = Callable[[bytes], bytes]
ServeLater = Callable[[int, bytes, Reply], None]


class _Open:
    """A question that waits for its answer."""

    def __init__(self, peer: int, reply: Reply, due_at: int) -> None:
        self.peer = peer
        self.reply = reply
        self.due_at = due_at


class Calls:
    """One node's questions and answers; a component of the node."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.now = 0
        """When the latest question or answer came, or time passed."""
        self._number = 0
        self._open: dict[int, _Open] = {}
        self._served: dict[int, Serve] = {}
        self._served_later: dict[int, ServeLater] = {}
        self._linked: set[int] = set()

    def serve(self, kind: int, answer: Serve) -> None:
        """Answer questions of a kind; ``answer`` must be quick, and raise RemoteProtocolError for nonsense."""
        self._served[kind] = answer

    def serve_later(self, kind: int, answer: ServeLater) -> None:
        """Answer questions of a kind when there is something to say: ``answer(peer, body, reply)``, and in time
        ``reply(body)``, or ``reply(None)`` to refuse. Whoever asked gives up by itself."""
        self._served_later[kind] = answer

    def ask(self, peer: int, kind: int, body: bytes, reply: Reply, now: int, timeout_ms: int = TIMEOUT_MS) -> None:
        """Ask a peer; ``reply`` gets the answer, or None, exactly once and maybe before this returns."""
        if peer not in self._linked or len(self._open) >= OPEN_MAX:
            reply(None)
            return
        self._number += 1
        self._open[self._number] = _Open(peer, reply, now + timeout_ms)
        self._outbox.send(peer, CALLS, _HEAD.pack(QUESTION, self._number, kind) + body)

    def peer_up(self, peer: int, now: int) -> None:  # noqa: ARG002
        """The peer can be asked."""
        self._linked.add(peer)

    def peer_down(self, peer: int, now: int) -> None:  # noqa: ARG002
        """Whatever it was asked, nothing will come."""
        self._linked.discard(peer)
        for number in [number for number, one in self._open.items() if one.peer == peer]:
            self._open.pop(number).reply(None)

    def peer_dead(self, peer: int, now: int) -> None:
        """As when the link is lost."""
        self.peer_down(peer, now)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """A question or an answer."""
        self.now = now
        if len(body) < _HEAD.size or len(body) > BODY_BYTES_MAX:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, f"A question between nodes has {len(body)} bytes")
        what, number, kind = _HEAD.unpack_from(body)
        rest = body[_HEAD.size :]
        if what == QUESTION:
            self._answer(peer, number, kind, rest)
            return
        waiting = self._open.get(number)
        if waiting is not None and waiting.peer == peer:
            del self._open[number]
            waiting.reply(rest if what == ANSWER else None)

    def _answer(self, peer: int, number: int, kind: int, body: bytes) -> None:
        later = self._served_later.get(kind)
        served = self._served.get(kind)
        found: bytes | None = None
        try:
            if later is not None:
                later(peer, body, partial(self._reply, peer, number, kind))
                return
            if served is not None:
                found = served(body)
        except RemoteProtocolError:
            found = None
        self._reply(peer, number, kind, found)

    def _reply(self, peer: int, number: int, kind: int, found: bytes | None) -> None:
        if found is None or len(found) > BODY_BYTES_MAX - _HEAD.size:
            self._outbox.send(peer, CALLS, _HEAD.pack(REFUSAL, number, kind))
        else:
            self._outbox.send(peer, CALLS, _HEAD.pack(ANSWER, number, kind) + found)

    def tick(self, now: int) -> None:
        """Give up on what took too long."""
        self.now = now
        for number in [number for number, one in self._open.items() if one.due_at <= now]:
            self._open.pop(number).reply(None)

    def flush(self, now: int) -> None:
        """Nothing is collected."""
