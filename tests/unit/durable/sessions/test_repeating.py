"""Statements that are said until their result is known."""

from __future__ import annotations

from session_nodes import SessionNodes, connect_packet

CLIENTS = 30


def test_many_sessions_that_end_without_a_majority_are_away_once_there_is_one() -> None:
    nodes = SessionNodes()
    devices = [nodes.subscriber(1, f"c{number}", b"a/%d" % number) for number in range(CLIENTS)]
    nodes.isolate(1)
    nodes.isolate(2)
    nodes.run(1_000)
    tasks = len(nodes[1].durable.calls.tasks)
    for device in devices:
        device.client.drop()
    nodes.run(10_000)
    assert len(nodes[1].durable.calls.tasks) < tasks + CLIENTS, "they wait in a table"
    nodes.heal()
    nodes.until(lambda: not any(nodes.record(f"c{number}").is_connected for number in range(CLIENTS)))
    nodes.run(1_000)
    assert not nodes[1].durable.session_room.repeating._again
    assert not nodes[1].durable.session_room.uncertain.leaving


def test_clients_that_try_again_and_again_leave_one_statement_each() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.subscriber(1, "c", b"a/#"))
    nodes.isolate(1)
    nodes.isolate(2)
    nodes.run(1_000)
    for _ in range(6):
        assert nodes.ask(1, connect_packet("c")).connack.reason == 0x88
    nodes.run(4_000)
    durable = nodes[1].durable
    assert len(durable.session_room.repeating._again) + durable.session_room.log._waiting <= 1


def test_a_claim_waits_for_the_goodbye_of_the_connection_before_it() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    room = nodes[1].durable.session_room
    nodes.isolate(1)
    nodes.isolate(2)
    nodes.run(100)
    device.client.drop()
    nodes.run(50)
    told: list[None] = []
    room.repeating.until_said(b"c").then(told.append)
    room.repeating.until_said(b"other").then(told.append)
    assert len(told) == 1, "nothing is to be said of the other one"
    nodes.run(3_000)
    assert len(told) == 1
    nodes.heal()
    nodes.until(lambda: len(told) == 2)
    assert not nodes.record("c").is_connected
    assert not room.repeating._open
