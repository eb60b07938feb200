"""How many persistent sessions namespaces and users have in one shard, and how many more they may have there.

```
 a claim of a new session --> its shard's leader: limit of the namespace - sessions in other shards = Room
                          --> CLAIM with that room --> applied: as many here already? refused
```
The room comes with the claim, so that all replicas decide alike. Sessions of users that are not known (anonymous
clients) count for their namespace alone.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.mqtt.namespaces import DEFAULT_NAMESPACE, INSIDE

if TYPE_CHECKING:
    from flockmq.peering.fields import Reader

NO_LIMIT: Final = 0xFFFFFFFF
_ROOM: Final = struct.Struct("<II")


class Room:
    """Most persistent sessions that the namespace of a claim, and its user, may have in the shard."""

    def __init__(self, of_namespace: int = NO_LIMIT, of_user: int = NO_LIMIT) -> None:
        self.of_namespace = of_namespace
        self.of_user = of_user

    def encode(self) -> bytes:
        """The last field of a CLAIM; empty where there is no limit."""
        if self.of_namespace == self.of_user == NO_LIMIT:
            return b""
        return _ROOM.pack(self.of_namespace, self.of_user)


def read_room(reader: Reader) -> Room:
    """Read ``Room.encode``."""
    if reader.pos == reader.end:
        return Room()
    of_namespace, of_user = _ROOM.unpack_from(reader.data, reader.skip(_ROOM.size))
    return Room(of_namespace, of_user)


def namespace_of(client: bytes) -> bytes:
    """The namespace of a client id, as tables of sessions spell client ids."""
    if not client.startswith(INSIDE):
        return DEFAULT_NAMESPACE.encode()
    return client[len(INSIDE) : client.find(b"/", len(INSIDE))]


class SessionCounts:
    """See the module."""

    def __init__(self) -> None:
        self.by_namespace: dict[bytes, int] = {}
        self.by_user: dict[bytes, int] = {}
        """By user name with its namespace, as records have it."""

    def add(self, client: bytes, user: bytes | None, sign: int) -> None:
        """A persistent session came (1) or went (-1)."""
        _add(self.by_namespace, namespace_of(client), sign)
        if user is not None:
            _add(self.by_user, user, sign)

    def is_namespace_full(self, client: bytes, room: Room) -> bool:
        """Whether the namespace of a client has as many sessions here as it may."""
        if room.of_namespace == NO_LIMIT:
            return False
        return self.by_namespace.get(namespace_of(client), 0) >= room.of_namespace

    def is_user_full(self, user: bytes | None, room: Room) -> bool:
        """Whether a user has as many sessions here as it may."""
        return user is not None and room.of_user != NO_LIMIT and self.by_user.get(user, 0) >= room.of_user


def _add(counts: dict[bytes, int], key: bytes, sign: int) -> None:
    count = counts.get(key, 0) + sign
    if count:
        counts[key] = count
    else:
        del counts[key]
