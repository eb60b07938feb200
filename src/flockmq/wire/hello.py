"""The first words between two nodes: both prove that they know the cookie, and neither reveals it.

```
 caller                                                  callee
 HELLO   ids, nonce, TLS or not, mac  ------------------> mac is wrong: not one byte in return
          ( TLS 1.3 begins here, when HELLO asks for it )
          checks the proof       <---------------------- WELCOME  ids, nonce, proof
 PROOF   proof, name, version ---------------------------> checks the proof; is the caller welcome?
                                 <---------------------- ANSWER   ready, name, version | refused, why
```
Every proof is an HMAC-SHA256 under a key made of the cookie, over the role of its maker and everything that both
have said so far: versions, ids, boots and cluster ids of both, both nonces, and the certificates of both when there is
TLS. So a proof is worth nothing on another connection, in the other direction, or behind a proxy that ends the TLS of
two nodes and passes their words on. The mac of HELLO covers HELLO alone: said to another node than the one that heard
it, it earns a WELCOME, and no more. It is there so that strangers meet silence.

HELLO is padded so that a caller gets no more bytes than it sent before the proof, TLS included.
All numbers are little-endian.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Final

from flockmq.errors import FlockError

MAGIC: Final = b"FLKL"
VERSION_LOWEST: Final = 1
VERSION_HIGHEST: Final = 1
"""Of this protocol, and of the frames that follow."""

NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
HELLO_BYTES: Final = 1_200
WANTS_TLS: Final = 1

_HELLO: Final = struct.Struct("<4sBBHQQQQ32s")
"""Magic, lowest and highest version, flags, node, boot, cluster, node that is meant (0: any), nonce."""
_WELCOME: Final = struct.Struct("<4sBBHQQQ32s")
"""Magic, version, two that are 0, node, boot, cluster, nonce."""
WELCOME_BYTES: Final = _WELCOME.size + MAC_BYTES

NAME_BYTES_MAX: Final = 255
VERSION_BYTES_MAX: Final = 63
TEXT_BYTES_MAX: Final = 512
"""Of a name and a version together, or a reason."""
_PROOF_HEAD_BYTES: Final = 2
_ANSWER_HEAD_BYTES: Final = 3

_HELLO_ROLE: Final = b"FlockMQ link, hello\0"
_CALLEE_ROLE: Final = b"FlockMQ link, callee\0"
_CALLER_ROLE: Final = b"FlockMQ link, caller\0"
_ANSWER_ROLE: Final = b"FlockMQ link, answer\0"
NO_TLS: Final = bytes(32)
"""Stands for the certificates where there are none."""

# Why not. Those from SELF to CLOSING are told to the other side, once it has proved itself.
READY: Final = 0
NOT_OURS: Final = 1
VERSION: Final = 2
COOKIE: Final = 3
SELF: Final = 4
CLUSTER: Final = 5
WRONG_NODE: Final = 6
DUPLICATE: Final = 7
OLDER: Final = 8
CLOSING: Final = 9
PLAIN: Final = 10
TIMEOUT: Final = 11
TOO_MANY: Final = 12
TLS: Final = 13
SILENCE: Final = 14
UNREACHABLE: Final = 15
REPEAT: Final = 16
NAME: Final = 17
"""Another node has the caller's name; told like those from SELF to CLOSING."""

KIND_NAMES: Final = (
    "ready", "not_ours", "version", "cookie", "self", "cluster", "wrong_node", "duplicate", "older", "closing",
    "plain", "timeout", "too_many", "tls", "silence", "unreachable", "repeat",
    "name",
)  # fmt: skip

# Where a side stands.
BEGINNING: Final = 0
WAITING: Final = 1
"""For WELCOME, or for PROOF."""
PROVED: Final = 2
"""The other side has proved itself; it is ours to go on or not."""
ASKING: Final = 3
"""Caller: the proof is out, the answer is not there."""
DONE: Final = 4
FAILED: Final = 5


class PeerInfo:
    """The ids and the name that a node claims; believed once they are proved."""

    def __init__(self, node_id: int, boot: int, cluster_id: int, name: str = "", version: str = "") -> None:
        self.node_id = node_id
        self.boot = boot
        self.cluster_id = cluster_id
        """0: it belongs to none yet."""
        self.name = name
        self.version = version


class HelloError(FlockError):
    """No link comes of this; ``kind`` is one of the reasons above, ``peer`` the other node, if it is proved."""

    def __init__(self, kind: int, text: str, peer: PeerInfo | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.peer = peer


class Caller:
    """The side that opened the connection."""

    def __init__(self, key: bytes, me: PeerInfo, meant: int, wants_tls: bool, nonce: bytes) -> None:
        """``meant``: the node that is expected there, 0 when any node is welcome. ``nonce``: 32 fresh random bytes."""
        assert len(nonce) == NONCE_BYTES
        self.stage = BEGINNING
        self.peer: PeerInfo | None = None
        """Once it is proved."""
        self.rest = b""
        """What came after the end of the handshake."""
        self._key = key
        self._me = me
        self._meant = meant
        self._said = _HELLO.pack(
            MAGIC, VERSION_LOWEST, VERSION_HIGHEST, WANTS_TLS if wants_tls else 0,
            me.node_id, me.boot, me.cluster_id, meant, nonce,
        )  # fmt: skip
        self._binding = NO_TLS
        self._buffer = b""

    def hello(self) -> bytes:
        """What to send first, in plain; ``bind`` follows when TLS does."""
        assert self.stage == BEGINNING
        self.stage = WAITING
        return sealed_hello(self._key, self._said)

    def bind(self, binding: bytes) -> None:
        """TLS has begun, with these certificates (``binding_of``)."""
        assert self.stage == WAITING
        assert not self._buffer
        self._binding = binding

    def feed(self, data: bytes) -> int:
        """Take bytes of the callee in; returns the stage. HelloError: close the connection."""
        self._buffer += data
        if self.stage == WAITING and len(self._buffer) >= WELCOME_BYTES:
            self._take_welcome()
        elif self.stage == ASKING:
            self._take_answer()
        elif self.stage != WAITING:
            self.stage = FAILED
            raise HelloError(NOT_OURS, "The node that was called speaks out of turn; look at its version.")
        return self.stage

    def proof(self) -> bytes:
        """Go on: what to send now that the callee is proved."""
        assert self.stage == PROVED
        self.stage = ASKING
        text = _pack_names(self._me)
        mac = _mac(self._key, _CALLER_ROLE, self._said, text)
        return len(text).to_bytes(_PROOF_HEAD_BYTES, "little") + text + mac

    def _take_welcome(self) -> None:
        welcome, self._buffer = self._buffer[:WELCOME_BYTES], self._buffer[WELCOME_BYTES:]
        self.stage = FAILED
        fields = welcome[: _WELCOME.size]
        magic, version, zero, zeros, node, boot, cluster, _ = _WELCOME.unpack(fields)
        if magic != MAGIC or zero or zeros or self._buffer:
            raise HelloError(NOT_OURS, "What was called is no node of FlockMQ; look at the address.")
        said = self._said + fields + self._binding
        if not compare_digest(welcome[_WELCOME.size :], _mac(self._key, _CALLEE_ROLE, said, b"")):
            raise HelloError(COOKIE, WRONG_COOKIE)
        peer = PeerInfo(node, boot, cluster)
        if not VERSION_LOWEST <= version <= VERSION_HIGHEST:
            raise HelloError(VERSION, _other_versions(version, version), peer)
        objection = objection_to(self._me, peer, self._meant)
        if objection is not None:
            raise objection
        self._said = said
        self.peer = peer
        self.stage = PROVED

    def _take_answer(self) -> None:
        buffer = self._buffer
        if len(buffer) < _ANSWER_HEAD_BYTES:
            return
        text_bytes = int.from_bytes(buffer[1:_ANSWER_HEAD_BYTES], "little")
        end = _ANSWER_HEAD_BYTES + text_bytes + MAC_BYTES
        if text_bytes > TEXT_BYTES_MAX:
            self.stage = FAILED
            raise HelloError(NOT_OURS, "The node that was called answers with too many words; look at its version.")
        if len(buffer) < end:
            return
        self.stage = FAILED
        head_and_text = buffer[: end - MAC_BYTES]
        peer = self.peer
        assert peer is not None
        if not compare_digest(buffer[end - MAC_BYTES : end], _mac(self._key, _ANSWER_ROLE, self._said, head_and_text)):
            raise HelloError(COOKIE, "The words of the called node were changed on the way; look at the network.")
        text = head_and_text[_ANSWER_HEAD_BYTES:]
        if buffer[0] != READY:
            kind = buffer[0] if buffer[0] < len(KIND_NAMES) else NOT_OURS
            raise HelloError(kind, text.decode("utf-8", "replace"), peer)
        _unpack_names(text, peer)
        self.rest = buffer[end:]
        self._buffer = b""
        self.stage = DONE


class Callee:
    """The side that listens."""

    def __init__(self, key: bytes, me: PeerInfo, nonce: bytes) -> None:
        """``nonce``: 32 fresh random bytes."""
        assert len(nonce) == NONCE_BYTES
        self.stage = BEGINNING
        self.peer: PeerInfo | None = None
        """The identity that the other node claims, from HELLO on; proved at PROVED and DONE only."""
        self.wants_tls = False
        self._key = key
        self._me = me
        self._nonce = nonce
        self._meant = 0
        self._version = VERSION_HIGHEST
        self._said = b""
        self._buffer = b""

    def knock(self, hello: bytes) -> None:
        """Take the HELLO in, all of it and nothing more. HelloError: close without a word."""
        assert self.stage == BEGINNING
        self.stage = FAILED
        if len(hello) != HELLO_BYTES or not looks_like_hello(hello):
            raise HelloError(NOT_OURS, NO_NODE)
        magic, lowest, highest, flags, node, boot, cluster, meant, _ = _HELLO.unpack(hello[: _HELLO.size])
        assert magic == MAGIC
        if not compare_digest(hello[-MAC_BYTES:], hmac_digest(self._key, _HELLO_ROLE + hello[:-MAC_BYTES], "sha256")):
            raise HelloError(COOKIE, WRONG_COOKIE)
        self._version = min(highest, VERSION_HIGHEST)
        if self._version < max(lowest, VERSION_LOWEST):
            raise HelloError(VERSION, _other_versions(lowest, highest))
        self.peer = PeerInfo(node, boot, cluster)
        self.wants_tls = bool(flags & WANTS_TLS)
        self._meant = meant
        self._said = hello[: _HELLO.size]
        self.stage = WAITING

    def caller_nonce(self) -> bytes:
        """Of the HELLO: the same twice is a repeat."""
        return self._said[_HELLO.size - NONCE_BYTES : _HELLO.size]

    def welcome(self, binding: bytes = NO_TLS) -> bytes:
        """What to send next, inside TLS if there is any: ``binding_of`` its certificates."""
        assert self.stage == WAITING
        me = self._me
        fields = _WELCOME.pack(MAGIC, self._version, 0, 0, me.node_id, me.boot, me.cluster_id, self._nonce)
        self._said += fields + binding
        return fields + _mac(self._key, _CALLEE_ROLE, self._said, b"")

    def feed(self, data: bytes) -> int:
        """Take bytes of the caller in; returns the stage. HelloError: close without a word."""
        if self.stage != WAITING:
            self.stage = FAILED
            raise HelloError(NOT_OURS, "A caller speaks out of turn; look at its version.")
        buffer = self._buffer = self._buffer + data
        if len(buffer) < _PROOF_HEAD_BYTES:
            return self.stage
        text_bytes = int.from_bytes(buffer[:_PROOF_HEAD_BYTES], "little")
        end = _PROOF_HEAD_BYTES + text_bytes + MAC_BYTES
        if text_bytes > TEXT_BYTES_MAX or len(buffer) > end:
            self.stage = FAILED
            raise HelloError(NOT_OURS, NO_NODE)
        if len(buffer) < end:
            return self.stage
        self.stage = FAILED
        text = buffer[_PROOF_HEAD_BYTES : end - MAC_BYTES]
        if not compare_digest(buffer[end - MAC_BYTES :], _mac(self._key, _CALLER_ROLE, self._said, text)):
            raise HelloError(COOKIE, "A caller repeats what it has heard, but knows no cookie; look at the network.")
        peer = self.peer
        assert peer is not None
        _unpack_names(text, peer)
        self._buffer = b""
        self.stage = PROVED
        return self.stage

    def objection(self) -> HelloError | None:
        """Why the caller, which is proved, is refused; None when it is accepted."""
        assert self.peer is not None
        return objection_to(self._me, self.peer, self._meant, called=True)

    def answer(self, refused: HelloError | None) -> bytes:
        """Say yes, or why not."""
        assert self.stage == PROVED
        kind = READY if refused is None else refused.kind
        text = _pack_names(self._me) if refused is None else str(refused).encode()[:TEXT_BYTES_MAX]
        head_and_text = bytes([kind]) + len(text).to_bytes(2, "little") + text
        self.stage = DONE if refused is None else FAILED
        return head_and_text + _mac(self._key, _ANSWER_ROLE, self._said, head_and_text)


NO_NODE: Final = "A caller does not speak the protocol between nodes; it is no node of FlockMQ."
WRONG_COOKIE: Final = (
    "The other side does not know this cluster's cookie; give all nodes the same --cookie-file or FLOCKMQ_COOKIE."
)


def looks_like_hello(beginning: bytes) -> bool:
    """Whether bytes, few as they may be, can be the beginning of a HELLO."""
    return beginning[: len(MAGIC)] == MAGIC[: len(beginning)]


def sealed_hello(key: bytes, fields: bytes) -> bytes:
    """HELLO out of its fields: filled up with zeros, and its mac."""
    padded = fields + bytes(HELLO_BYTES - MAC_BYTES - len(fields))
    return padded + hmac_digest(key, _HELLO_ROLE + padded, "sha256")


def binding_of(caller_certificate: bytes, callee_certificate: bytes) -> bytes:
    """What stands in the proofs for the certificates (DER) that both sides of a TLS connection see."""
    return sha256(sha256(caller_certificate).digest() + sha256(callee_certificate).digest()).digest()


def objection_to(me: PeerInfo, peer: PeerInfo, meant: int, called: bool = False) -> HelloError | None:
    """Why two nodes that know the same cookie have no link all the same; ``called``: ``me`` is the one called."""
    if peer.node_id == me.node_id:
        if peer.boot == me.boot:
            return HelloError(SELF, "This node called itself; leave it out of the addresses to call.", peer)
        return HelloError(
            SELF,
            f"Two nodes run with the same id {me.node_id:016x}: one is a copy of the other's data folder. Delete the "
            "file node_id in the copy, or stop it.",
            peer,
        )
    if me.cluster_id and peer.cluster_id and me.cluster_id != peer.cluster_id:
        return HelloError(
            CLUSTER,
            f"These are two clusters, {me.cluster_id:016x} and {peer.cluster_id:016x}; a node has to leave its own "
            "(flockmq cluster join) to come to the other.",
            peer,
        )
    found = me.node_id if called else peer.node_id
    if meant not in (0, found):
        return HelloError(WRONG_NODE, f"Node {meant:016x} was expected there, but {found:016x} is.", peer)
    return None


def yields_to(own_id: int, peer_id: int) -> bool:
    """Of two nodes that call each other at once, the one with the smaller id decides; does the own one obey?"""
    return own_id > peer_id


def _mac(key: bytes, role: bytes, said: bytes, text: bytes) -> bytes:
    return hmac_digest(key, role + said + text, "sha256")


def _pack_names(me: PeerInfo) -> bytes:
    name = me.name.encode()
    version = me.version.encode()
    assert len(name) <= NAME_BYTES_MAX
    assert len(version) <= VERSION_BYTES_MAX
    return bytes([len(name)]) + name + bytes([len(version)]) + version


def _unpack_names(text: bytes, peer: PeerInfo) -> None:
    try:
        name_end = 1 + text[0]
        version_end = name_end + 1 + text[name_end]
        if version_end != len(text) or text[name_end] > VERSION_BYTES_MAX:
            raise HelloError(NOT_OURS, "The other side says its name in a way that can't be read.")
        peer.name = text[1:name_end].decode()
        peer.version = text[name_end + 1 :].decode()
    except (IndexError, UnicodeDecodeError):
        raise HelloError(NOT_OURS, "The other side says its name in a way that can't be read.") from None


def _other_versions(lowest: int, highest: int) -> str:
    return (
        f"The other side speaks versions {lowest} to {highest} of the protocol between nodes, this {VERSION_LOWEST} "
        f"to {VERSION_HIGHEST}; upgrade the older one."
    )
