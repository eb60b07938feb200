from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from flockmq.cluster import commands
from flockmq.cluster.commands import (
    Command,
    CreateTopic,
    RefusedError,
    Result,
    SetTarget,
    decode_command,
    decode_envelope,
    decode_result,
    encode_envelope,
    encode_result,
)

TAGS = [kind.__struct_config__.tag for kind in get_args(Command)]


def test_an_envelope_says_who_asked_also_for_a_command_that_is_not_known() -> None:
    data = encode_envelope(2**64 - 1, 2**63, 7, 1_700_000_000_000, CreateTopic("orders", shards=3))
    envelope = decode_envelope(data)
    assert (envelope.origin, envelope.boot, envelope.number) == (2**64 - 1, 2**63, 7)
    assert envelope.wall_ms == 1_700_000_000_000
    assert decode_command(envelope.command) == CreateTopic("orders", shards=3)

    unknown = decode_envelope(msgspec.msgpack.encode((1, 2, 3, 4, (99, "from the future"))))
    assert unknown.number == 3
    with pytest.raises(RefusedError, match="upgrade all nodes"):
        decode_command(unknown.command)


def test_fields_of_a_newer_version_are_passed_over() -> None:
    data = msgspec.msgpack.encode((20, 5, (1, 2), 1, True, "new field"))
    assert decode_command(data) == SetTarget(5, (1, 2), 1, is_advised=True)


def test_fields_that_an_older_version_did_not_have_are_as_before() -> None:
    assert decode_command(msgspec.msgpack.encode((20, 5, (1, 2), 1))) == SetTarget(5, (1, 2), 1)


def test_the_numbers_of_commands_are_for_ever() -> None:
    """They stand in logs: a change here makes old logs unreadable."""
    assert sorted(TAGS) == [*range(1, 25), 30, 40, 41, *range(50, 56)]
    assert msgspec.msgpack.encode(SetTarget(5, (1, 2), 1)) == msgspec.msgpack.encode((20, 5, (1, 2), 1, False))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x90", b"junk", msgspec.msgpack.encode((1, 2, 3)), b"\x95\xa1\xff"])
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match="no command"):
        decode_envelope(data)


def test_results_travel_without_their_value() -> None:
    refused = Result(False, "There is no such topic.", None, "not_found")
    assert decode_result(encode_result(refused)) == refused
    assert decode_result(encode_result(Result(True, "", commands.Moves(1, 2)))) == Result(True)
    with pytest.raises(RefusedError):
        decode_result(b"\x01")


def test_results_differ_by_all_they_say() -> None:
    assert Result(True) != Result(False)
    assert Result(True, "", commands.Moves(1, 2)) != Result(True)
    assert hash(Result(True)) == hash(Result(True, "", commands.Moves(1, 2)))
    assert "no_quorum" in repr(Result(False, "x", None, "no_quorum"))
    assert "Moves" in repr(Result(True, "", commands.Moves(1, 2)))
