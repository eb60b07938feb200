from __future__ import annotations

import pytest

from flockmq.cluster import checks
from flockmq.cluster.commands import INVALID, LIMIT, NOT_FOUND, Ban, Unban
from flockmq.cluster.dump import dump_state
from flockmq.cluster.state import ClusterState
from state_cases import Machine


def test_a_ban_is_kept_replaced_dumped_and_lifted() -> None:
    machine = Machine()
    machine.done(Ban("client", "c", "noise"))
    machine.done(Ban("client", "c", "more noise", machine.wall_ms + 60_000))
    machine.done(Ban("address", "192.0.2.1"))
    assert machine.state.versions.bans == 3
    assert dump_state(machine.state)["bans"] == [
        {"kind": "address", "value": "192.0.2.1", "reason": "", "since_ms": machine.wall_ms, "until_ms": 0},
        {
            "kind": "client",
            "value": "c",
            "reason": "more noise",
            "since_ms": machine.wall_ms - 1_000,
            "until_ms": machine.wall_ms - 2_000 + 60_000,
        },
    ]
    copy = ClusterState.decode(machine.state.encode())
    assert copy.bans == machine.state.bans
    assert copy.encode() == machine.state.encode()
    machine.done(Unban("client", "c"))
    assert list(machine.state.bans) == [("address", "192.0.2.1")]
    assert "no ban of client 'c'" in machine.refused(Unban("client", "c"), NOT_FOUND)


def test_a_ban_that_ran_out_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.cluster.changes_bans.BANS_MAX", 2)
    machine = Machine()
    machine.done(Ban("client", "short", "", machine.wall_ms + 3_500))
    machine.done(Ban("client", "for good"))
    assert "which is the most" in machine.refused(Ban("client", "third"), LIMIT)
    machine.done(Ban("client", "for good", "again"))
    assert list(machine.state.bans) == [("client", "for good")], "the end of the other is past"
    machine.done(Ban("client", "third"))


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (Ban("topic", "t"), "kinds are client, username, address"),
        (Ban("client", ""), "needs a value"),
        (Ban("client", "x" * (checks.BAN_VALUE_CHARACTERS_MAX + 1)), "at most 1024 characters"),
        (Ban("client", "x", "y" * (checks.BAN_REASON_CHARACTERS_MAX + 1)), "at most 256 characters"),
        (Ban("client", "x", "", 5), "in the past"),
        (Ban("client", "x", "", -1), "must be from 0"),
    ],
)
def test_what_is_no_ban_is_refused(command: Ban, text: str) -> None:
    assert text in Machine().refused(command, INVALID)
