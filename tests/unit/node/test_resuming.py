"""Clients that come back at once: by rate, fair between namespaces, no more than may wait."""

from __future__ import annotations

from flockmq.node.resuming import WAIT_MS, Resumes
from flockmq.session.connection import AUTHENTICATING, CLOSED, Connection
from routing_cases import session_of


def connection_of(name: str) -> Connection:
    connection = session_of(name).connection
    assert connection is not None
    connection.phase = AUTHENTICATING
    return connection


def spend(resumes: Resumes, now: int) -> int:
    """Let clients on until the burst is used up."""
    count = 0
    while resumes.passes(now):
        count += 1
    return count


def test_a_burst_passes_and_the_rest_goes_by_rate() -> None:
    resumes = Resumes(100, 0)
    assert spend(resumes, 0) == 100
    for number in range(60):
        assert resumes.wait(connection_of(str(number)), "default", 0) is None
    assert not resumes.passes(50)  # others came before
    taken = 0
    for now in range(100, 1_000, 100):
        while resumes.take(now) is not None:
            taken += 1
        assert taken == min(now // 10, 60)
    assert resumes.waiting == 0


def test_a_rate_of_zero_is_no_limit() -> None:
    resumes = Resumes(0, 0)
    assert all(resumes.passes(0) for _ in range(1_000))


def test_namespaces_take_turns() -> None:
    resumes = Resumes(10, 0)
    spend(resumes, 0)
    storm = [connection_of(f"a{number}") for number in range(40)]
    few = [connection_of(f"b{number}") for number in range(3)]
    for connection in storm:
        resumes.wait(connection, "a", 0)
    for connection in few:
        resumes.wait(connection, "b", 0)
    order: list[Connection] = []
    for now in range(100, 700, 100):
        taken = resumes.take(now)
        assert taken is not None
        order.append(taken)
    assert order == [storm[0], few[0], storm[1], few[1], storm[2], few[2]]


def test_one_too_many_is_refused_in_the_longest_line() -> None:
    resumes = Resumes(10, 0)
    spend(resumes, 0)
    storm = [connection_of(f"a{number}") for number in range(90)]
    refused = [resumes.wait(connection, "a", 0) for connection in storm]
    assert refused == [None] * 80 + storm[80:]
    assert resumes.wait(connection_of("b"), "b", 0) is storm[79]
    assert resumes.waiting == 80


def test_a_client_that_has_gone_costs_no_turn_and_a_late_one_is_told() -> None:
    resumes = Resumes(1, 0)
    spend(resumes, 0)
    gone, waits, late = connection_of("a"), connection_of("b"), connection_of("c")
    for connection in (gone, waits, late):
        resumes.wait(connection, "default", 0)
    gone.phase = CLOSED
    assert resumes.take(1_000) is waits
    assert resumes.late(WAIT_MS - 1) == []
    assert resumes.late(WAIT_MS) == [late]
    assert resumes.waiting == 0
