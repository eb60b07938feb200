"""What a node says about itself by multicast: where it is, when it said so, and proof that it knows the cookie.

```
 magic "FMQA", version, kind | node id, time (wall clock, ms) | port, length of host, host | HMAC-SHA256 of all of it
```
The key is derived from the cookie for this purpose alone. Nothing in it is secret: a listener learns an address,
which the network shows anyway. A counter-based cipher would need its counter shared with the datagrams of gossip.

`Directory` is what comes of hearing them: bounded, and unmoved by strangers, repeats and damaged datagrams.
"""

from __future__ import annotations

import hmac
import struct
from collections import Counter
from hashlib import sha256
from typing import Final, NamedTuple

from flockmq.errors import FlockError
from flockmq.peering.contact import Contact, make_contact

DATAGRAM_BYTES_MAX: Final = 512
HERE: Final = 1
LEAVING: Final = 2
_MAGIC: Final = b"FMQA"
_HEAD: Final = struct.Struct("<4sBBQQHB")
_VERSION: Final = 1
_TAG_BYTES: Final = 32
_PURPOSE: Final = b"flockmq announcement by multicast, version 1"


class Announcement(NamedTuple):
    """One datagram, understood and proved."""

    kind: int
    node_id: int
    at_ms: int
    contact: Contact


def announcement_key(cookie: bytes) -> bytes:
    """The key that announcements are proved with."""
    if not cookie:
        raise FlockError("Announcements by multicast need a cookie, and this node has none.")
    return hmac.digest(cookie, _PURPOSE, sha256)


def encode(key: bytes, said: Announcement) -> bytes:
    """A datagram."""
    host = said.contact.host.encode()
    if len(host) > 255:
        raise FlockError(f"The host {said.contact.host!r} is too long to be announced; 255 bytes are the most.")
    head = _HEAD.pack(_MAGIC, _VERSION, said.kind, said.node_id, said.at_ms, said.contact.port, len(host))
    body = head + host
    return body + hmac.digest(key, body, sha256)


def decode(key: bytes, datagram: bytes) -> Announcement | None:
    """What a datagram says; None when its sender did not know the cookie, or it is not one of ours."""
    if not _HEAD.size + _TAG_BYTES < len(datagram) <= DATAGRAM_BYTES_MAX or not datagram.startswith(_MAGIC):
        return None
    body = datagram[:-_TAG_BYTES]
    if not hmac.compare_digest(hmac.digest(key, body, sha256), datagram[-_TAG_BYTES:]):
        return None
    _, version, kind, node_id, at_ms, port, length = _HEAD.unpack_from(body)
    host = body[_HEAD.size :]
    if version != _VERSION or length != len(host):
        return None
    try:
        return Announcement(kind, node_id, at_ms, make_contact(host.decode(), port))
    except (FlockError, UnicodeDecodeError):
        return None


class _Heard(NamedTuple):
    contact: Contact
    said_at_ms: int
    heard_at_ms: int
    left: bool


class Directory:
    """The nodes whose announcements were heard."""

    def __init__(self, key: bytes, node_id: int, expiry_ms: int, clock_skew_ms_max: int, nodes_max: int) -> None:
        self._key = key
        self._node_id = node_id
        self._expiry_ms = expiry_ms
        self._skew_ms = clock_skew_ms_max
        self._nodes_max = nodes_max
        self._heard: dict[int, _Heard] = {}
        self.refused: Counter[str] = Counter()
        """Datagrams that changed nothing, by why: ``stranger``, ``clock``, ``repeat``, ``full``."""

    def hear(self, datagram: bytes, now_ms: int, wall_ms: int) -> None:
        """Take a datagram off the network, from any sender."""
        said = decode(self._key, datagram)
        if said is None:
            self.refused["stranger"] += 1
        elif said.node_id == self._node_id:
            return
        elif abs(said.at_ms - wall_ms) > self._skew_ms:
            self.refused["clock"] += 1
        else:
            self._note(said, now_ms, wall_ms)

    def _note(self, said: Announcement, now_ms: int, wall_ms: int) -> None:
        known = self._heard.get(said.node_id)
        if known is not None and said.at_ms <= known.said_at_ms:
            if said.at_ms < known.said_at_ms:  # the same moment comes once per interface and group
                self.refused["repeat"] += 1
            return
        if known is None and len(self._heard) >= self._nodes_max:
            self._forget_old(wall_ms)
            if len(self._heard) >= self._nodes_max:
                self.refused["full"] += 1
                return
        self._heard[said.node_id] = _Heard(said.contact, said.at_ms, now_ms, said.kind == LEAVING)

    def _forget_old(self, wall_ms: int) -> None:
        """Forget announcements that are too old to be repeated."""
        for node_id, heard in list(self._heard.items()):
            if wall_ms - heard.said_at_ms > self._skew_ms:
                del self._heard[node_id]

    def contacts(self, now_ms: int) -> list[Contact]:
        """The nodes that were heard lately and have not left, in order of node id."""
        found = [
            heard.contact
            for _, heard in sorted(self._heard.items())
            if not heard.left and now_ms - heard.heard_at_ms <= self._expiry_ms
        ]
        return list(dict.fromkeys(found))
