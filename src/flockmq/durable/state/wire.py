"""Questions about the cluster state between nodes, as they travel in calls. Little-endian.

```
 META_SUBMIT   envelope                             --> status, index, result     put this command into group 0's log
 META_PULL     index, index of a state, position    --> COMMANDS index, commands | STATE index, size, crc, piece
 META_HEAD     -                                    --> index                     all that is committed is up to here
 META_MEMBERS  group                                --> index, configuration      the members of a group, by its leader
```
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.cluster.commands import RefusedError, Result, decode_result, encode_result
from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.peering.fields import Reader, large
from flockmq.raft.configuration import Configuration, decode_configuration

COMMAND_BYTES_MAX: Final = 900 * 1024
"""An envelope must fit into a call, there and back."""
PIECE_BYTES_MAX: Final = 480 * 1024
STATE_BYTES_MAX: Final = 256 * 1024 * 1024
"""A whole state that announces more is not taken in."""

DONE: Final = 1
"""It is in the log; index and result follow."""
NOT_DONE: Final = 2
"""It is certainly not in the log; another node may take it."""
MAYBE: Final = 3
"""No node can say whether it is in the log."""

COMMANDS: Final = 1
STATE: Final = 2

_ANSWER: Final = struct.Struct("<BQ")
_PULL: Final = struct.Struct("<QQI")
_STATE: Final = struct.Struct("<BQIII")
_U64: Final = struct.Struct("<Q")


class Answer:
    """What became of a command that another node was asked to submit."""

    def __init__(self, status: int, index: int = 0, result: Result | None = None) -> None:
        self.status = status
        self.index = index
        self.result = result


class Pull:
    """What is asked for: commands after ``index``, or the state of ``state_index`` from ``position`` on."""

    def __init__(self, index: int, state_index: int = 0, position: int = 0) -> None:
        self.index = index
        self.state_index = state_index
        self.position = position


class Pulled:
    """The answer. COMMANDS: those after ``index``. STATE: a piece of the state of ``index``."""

    def __init__(self, kind: int, index: int) -> None:
        self.kind = kind
        self.index = index
        self.commands: list[bytes] = []
        self.size = 0
        self.checksum = 0
        self.position = 0
        self.piece = b""


def encode_answer(answer: Answer) -> bytes:
    """As it travels."""
    head = _ANSWER.pack(answer.status, answer.index)
    return head if answer.result is None else head + encode_result(answer.result)


def decode_answer(body: bytes) -> Answer:
    """Read ``encode_answer``."""
    if len(body) < _ANSWER.size:
        raise _wrong("an answer that is cut off")
    status, index = _ANSWER.unpack_from(body)
    if status != DONE:
        return Answer(status, index)
    try:
        return Answer(status, index, decode_result(body[_ANSWER.size :]))
    except RefusedError as error:
        raise _wrong("a result that can't be read") from error


def encode_pull(pull: Pull) -> bytes:
    """As it travels."""
    return _PULL.pack(pull.index, pull.state_index, pull.position)


def decode_pull(body: bytes) -> Pull:
    """Read ``encode_pull``."""
    if len(body) != _PULL.size:
        raise _wrong("a pull of the wrong length")
    index, state_index, position = _PULL.unpack(body)
    return Pull(index, state_index, position)


def encode_commands(index: int, commands: list[bytes]) -> bytes:
    """Commands after an index."""
    parts = [_ANSWER.pack(COMMANDS, index)]
    parts += [large(data) for data in commands]
    return b"".join(parts)


def encode_piece(index: int, size: int, checksum: int, position: int, piece: bytes) -> bytes:
    """A piece of a whole state."""
    return _STATE.pack(STATE, index, size, checksum, position) + piece


def decode_pulled(body: bytes) -> Pulled:
    """Read ``encode_commands`` or ``encode_piece``."""
    reader = Reader(body)
    pulled = Pulled(reader.u8(), reader.u64())
    if pulled.kind == COMMANDS:
        while reader.pos < reader.end:
            pulled.commands.append(reader.large(COMMAND_BYTES_MAX))
    elif pulled.kind == STATE:
        pulled.size = reader.u32()
        pulled.checksum = reader.u32()
        pulled.position = reader.u32()
        pulled.piece = body[reader.pos :]
        if pulled.size > STATE_BYTES_MAX or pulled.position + len(pulled.piece) > pulled.size:
            raise _wrong("a piece of a state that does not fit")
    else:
        raise _wrong(f"an answer of kind {pulled.kind}")
    return pulled


def encode_number(number: int) -> bytes:
    """An index, or a group."""
    return _U64.pack(number)


def decode_number(body: bytes) -> int:
    """Read ``encode_number``."""
    if len(body) != _U64.size:
        raise _wrong("a number of the wrong length")
    number: int = _U64.unpack(body)[0]
    return number


def encode_members(index: int, configuration: Configuration) -> bytes:
    """The members of a group, and where in its log they stand."""
    return _U64.pack(index) + configuration.encode()


def decode_members(body: bytes) -> tuple[int, Configuration]:
    """Read ``encode_members``."""
    if len(body) < _U64.size:
        raise _wrong("members that are cut off")
    try:
        return decode_number(body[: _U64.size]), decode_configuration(body[_U64.size :])
    except ValueError as error:
        raise _wrong(str(error)) from error


def _wrong(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        reasons.PROTOCOL_ERROR, f"Another node sent {what} about the cluster state; do all nodes run the same version?"
    )
