"""What nodes say to each other about sessions, and the post that carries it.

```
 claimant --CLAIM--> registrar --REVOKE--> old owner          FOUND_NONE: nothing to move, or ended (clean start)
     ^                   |                    |               HOLD_ON: there is something, it takes a while
     |------GRANT--------'                    |
     '------MOVE ... <------ MOVED, INSTALLED-'               every chunk is acknowledged and sent again until it is

 owner ----REGISTER, RELEASE, SYNCED--> registrar             a registrar that lacks knowledge: ASK --> ANSWER
```
All messages have the same head, so that one reader checks all of them. What a node has to say to itself takes the same
way, without encoding.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.peering.channels import SESSIONS
from flockmq.peering.fields import NUMBER_MAX, Reader, malformed, sized

if TYPE_CHECKING:
    from flockmq.peering.ports import Outbox

CLAIM: Final = 1
"""``node`` wants ``client_id``; ``nonce`` names the wish, ``epoch`` is the newest it knows, ``user`` the client's."""
GRANT: Final = 2
"""The client id is yours under ``epoch``; ``node`` had it before and will send what it has (0: no node had it)."""
REFUSE: Final = 3
"""The client id is not yours, because ``value``: a reason code."""
REVOKE: Final = 4
"""The client id is now ``node``'s under ``epoch``: disconnect its client, send what you have to ``node``."""
FOUND_NONE: Final = 5
"""Nothing to move. ``epoch``: of the grant; ``value``: a newer epoch under which the sender has it (0: it has not)."""
HOLD_ON: Final = 6
REGISTER: Final = 7
"""``data``: client ids that the sender has, each with epoch and user."""
RELEASE: Final = 8
"""``data``: client ids that the sender has no more, each with epoch."""
SYNC: Final = 9
"""Here begins the list of all client ids the sender has that are the receiver's to decide; ``nonce`` is its boot."""
SYNCED: Final = 10
"""All owners' lists that follow from the set of members with digest ``value`` have been sent."""
ASK: Final = 11
"""Do you have ``client_id``?"""
ANSWER: Final = 12
"""``epoch`` (0: no) and ``user`` of what was asked as ``nonce``."""
MOVE: Final = 13
"""A chunk of a session; see ``moves``."""
MOVED: Final = 14
"""A chunk has arrived."""
INSTALLED: Final = 15
"""The session is in its new place and every node knows it: send what came meanwhile."""
ABORT: Final = 16
"""The session can't be used here: forget it."""

WANT: Final = 19
"""Begin with SYNC: list all you have that is mine to decide; what you told me before may not have been heard."""
FENCE: Final = 17
"""Answer this: what you sent me before has arrived then. ``flags``, ``nonce`` and ``node`` come back."""
FENCED: Final = 18

CLEAN: Final = 1
"""Flag of a claim: the client wants no old session."""
CHECKS_USER: Final = 2
"""Flag of a claim: a session of another user is not to be had."""
PASSED_ON: Final = 4
"""Flag of a claim: the first node to get it knew another registrar."""
IS_REST: Final = 8
"""Flag of a chunk: it is of what came after the session was encoded."""
FOR_DEPARTURE: Final = 1
"""Flag of a fence: it is the old owner's."""
HOPS: Final = 0x70
HOP: Final = 0x10
"""Flags of a revocation: how often it was passed on to where the session is moving."""

HEAD: Final = struct.Struct("<BBQQQQQ")
CHUNK_BYTES_MAX: Final = 262_144
BODY_BYTES_MAX: Final = 262_144
"""Small messages are put together up to here."""
ENTRY: Final = struct.Struct("<QQ")


class Message:
    """One thing said about sessions. What the numbers mean depends on the kind."""

    def __init__(
        self,
        kind: int,
        client_id: str = "",
        *,
        flags: int = 0,
        nonce: int = 0,
        epoch: int = 0,
        node: int = 0,
        user: int = 0,
        value: int = 0,
        data: bytes = b"",
    ) -> None:
        self.kind = kind
        self.client_id = client_id
        self.flags = flags
        self.nonce = nonce
        self.epoch = epoch
        self.node = node
        self.user = user
        self.value = value
        self.data = data

    def encode(self) -> bytes:
        """To bytes."""
        head = HEAD.pack(self.kind, self.flags, self.nonce, self.epoch, self.node, self.user, self.value)
        return head + sized(self.client_id.encode()) + len(self.data).to_bytes(4, "little") + self.data


def decode_messages(body: bytes) -> list[Message]:
    """All messages of a body."""
    found: list[Message] = []
    reader = Reader(body)
    while reader.pos < reader.end:
        pos = reader.skip(HEAD.size)
        kind, flags, nonce, epoch, node, user, value = HEAD.unpack_from(body, pos)
        if epoch > NUMBER_MAX:
            raise malformed("an epoch that is too large")
        client_id = reader.text()
        data = reader.large(CHUNK_BYTES_MAX)
        found.append(
            Message(
                kind, client_id, flags=flags, nonce=nonce, epoch=epoch, node=node, user=user, value=value, data=data
            )
        )
    return found


def encode_entry(client_id: str, epoch: int, user: int) -> bytes:
    """One client id in the data of REGISTER or RELEASE."""
    return ENTRY.pack(epoch, user) + sized(client_id.encode())


def decode_entries(data: bytes) -> list[tuple[str, int, int]]:
    """Client ids with epoch and user."""
    found: list[tuple[str, int, int]] = []
    reader = Reader(data)
    while reader.pos < reader.end:
        epoch = reader.number()
        user = reader.u64()
        found.append((reader.text(), epoch, user))
    return found


class Post:
    """Collects what is to be said in a loop turn; what is for the node itself waits in ``own``."""

    def __init__(self, me: int, outbox: Outbox) -> None:
        self.me = me
        self.outbox = outbox
        self.own: list[Message] = []
        self.waiting: dict[int, list[bytes]] = {}

    def say(self, peer: int, message: Message) -> None:
        """Say something to a node; it may be this one."""
        if peer == self.me:
            self.own.append(message)
            return
        waiting = self.waiting.get(peer)
        if waiting is None:
            waiting = []
            self.waiting[peer] = waiting
        waiting.append(message.encode())

    def flush(self) -> None:
        """The loop turn ends: hand over what was collected."""
        if not self.waiting:
            return
        taken = self.waiting
        self.waiting = {}
        for peer, messages in taken.items():
            body: list[bytes] = []
            size = 0
            for message in messages:
                if body and size + len(message) > BODY_BYTES_MAX:
                    self.outbox.send(peer, SESSIONS, b"".join(body))
                    body = []
                    size = 0
                body.append(message)
                size += len(message)
            self.outbox.send(peer, SESSIONS, b"".join(body))
