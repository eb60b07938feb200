"""Claims about members as they travel, in datagrams and in lists.

```
 claim    head u8 | node u64 | boot u64 | incarnation u32 | source u64 (SUSPECT only) | details (if the head says so)
 head     state in bits 0-1, details follow in bit 2
 details  length u16 | port u16 | role u8 | name length u8 | host length u8 | version length u8 | name | host | version
```
Most claims that arrive are old news. Details are therefore cut out as they are and read only when they are needed.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.errors import FlockError
from flockmq.gossip.member import (
    ALIVE,
    HOST_BYTES_MAX,
    INCARNATION_MAX,
    NAME_BYTES_MAX,
    SUSPECT,
    VERSION_BYTES_MAX,
    Member,
)

HEAD: Final = struct.Struct("<BQQI")
HEAD_BYTES: Final = 21
SOURCE_BYTES: Final = 8
DETAILS: Final = struct.Struct("<HBBBB")
DETAILS_BYTES: Final = 6
LENGTH_BYTES: Final = 2
DETAILS_BYTES_MAX: Final = DETAILS_BYTES + NAME_BYTES_MAX + HOST_BYTES_MAX + VERSION_BYTES_MAX
CLAIM_BYTES_MAX: Final = HEAD_BYTES + SOURCE_BYTES + LENGTH_BYTES + DETAILS_BYTES_MAX

_STATE: Final = 3
_HAS_DETAILS: Final = 4


class GossipError(FlockError):
    """What another node said can't be read: drop the datagram, or close the link."""


class Claim:
    """What one node says about another."""

    def __init__(self, node_id: int, boot: int, incarnation: int, state: int, source: int, details: bytes) -> None:
        self.node_id = node_id
        self.boot = boot
        self.incarnation = incarnation
        self.state = state
        self.source = source
        """The node that suspects; 0 for other claims."""
        self.details = details
        """Not read yet; empty when the claim has none."""

    def to_member(self, cluster_id: int) -> Member:
        """The member that the details describe."""
        details = self.details
        if len(details) < DETAILS_BYTES:
            raise GossipError("A claim lacks the details of its node.")
        port, role, name_size, host_size, version_size = DETAILS.unpack_from(details)
        host_at = DETAILS_BYTES + name_size
        version_at = host_at + host_size
        if version_at + version_size != len(details) or name_size == 0 or host_size == 0 or port == 0:
            raise GossipError("The details of a node don't add up.")
        if version_size > VERSION_BYTES_MAX:
            raise GossipError("The version of a node is longer than any version.")
        try:
            name = details[DETAILS_BYTES:host_at].decode()
            host = details[host_at:version_at].decode()
            version = details[version_at:].decode()
        except UnicodeDecodeError:
            raise GossipError("The details of a node are not UTF-8.") from None
        return Member(
            self.node_id, self.boot, name, host, port, self.incarnation, self.state, version, role, cluster_id
        )


def encode_details(member: Member) -> bytes:
    """Name, address, version and role."""
    name = member.name.encode()
    host = member.host.encode()
    version = member.version.encode()
    if not 0 < len(name) <= NAME_BYTES_MAX or not 0 < len(host) <= HOST_BYTES_MAX or len(version) > VERSION_BYTES_MAX:
        raise GossipError(
            f"A node's name and host must have 1 to {NAME_BYTES_MAX} bytes each and its version at most "
            f"{VERSION_BYTES_MAX}: {member!r} can't be told to others."
        )
    return DETAILS.pack(member.port, member.role, len(name), len(host), len(version)) + name + host + version


def encode_claim(member: Member, source: int = 0, *, brief: bool = False) -> bytes:
    """What this node holds of a member; brief leaves the details out."""
    head = member.state if brief else member.state | _HAS_DETAILS
    claim = HEAD.pack(head, member.node_id, member.boot, member.incarnation)
    if member.state == SUSPECT:
        claim += source.to_bytes(8, "little")
    if brief:
        return claim
    details = encode_details(member)
    return claim + len(details).to_bytes(2, "little") + details


def read_claims(body: bytes, position: int, count_max: int) -> list[Claim]:
    """All claims from here to the end."""
    claims: list[Claim] = []
    end = len(body)
    while position < end:
        if end - position < HEAD_BYTES:
            raise GossipError("A claim is cut off.")
        if len(claims) >= count_max:
            raise GossipError(f"There are more than {count_max} claims.")
        head, node_id, boot, incarnation = HEAD.unpack_from(body, position)
        position += HEAD_BYTES
        if head > (_STATE | _HAS_DETAILS) or incarnation > INCARNATION_MAX or node_id == 0:
            raise GossipError("A claim's head is wrong.")
        state = head & _STATE
        source = 0
        if state == SUSPECT:
            source = int.from_bytes(body[position : position + SOURCE_BYTES], "little")
            position += SOURCE_BYTES
        details = b""
        if head & _HAS_DETAILS:
            size = int.from_bytes(body[position : position + LENGTH_BYTES], "little")
            position += LENGTH_BYTES
            if size > DETAILS_BYTES_MAX:
                raise GossipError("The details of a node are longer than any can be.")
            details = body[position : position + size]
            position += size
        elif state == ALIVE:
            raise GossipError("A claim that a node is alive must carry its name and address.")
        if position > end:
            raise GossipError("A claim is cut off.")
        claims.append(Claim(node_id, boot, incarnation, state, source, details))
    return claims
