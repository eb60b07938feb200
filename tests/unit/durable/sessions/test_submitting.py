"""Statements on their way: those of one turn share a call, in the order in which they were said."""

from __future__ import annotations

import pytest

from flockmq.durable.machine.session_bodies import EndStatement
from flockmq.durable.sessions.submitting import (
    DONE,
    LATER,
    STATEMENTS_MAX,
    VOID,
    StatementResult,
    encode_results,
    read_results,
)
from flockmq.errors import RemoteProtocolError
from session_nodes import SessionNodes


def test_results_as_bytes() -> None:
    body = encode_results(7, 3, [StatementResult(DONE, b"record"), StatementResult(VOID), StatementResult(LATER)])
    index, found = read_results(body, 3)
    assert index == 7
    assert [(one.code, one.record, one.state_index) for one in found if one is not None] == [
        (DONE, b"record", 3),
        (VOID, b"", 3),
    ]
    assert found[2] is None, "to be said again"


@pytest.mark.parametrize("body", [b"", b"x", encode_results(1, 1, []), encode_results(1, 1, [])[:-1]])
def test_results_that_can_not_be_read(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_results(body, 2)


def test_without_hidden_topics_nothing_is_known() -> None:
    nodes = SessionNodes()
    log = nodes[1].durable.session_room.log
    told = log.say(b"c", EndStatement(b"c", 1))
    assert told.is_set
    assert (log.groups(), log.group_of(b"c")) == ([], 0)


def test_statements_of_a_turn_are_one_entry() -> None:
    nodes = SessionNodes()
    nodes.connect(1, "c")
    log = nodes[1].durable.session_room.log
    group = nodes.shard("c")
    nodes.run(12_000)
    leader = nodes.leader(group)
    assert leader is not None
    before = leader.durable.machines.by_group[group].applied
    told = [log.say_to(group, EndStatement(b"x%d" % number, 1)) for number in range(STATEMENTS_MAX)]
    nodes.until(lambda: all(one.is_set for one in told))
    assert leader.durable.machines.by_group[group].applied == before + 1


def test_a_storm_is_said_in_calls_one_after_the_other() -> None:
    nodes = SessionNodes()
    nodes.connect(1, "c")
    log = nodes[1].durable.session_room.log
    group = nodes.shard("c")
    nodes.run(12_000)
    leader = nodes.leader(group)
    assert leader is not None
    before = leader.durable.machines.by_group[group].applied
    codes: list[int] = []
    for number in range(3 * STATEMENTS_MAX):
        told = log.say_to(group, EndStatement(b"x%d" % number, 1))
        told.then(lambda result: codes.append(-1 if result is None else result.code))
    nodes.until(lambda: len(codes) == 3 * STATEMENTS_MAX)
    assert set(codes) == {DONE}
    assert leader.durable.machines.by_group[group].applied == before + 3


def test_without_an_answer_a_result_is_none() -> None:
    nodes = SessionNodes()
    nodes.connect(1, "c")
    nodes.isolate(1)
    nodes.isolate(2)
    told: list[StatementResult | None] = []
    nodes[1].durable.session_room.log.say(b"c", EndStatement(b"c", 1)).then(told.append)
    nodes.until(lambda: bool(told), 10_000)
    assert told == [None]
