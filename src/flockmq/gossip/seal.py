"""Datagrams that only holders of the cookie can write or read, each of them once.

```
 datagram = version u8 | sender u64 | boot u64 | counter u64 | AES-256-GCM(body) with its 16-byte tag
            '------------ authenticated, readable ----------'
 key      = HKDF-SHA256(cookie, salt = constant, info = sender | boot): a key for each start of each node
 nonce    = counter, never used twice under one key because a boot number is never used twice

 open:  size, version --> known sender? older boot: refused --> counter seen, or too old: refused --> tag --> remember
```
Nothing is remembered of a sender before a datagram of it proved right, so strangers change nothing here. The table of
senders is bounded: the one that was silent the longest makes way.
"""

from __future__ import annotations

import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from flockmq.errors import FlockError

VERSION: Final = 1
DATAGRAM_BYTES_MAX: Final = 1_400
"""No datagram is larger: it passes any network in use today in one piece."""
TAG_BYTES: Final = 16
HEAD: Final = struct.Struct("<BQQQ")
HEAD_BYTES: Final = 25
SEAL_BYTES: Final = HEAD_BYTES + TAG_BYTES
BODY_BYTES_MAX: Final = DATAGRAM_BYTES_MAX - SEAL_BYTES
WINDOW: Final = 2_048
"""How far behind the newest datagram of a sender another may arrive and still be told from a repeat."""
SENDERS_MAX: Final = 32_768
COOKIE_BYTES_MIN: Final = 16

_SALT: Final = b"flockmq gossip datagrams 1"
_INFO: Final = struct.Struct("<QQ")
_SEEN_ALL: Final = (1 << WINDOW) - 1


class SealError(FlockError):
    """A datagram that is to be dropped without an answer."""


class Sender:
    """What is known of a node that proved the cookie."""

    def __init__(self, boot: int, cipher: AESGCM) -> None:
        self.boot = boot
        self.cipher = cipher
        self.newest = 0
        self.seen = 0
        """A bit for each of the last WINDOW counters; bit 0 is the newest."""

    def is_repeat(self, counter: int) -> bool:
        """Whether this counter was seen, or is too old to tell."""
        behind = self.newest - counter
        if behind < 0:
            return False
        return behind >= WINDOW or (self.seen >> behind) & 1 == 1

    def remember(self, counter: int) -> None:
        """This counter has been used now."""
        ahead = counter - self.newest
        if ahead > 0:
            self.seen = ((self.seen << ahead) | 1) & _SEEN_ALL if ahead < WINDOW else 1
            self.newest = counter
        else:
            self.seen |= 1 << -ahead


def derive_key(cookie: bytes, node_id: int, boot: int) -> bytes:
    """The key under which this start of this node seals."""
    return HKDF(algorithm=SHA256(), length=32, salt=_SALT, info=_INFO.pack(node_id, boot)).derive(cookie)


class Sealer:
    """Seals what this node says and opens what others said. One for each start of a node."""

    def __init__(self, cookie: bytes, node_id: int, boot: int, senders_max: int = SENDERS_MAX) -> None:
        if len(cookie) < COOKIE_BYTES_MIN:
            raise FlockError(
                f"The cookie has {len(cookie)} bytes; it needs at least {COOKIE_BYTES_MIN}, drawn at random. "
                "Remove the cookie file to have a new one made, and copy that to the other nodes."
            )
        self._cookie = cookie
        self.node_id = node_id
        self._boot = boot
        self._cipher = AESGCM(derive_key(cookie, node_id, boot))
        self._counter = 0
        self._senders_max = senders_max
        self._senders: dict[int, Sender] = {}  # the longest silent first
        self.refused = 0
        """Datagrams that were dropped: forged, repeated, from an older start, or no datagrams of ours."""

    def seal(self, body: bytes) -> bytes:
        """A datagram that holds this body."""
        if len(body) > BODY_BYTES_MAX:
            raise FlockError(f"A datagram's body of {len(body):,} bytes is over the limit of {BODY_BYTES_MAX:,}.")
        self._counter += 1
        head = HEAD.pack(VERSION, self.node_id, self._boot, self._counter)
        return head + self._cipher.encrypt(self._counter.to_bytes(12, "little"), body, head)

    def open(self, datagram: bytes) -> tuple[int, int, bytes]:
        """The sender, its boot, and the message; SealError: drop it, change nothing, answer nothing."""
        try:
            return self._open(datagram)
        except SealError:
            self.refused += 1
            raise

    def _open(self, datagram: bytes) -> tuple[int, int, bytes]:
        size = len(datagram)
        if size < SEAL_BYTES or size > DATAGRAM_BYTES_MAX or datagram[0] != VERSION:
            raise SealError("This is no datagram of this version.")
        head = datagram[:HEAD_BYTES]
        node_id = int.from_bytes(head[1:9], "little")
        boot = int.from_bytes(head[9:17], "little")
        counter = int.from_bytes(head[17:25], "little")
        known = self._senders.get(node_id)
        sender = known
        if sender is not None and boot < sender.boot:
            raise SealError("The datagram is of an earlier life of its sender.")
        if sender is None or boot > sender.boot:
            sender = Sender(boot, AESGCM(derive_key(self._cookie, node_id, boot)))
        elif sender.is_repeat(counter):
            raise SealError("The datagram is a repeat.")
        try:
            body = sender.cipher.decrypt(counter.to_bytes(12, "little"), datagram[HEAD_BYTES:], head)
        except InvalidTag:
            raise SealError("The datagram is not sealed with this cluster's cookie.") from None
        sender.remember(counter)
        self._keep(node_id, sender, is_new=known is None)
        return node_id, boot, body

    def _keep(self, node_id: int, sender: Sender, *, is_new: bool) -> None:
        senders = self._senders
        if not is_new:
            del senders[node_id]  # to the end: heard of last
        elif len(senders) >= self._senders_max:
            del senders[next(iter(senders))]
        senders[node_id] = sender

    def senders(self) -> int:
        """How many senders are remembered."""
        return len(self._senders)
