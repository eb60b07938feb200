from __future__ import annotations

import msgspec
import pytest

from flockmq.cluster.commands import (
    AlterTopic,
    CreateCursor,
    CreateHidden,
    CreateNamespace,
    CreateTopic,
    DeleteTopic,
    ForgetNode,
    NodeStateChanged,
    PutAcl,
    PutClient,
    SetClusterId,
    SetSetting,
    SetTarget,
)
from flockmq.cluster.commands_groups import CreateGroup, ResetGroup, ShareGroup
from flockmq.cluster.groups import Binding
from flockmq.cluster.model import DEAD, SESSIONS_TOPIC, AclRule, Limits
from flockmq.cluster.state import ClusterState
from flockmq.errors import FlockError
from state_cases import Machine


def full() -> Machine:
    machine = Machine(4, zones=("a", "b"))
    machine.done(SetClusterId(2**64 - 1))
    machine.done(CreateNamespace("acme", Limits(topics_max=5)))
    machine.done(CreateTopic("gone", shards=2))
    machine.done(CreateTopic("orders", "acme", ("+/é",), 3))
    machine.done(DeleteTopic("gone"))
    machine.done(CreateTopic("later", filters=("#",)))
    machine.done(AlterTopic("orders", "acme", shards=4))
    machine.done(CreateHidden(SESSIONS_TOPIC))
    machine.done(SetTarget(3, (1, 2), 1))
    machine.done(CreateCursor("spark", "later", hold=True))
    machine.done(CreateGroup("work", (Binding("orders", "topic", "a.#"),), "acme", mode="key", start="earliest"))
    machine.done(ResetGroup("work", "latest", "acme"))
    machine.done(ShareGroup("pool", "x/#"))
    machine.done(PutClient("acme", "bob", "$argon2id$x", publish=("a", "b/#"), superuser=True))
    machine.done(PutAcl("acme", False, (AclRule(True, ("all",), "all", ("%c",)),)))
    machine.done(SetSetting("yes", True))
    machine.done(SetSetting("text", "é"))
    machine.done(SetSetting("number", -5))
    machine.node(9)
    machine.done(NodeStateChanged(9, DEAD))
    machine.done(ForgetNode(9))
    return machine


def test_a_decoded_state_is_the_same_in_all_it_has() -> None:
    state = full().state
    copy = ClusterState.decode(state.encode())
    assert copy.encode() == state.encode()
    for name in ("cluster_id", "index", "versions", "next_group", "nodes", "namespaces", "clients", "acls", "topics"):
        assert getattr(copy, name) == getattr(state, name), name
    assert (copy.cursors, copy.settings, copy.places) == (state.cursors, state.settings, state.places)
    assert copy.groups == state.groups
    assert [(group.name, group.generation) for group in copy.groups.values()] == [("work", 2), ("$share/pool/x/#", 1)]
    assert copy.moving() == state.moving() != []
    assert copy.loads.leaders == {node: count for node, count in state.loads.leaders.items() if count}
    assert copy.loads.partitions == state.loads.partitions
    assert copy.filters.owner_of_overlap(b"$ns/acme/x/\xc3\xa9") == "acme/orders"


def test_a_decoded_state_goes_on_the_same_way() -> None:
    machine = full()
    copy = Machine()
    copy.state = ClusterState.decode(machine.state.encode())
    copy.wall_ms = machine.wall_ms
    for each in (machine, copy):
        each.done(CreateTopic("new", "acme", ("a/b/c",), shards=7))
        each.node(12)
    assert copy.state.encode() == machine.state.encode()


@pytest.mark.parametrize("data", [b"", b"\x90", b"junk", full().state.encode()[:-1]])
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(FlockError, match="fetch it again"):
        ClusterState.decode(data)


def test_a_newer_format_is_told() -> None:
    image = msgspec.msgpack.decode(full().state.encode())
    image[0] = 2
    with pytest.raises(FlockError, match="newer version"):
        ClusterState.decode(msgspec.msgpack.encode(image))


def test_fields_that_a_newer_version_adds_are_passed_over() -> None:
    state = full().state
    image = msgspec.msgpack.decode(state.encode())
    image.append("new section")
    image[5][0].append("new field of a node")
    assert ClusterState.decode(msgspec.msgpack.encode(image)).encode() == state.encode()


def test_a_state_from_before_consumer_groups_is_read() -> None:
    machine = Machine(1)
    machine.topic("plant")
    image = msgspec.msgpack.decode(machine.state.encode())
    before = [part[:-1] if at == 3 else part for at, part in enumerate(image)][:-1]
    state = ClusterState.decode(msgspec.msgpack.encode(before))
    assert (state.groups, state.versions.groups) == ({}, 0)
    assert state.encode() == machine.state.encode()
