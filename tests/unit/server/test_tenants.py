"""Cluster state comes into force on a node: namespaces, clients, rules."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from flockmq.cluster.commands import (
    AlterNamespace,
    CreateNamespace,
    DeleteAcl,
    DeleteClient,
    DeleteNamespace,
    PutAcl,
    PutClient,
    SetSetting,
)
from flockmq.cluster.model import AclRule
from flockmq.node.broker import Broker
from flockmq.node.ports import OpenGate
from flockmq.node.settings import BrokerSettings
from flockmq.security.gate import BrokerGate, SecuritySettings
from flockmq.server.tenants import CLIENTS_AT_ONCE, Tenants
from state_cases import Machine


class Scene:
    """A broker that lets everybody in, and a cluster state for it to follow."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.broker = Broker(BrokerSettings(sys_interval_ms=0), OpenGate(), random.Random(1), 0)
        self.gates: list[BrokerGate] = []
        self.flushes = 0
        self.tenants = Tenants(self.broker, None, self.open_gate, self.flush)

    def open_gate(self) -> BrokerGate:
        settings = SecuritySettings(allow_anonymous=True)
        gate = BrokerGate(settings, deliver=lambda *_: None, call_soon=lambda _: None, wall_ms=lambda: 0)
        self.gates.append(gate)
        return gate

    def flush(self) -> None:
        self.flushes += 1

    def follow(self) -> None:
        self.tenants.follow(self.machine.state)

    @property
    def names(self) -> list[str]:
        return sorted(self.broker.node.spaces.by_name)

    def is_open(self) -> bool:
        return self.broker.node.gate_is_open


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  (conditions of other people's objects have no event)
        await asyncio.sleep(0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    found = Scene()
    yield found
    for gate in found.gates:
        gate.close()


def test_namespaces_come_and_go(scene: Scene) -> None:
    scene.follow()
    assert scene.names == []
    scene.machine.done(CreateNamespace("acme"))
    scene.follow()
    assert scene.names == ["acme"]
    scene.machine.done(AlterNamespace("acme", connections_max=3, messages_per_second_max=4, stored_bytes_max=5))
    scene.machine.done(AlterNamespace("acme", captured_bytes_per_second_max=6))
    scene.follow()
    space = scene.broker.node.spaces.by_name["acme"]
    assert (space.connections_max, space.messages_per_s_max, space.stored_bytes_max) == (3, 4, 5)
    assert space.captured_bytes_per_s_max == 6
    scene.machine.done(DeleteNamespace("acme"))
    scene.follow()
    assert scene.names == []
    assert scene.flushes == 4, "what is to be told to clients is written"


def test_the_gate_opens_with_the_first_client(scene: Scene) -> None:
    scene.machine.done(SetSetting("colour", "blue"))
    scene.follow()
    assert scene.is_open(), "nothing gets slower as long as nobody is registered"
    scene.machine.done(CreateNamespace("acme"))
    scene.machine.done(PutClient("acme", "bob", publish=("a",)))
    scene.follow()
    assert not scene.is_open()
    (gate,) = scene.gates
    assert scene.broker.node.gate is gate
    scene.machine.done(DeleteClient("acme", "bob"))
    scene.follow()
    assert len(scene.gates) == 1


async def test_the_state_of_the_cluster_is_waited_for(scene: Scene) -> None:
    def is_known() -> bool:
        return scene.broker.node.spaces.is_known

    scene.tenants.expect()
    assert not is_known()
    answers = iter([False, False, True])
    scene.tenants.know_when(lambda: next(answers))
    await until(is_known)
    assert list(answers) == []


async def test_changes_among_many_clients_are_taken_over_together(scene: Scene) -> None:
    scene.machine.done(CreateNamespace("acme"))
    for number in range(CLIENTS_AT_ONCE + 20):
        scene.machine.done(PutClient("acme", f"client{number}"))
    scene.follow()
    await until(lambda: bool(scene.gates))
    (gate,) = scene.gates
    version = gate.version
    for number in range(10):
        scene.machine.done(DeleteClient("acme", f"client{number}"))
        scene.follow()
    await until(lambda: gate.version > version)
    assert gate.version == version + 1


def test_rules_alone_open_the_gate_too(scene: Scene) -> None:
    scene.machine.done(CreateNamespace("acme"))
    scene.machine.done(PutAcl("acme", False, (AclRule(True, ("all",), "all", ("a/#",)),)))
    scene.follow()
    (gate,) = scene.gates
    version = gate.version
    scene.follow()
    assert gate.version == version, "nothing has changed"
    scene.machine.done(DeleteAcl("acme"))
    scene.follow()
    assert gate.version > version
