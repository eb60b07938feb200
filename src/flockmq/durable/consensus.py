"""Consensus as a part of a clustered node: its frames travel on a channel of the links that are there anyway.

```
 ClusterNode: frame --> parts --> receive(peer, body) --> RaftEngine
              turn() --> flush() --> engine.turn() --> send_now(): a part of this turn's frame for each peer
```
Frames leave before this node writes and applies what the turn brought: others wait for them, and write meanwhile.
Whether a peer is there consensus finds out by itself, with heartbeats; links only tell it whether they have room.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.raft.engine import RaftEngine


class Consensus:
    """The component of channel RAFT."""

    def __init__(
        self,
        engine: RaftEngine,
        send_now: Callable[[int, bytes], None],
        before: tuple[tuple[str, Callable[[int], None]], ...],
        after: tuple[tuple[str, Callable[[int], None]], ...],
    ) -> None:
        """``before`` and ``after`` a turn of consensus, in this order: what goes into it, and what follows from it."""
        self._engine = engine
        self._send_now = send_now
        self._before = [flush for _, flush in before]
        self._after = [flush for _, flush in after]

    def peer_up(self, peer: int, now: int) -> None:  # noqa: ARG002
        """A new link has room."""
        self._engine.writable(peer, True)

    def peer_down(self, peer: int, now: int) -> None:
        """What was on its way is lost, which consensus notices."""

    def peer_dead(self, peer: int, now: int) -> None:
        """Whether a node votes is not for membership to decide."""

    def receive(self, peer: int, body: bytes, now: int) -> None:  # noqa: ARG002  (a frame names its sender itself)
        """A frame; FlockError ends the link. Anything else is a bug: consensus stops."""
        try:
            self._engine.receive(body)
        except FlockError:
            raise
        except Exception as error:
            self._fail(error)

    def tick(self, now: int) -> None:
        """The engine has a clock of its own pace, see ``DurableNode.tick``."""

    def flush(self, now: int) -> None:
        """Have a turn."""
        try:
            for flush in self._before:
                flush(now)
            self._engine.turn(self._send_now)
            for flush in self._after:
                flush(now)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._engine.fail(error, "".join(traceback.format_exception(error)[-8:]))
