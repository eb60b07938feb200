"""A member as one node sees it, and which of two claims about it is the newer one.

```
 precedence:  boot (a later start of the node beats all that was said of earlier ones)
              then incarnation (raised by the node itself alone, to contradict)
              then ALIVE < SUSPECT < DEAD < LEFT
```
So gossip may arrive late, twice and in any order: all nodes end with the same claim.
"""

from __future__ import annotations

from typing import Final

ALIVE: Final = 0
SUSPECT: Final = 1
DEAD: Final = 2
LEFT: Final = 3
STATE_NAMES: Final = ("alive", "suspect", "dead", "left")

CORE: Final = 0
EDGE: Final = 1

NAME_BYTES_MAX: Final = 255
HOST_BYTES_MAX: Final = 255
VERSION_BYTES_MAX: Final = 63
INCARNATION_MAX: Final = 0x7FFF_FFFF
"""No node gets there by contradicting: one refutation a second for 68 years."""

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


class Member:
    """One node in one of its lives. Never changed: news makes a new one."""

    def __init__(
        self,
        node_id: int,
        boot: int,
        name: str,
        host: str,
        port: int,
        incarnation: int = 0,
        state: int = ALIVE,
        version: str = "",
        role: int = CORE,
        cluster_id: int = 0,
    ) -> None:
        self.node_id = node_id
        self.boot = boot
        self.name = name
        self.host = host
        self.port = port
        self.incarnation = incarnation
        self.state = state
        self.version = version
        self.role = role
        self.cluster_id = cluster_id

    @property
    def is_live(self) -> bool:
        """Alive, or suspected only."""
        return self.state <= SUSPECT

    def with_claim(self, incarnation: int, state: int) -> Member:
        """The same node with another incarnation and state."""
        return Member(
            self.node_id,
            self.boot,
            self.name,
            self.host,
            self.port,
            incarnation,
            state,
            self.version,
            self.role,
            self.cluster_id,
        )

    def same_details(self, other: Member) -> bool:
        """Whether name, address, version and role are the same."""
        return (
            self.host == other.host
            and self.port == other.port
            and self.name == other.name
            and self.version == other.version
            and self.role == other.role
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Member)
            and self.node_id == other.node_id
            and self.boot == other.boot
            and self.incarnation == other.incarnation
            and self.state == other.state
            and self.cluster_id == other.cluster_id
            and self.same_details(other)
        )

    def __hash__(self) -> int:
        return hash((self.node_id, self.boot, self.incarnation, self.state))

    def __repr__(self) -> str:
        state = STATE_NAMES[self.state]
        return f"<{self.name} {self.node_id:016x} at {self.host}:{self.port} {state} {self.boot}.{self.incarnation}>"


def is_newer(boot: int, incarnation: int, state: int, known: Member) -> bool:
    """Whether a claim beats what is known."""
    if boot != known.boot:
        return boot > known.boot
    if incarnation != known.incarnation:
        return incarnation > known.incarnation
    return state > known.state


def fingerprint(node_id: int, boot: int, incarnation: int) -> int:
    """64 bits that stand for one live member in a digest of the list."""
    mixed = (node_id * 0x9E3779B97F4A7C15 + boot * 0xC2B2AE3D27D4EB4F + (incarnation + 1) * 0x165667B19E3779F9) & _MASK
    mixed ^= mixed >> 32
    mixed = mixed * 0xD6E8FEB86659FD93 & _MASK
    return mixed ^ (mixed >> 29)


JOINED: Final = 1
"""A node was not known, or returned from death or leave in a new life."""
ALIVE_AGAIN: Final = 2
"""A suspect or a dead node contradicted."""
SUSPECTED: Final = 3
DIED: Final = 4
HAS_LEFT: Final = 5
CHANGED: Final = 6
"""A live node has another address, name, version or role."""
CONFLICT: Final = 7
"""Two live nodes use one name or address, or another process runs with this node's id: an operator has to look."""
EVENT_NAMES: Final = ("", "joined", "alive", "suspect", "dead", "left", "changed", "conflict")


class MemberEvent:
    """Something happened to a member."""

    def __init__(self, kind: int, member: Member) -> None:
        self.kind = kind
        self.member = member

    def __repr__(self) -> str:
        return f"<{EVENT_NAMES[self.kind]} {self.member!r}>"
