"""Bans of the cluster come into force on a node."""

from __future__ import annotations

import asyncio

import pytest

from flockmq.cluster.commands import Ban, Unban
from flockmq.server import bans as module
from flockmq.server.bans import Bans
from flockmq.testing.harness import BrokerHarness
from state_cases import Machine


class Scene:
    """A broker, and a cluster state that its bans follow."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.harness = BrokerHarness()
        self.bans = Bans(
            self.harness.broker, self.harness.flush, lambda: self.harness.now, lambda: self.machine.wall_ms
        )

    def ban(self, kind: str, value: str, for_ms: int = 0) -> None:
        until_ms = self.machine.wall_ms + 1_000 + for_ms if for_ms else 0
        self.machine.done(Ban(kind, value, "why", until_ms))
        self.bans.follow(self.machine.state)

    def is_let_in(self, client_id: str, username: str | None = None, peer: str = "192.0.2.9") -> bool:
        try:
            self.harness.client(client_id, username=username, peer=peer)
        except AssertionError:
            return False
        return True


@pytest.mark.parametrize(("kind", "value"), [("client", "hit"), ("username", "ada"), ("address", "192.0.2.1")])
async def test_clients_that_are_there_go_and_stay_out(kind: str, value: str) -> None:
    scene = Scene()
    hit = scene.harness.client("hit", username="ada", peer="192.0.2.1")
    spared = scene.harness.client("spared", username="bob", peer="192.0.2.2")
    scene.ban(kind, value)
    assert hit.closed
    assert not spared.closed
    assert scene.harness.broker.bans.bans[kind, value].kicked == 1
    assert not scene.is_let_in("hit", username="ada", peer="192.0.2.1")
    scene.machine.done(Unban(kind, value))
    scene.bans.follow(scene.machine.state)
    assert scene.is_let_in("hit", username="ada", peer="192.0.2.1")


async def test_a_ban_ends_by_the_time_that_is_left_of_it() -> None:
    scene = Scene()
    scene.ban("client", "c", for_ms=60_000)
    scene.harness.advance(59_000)
    assert not scene.is_let_in("c")
    scene.harness.advance(1_000)
    assert scene.is_let_in("c")


async def test_a_ban_that_ran_out_does_not_come_back_with_another() -> None:
    scene = Scene()
    scene.machine.done(Ban("client", "old", "", scene.machine.wall_ms + 2_000))
    scene.machine.wall_ms += 5_000
    scene.bans.follow(scene.machine.state)
    assert not scene.harness.broker.bans.bans


async def test_many_connections_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_PER_SLICE", 2)
    scene = Scene()
    clients = [scene.harness.client(f"c{number}", username="ada") for number in range(5)]
    scene.ban("username", "ada")
    assert sum(client.closed for client in clients) == 2
    for _ in range(3):
        await asyncio.sleep(0)
    assert all(client.closed for client in clients)
    assert scene.harness.broker.bans.bans["username", "ada"].kicked == 5


async def test_many_bans_are_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bans that come during a walk share the next one: a hundred of them are not a hundred walks."""
    monkeypatch.setattr(module, "CLIENTS_PER_SLICE", 1)
    flushes = 0

    def flush() -> None:
        nonlocal flushes
        flushes += 1
        scene.harness.flush()

    scene = Scene()
    scene.bans = Bans(scene.harness.broker, flush, lambda: scene.harness.now, lambda: scene.machine.wall_ms)
    clients = [scene.harness.client(f"c{number}") for number in range(6)]
    for number in (4, 0, 5, 2):
        scene.ban("client", f"c{number}")
    for _ in range(20):
        await asyncio.sleep(0)
    assert [client.closed for client in clients] == [True, False, True, False, True, True]
    assert flushes <= 2 * 6


async def test_what_else_changes_disturbs_nobody() -> None:
    scene = Scene()
    scene.ban("client", "c")
    held = scene.harness.broker.bans.bans["client", "c"]
    scene.machine.node(1)
    scene.bans.follow(scene.machine.state)
    assert scene.harness.broker.bans.bans["client", "c"] is held
