"""What clients and bare nodes say to each other: frames (``wire/frames.py``) that begin with a byte for their kind.

```
 client --> node                                            node --> client
 APPEND  group | payload                                    COUNTS   committed | refused | unknown
         one message; messages of a loop turn share a batch          messages of this connection since the last one
 RECORD  group | number | payload                           OUTCOME  number | what | offset
         the same, each answered for itself
 READ    group | number                                              ... and the offset behind the last record, when it
         everything that was committed before                        is certain; refused: ask another node
 STATUS                                                     STATUS   JSON
```
Little-endian. Between test processes on one machine only: nothing is authenticated, nothing negotiated.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from flockmq.wire.frames import frame_head

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024

APPEND: Final = 1
RECORD: Final = 2
STATUS: Final = 3
READ: Final = 4
COUNTS: Final = 1
OUTCOME: Final = 2

_APPEND: Final = struct.Struct("<BI")
_RECORD: Final = struct.Struct("<BIQ")
_COUNTS: Final = struct.Struct("<BIII")
_OUTCOME: Final = struct.Struct("<BQBq")

APPEND_BYTES: Final = _APPEND.size
"""The payload of an APPEND begins here."""


def framed(body: bytes) -> bytes:
    """A frame with its head."""
    return frame_head(len(body)) + body


def append_frame(group: int, payload: bytes) -> bytes:
    """One message."""
    return framed(_APPEND.pack(APPEND, group) + payload)


def record_frame(group: int, number: int, payload: bytes) -> bytes:
    """One message; ``number`` comes back with its outcome."""
    return framed(_RECORD.pack(RECORD, group, number) + payload)


def read_frame(group: int, number: int) -> bytes:
    """How far does this log reach?"""
    return framed(_RECORD.pack(READ, group, number))


def read_record(body: bytes) -> tuple[int, int, bytes]:
    """(group, number, payload)."""
    _, group, number = _RECORD.unpack_from(body)
    return group, number, body[_RECORD.size :]


def counts_frame(committed: int, refused: int, unknown: int) -> bytes:
    """What became of messages."""
    return framed(_COUNTS.pack(COUNTS, committed, refused, unknown))


def read_counts(body: bytes) -> tuple[int, int, int]:
    """(committed, refused, unknown)."""
    _, committed, refused, unknown = _COUNTS.unpack(body)
    return committed, refused, unknown


def outcome_frame(number: int, what: int, offset: int) -> bytes:
    """What became of a message: a kind of ``raft/senders.py``, and its offset when it is committed."""
    return framed(_OUTCOME.pack(OUTCOME, number, what, offset))


def read_outcome(body: bytes) -> tuple[int, int, int]:
    """(number, what, offset)."""
    _, number, what, offset = _OUTCOME.unpack(body)
    return number, what, offset


def status_request() -> bytes:
    """How are you?"""
    return framed(bytes([STATUS]))


def status_frame(status: dict[str, Any]) -> bytes:
    """That is how."""
    return framed(bytes([STATUS]) + json.dumps(status).encode())


def read_status(body: bytes) -> dict[str, Any]:
    """The same as a dictionary."""
    status: dict[str, Any] = json.loads(body[1:])
    return status
