"""Which node decides about a client id: the same answer on every node that sees the same members, without asking.

```
 client id --hash--> 64 bits --.
                               +--> mix --> weight; the node with the highest decides, the next ones hold copies
 node id ----hash--> 64 bits --'
```
When a node comes or goes, only the client ids that it wins or had won change hands (rendezvous hashing).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
ODD_ONE: Final = 0x9E37_79B9_7F4A_7C15
ODD_TWO: Final = 0xD6E8_FEB8_6659_FD93


def hash64(data: bytes) -> int:
    """64 bits of a hash that is the same everywhere and for ever; never 0."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") or 1


def weight(client_key: int, node_key: int) -> int:
    """How much a node wants a client id: two rounds of multiplying and folding."""
    mixed = (client_key ^ node_key) * ODD_ONE & MASK
    mixed = (mixed ^ mixed >> 32) * ODD_TWO & MASK
    return mixed ^ mixed >> 32


class Ranking:
    """A set of nodes, ready to be ranked for any client id. A value: another set is another ranking."""

    def __init__(self, members: Iterable[int]) -> None:
        self.members: list[int] = sorted(set(members))
        self.keys: list[int] = [hash64(member.to_bytes(8, "little")) for member in self.members]
        self.digest: int = hash64(b"".join([member.to_bytes(8, "little") for member in self.members]))
        """Tells two sets of members apart."""

    def affordable(self, budget: int) -> int:
        """How many client ids can be ranked in the time that ``budget`` of them take with a few nodes."""
        return max(budget * 4 // (len(self.members) + 1), 10)

    def first(self, client_id: str) -> int:
        """The node that decides about a client id; 0 when there are no nodes."""
        members = self.members
        if len(members) == 1:
            return members[0]
        client_key = hash64(client_id.encode())
        keys = self.keys
        best = 0
        most = -1
        for index in range(len(keys)):
            wanted = weight(client_key, keys[index])
            if wanted >= most:
                most = wanted
                best = members[index]
        return best

    def top(self, client_id: str, count: int, without: int) -> list[int]:
        """The first nodes for a client id, one of them left out."""
        client_key = hash64(client_id.encode())
        weights = [
            (weight(client_key, self.keys[index]), member)
            for index, member in enumerate(self.members)
            if member != without
        ]
        weights.sort(reverse=True)
        return [member for _, member in weights[:count]]
