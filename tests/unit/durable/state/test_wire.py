"""What nodes ask each other about the cluster state reads back as it was said, and nonsense is refused."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import Result
from flockmq.durable.state.wire import (
    COMMANDS,
    DONE,
    NOT_DONE,
    STATE,
    Answer,
    Pull,
    decode_answer,
    decode_members,
    decode_number,
    decode_pull,
    decode_pulled,
    encode_answer,
    encode_commands,
    encode_members,
    encode_number,
    encode_piece,
    encode_pull,
)
from flockmq.errors import RemoteProtocolError
from flockmq.raft.configuration import Configuration


def test_answers() -> None:
    answer = decode_answer(encode_answer(Answer(DONE, 7, Result(False, "no", None, "conflict"))))
    assert (answer.status, answer.index) == (DONE, 7)
    assert answer.result == Result(False, "no", None, "conflict")
    assert decode_answer(encode_answer(Answer(NOT_DONE))).status == NOT_DONE


def test_pulls() -> None:
    pull = decode_pull(encode_pull(Pull(5, 9, 100)))
    assert (pull.index, pull.state_index, pull.position) == (5, 9, 100)
    commands = decode_pulled(encode_commands(5, [b"a", b"", b"ccc"]))
    assert (commands.kind, commands.index, commands.commands) == (COMMANDS, 5, [b"a", b"", b"ccc"])
    piece = decode_pulled(encode_piece(9, 10, 77, 4, b"567"))
    assert (piece.kind, piece.index, piece.size, piece.checksum, piece.position, piece.piece) == (
        STATE,
        9,
        10,
        77,
        4,
        b"567",
    )


def test_members_and_numbers() -> None:
    configuration = Configuration((1, 2), (), (3,))
    assert decode_members(encode_members(12, configuration)) == (12, configuration)
    assert decode_number(encode_number(1 << 60)) == 1 << 60


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        (decode_answer, b"\x01"),
        (decode_answer, encode_answer(Answer(DONE, 1)) + b"\xff"),
        (decode_pull, b"short"),
        (decode_pulled, b""),
        (decode_pulled, b"\x07" + bytes(8)),
        (decode_pulled, encode_commands(1, [b"abc"])[:-1]),
        (decode_pulled, encode_piece(1, 3, 0, 2, b"ab")),
        (decode_pulled, encode_piece(1, 1 << 31, 0, 0, b"ab")),
        (decode_number, b"1"),
        (decode_members, b"1"),
        (decode_members, bytes(9)),
    ],
)
def test_nonsense_ends_the_link(decode: object, body: bytes) -> None:
    assert callable(decode)
    with pytest.raises(RemoteProtocolError):
        decode(body)
