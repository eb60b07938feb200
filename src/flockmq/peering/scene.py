"""What all parts of deciding about sessions share: this node, the others, and the post between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flockmq.peering.registrar import Registrar
from flockmq.peering.rendezvous import Ranking, hash64
from flockmq.peering.session_messages import Post

if TYPE_CHECKING:
    import random

    from flockmq.node.broker import Broker
    from flockmq.peering.ports import Outbox


class RoutesPort(Protocol):
    """What a session that came waits for: that messages to it come here, from wherever they are published."""

    def mark(self) -> int:
        """A version that all subscriptions made so far are in; -1 while it has not been told to the others yet."""

    def is_known(self, mark: int) -> bool:
        """Whether every node that is ALIVE has this version."""


class Scene:
    """See the module. No decisions: its users make those."""

    def __init__(
        self,
        broker: Broker,
        node_id: int,
        boot: int,
        outbox: Outbox,
        rng: random.Random,
        routes: RoutesPort | None,
    ) -> None:
        self.broker = broker
        self.node = broker.node
        self.me = node_id
        self.boot = boot
        self.post = Post(node_id, outbox)
        self.routes = routes
        self.ranking = Ranking([node_id])
        self.registrar = Registrar(node_id, self.post, self.ranking)
        self.linked: set[int] = set()
        self.last_number = rng.getrandbits(48) << 8
        self.registers: dict[str, bool] = {}
        """Sessions that their registrars are to be told of when the loop turn ends."""
        self.releases: dict[str, int] = {}
        """Client ids that are no longer this node's, with epoch."""

    def number(self) -> int:
        """A number for a claim or a move that this node has not used before; nor, most likely, before its restart."""
        self.last_number += 1
        return self.last_number

    def wall_ms(self, now: int) -> int:
        """The calendar's clock, for epochs."""
        return max(now + self.node.wall_offset_ms, 1)


def user_key(username: str | None) -> int:
    """What tells users apart without naming them."""
    return 0 if username is None else hash64(username.encode())
