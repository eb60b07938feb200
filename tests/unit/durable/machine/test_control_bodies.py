"""Bodies of control batches, there and back; and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.durable.machine.control_bodies import (
    ADOPT,
    COMMIT,
    DELETE,
    FORGET,
    RELEASE,
    RESET,
    CursorCommand,
    Statement,
    cursor_body,
    encode_commands,
    encode_statements,
    marker_body,
    read_commands,
    read_cursor_body,
    read_marker_body,
    read_statements,
)
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import Reader

COMMANDS = st.lists(
    st.builds(
        CursorCommand,
        st.sampled_from([COMMIT, RESET, DELETE]),
        st.binary(min_size=1, max_size=20),
        st.integers(0, 1 << 60),
    ),
    max_size=10,
)
STATEMENTS = st.lists(
    st.builds(
        Statement,
        st.sampled_from([RELEASE, ADOPT, FORGET]),
        st.binary(max_size=20),
        st.integers(0, 1 << 60),
        st.lists(st.integers(1, 65_535), max_size=10),
        st.integers(0, 1 << 60),
    ),
    max_size=10,
)


def fields(statement: Statement) -> tuple[int, bytes, int, list[int], int]:
    return statement.what, statement.client, statement.epoch, statement.ids, statement.since


@given(COMMANDS, st.integers(0, 1 << 50))
def test_cursor_commands(commands: list[CursorCommand], wall_ms: int) -> None:
    wanted = [(command.what, command.name, command.offset) for command in commands]
    again = read_commands(Reader(encode_commands(commands)))
    assert [(command.what, command.name, command.offset) for command in again] == wanted
    body = read_cursor_body(cursor_body(wall_ms, commands))
    assert body is not None
    assert body.wall_ms == wall_ms
    assert [(command.what, command.name, command.offset) for command in body.commands] == wanted


@given(STATEMENTS, st.integers(0, 1 << 50))
def test_statements(statements: list[Statement], wall_ms: int) -> None:
    again = read_statements(Reader(encode_statements(statements)))
    assert [fields(one) for one in again] == [fields(one) for one in statements]
    body = read_marker_body(marker_body(wall_ms, statements))
    assert body is not None
    assert body.wall_ms == wall_ms
    assert sorted(fields(one) for one in body.statements) == sorted(fields(one) for one in statements)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_not(data: bytes) -> None:
    read_cursor_body(data)
    read_marker_body(data)
    for read in (read_commands, read_statements):
        try:
            read(Reader(data))
        except RemoteProtocolError:
            continue


def test_names_are_bounded() -> None:
    for name in (b"", b"x" * 1_025):
        with pytest.raises(RemoteProtocolError):
            read_commands(Reader(encode_commands([CursorCommand(COMMIT, name, 0)])))
