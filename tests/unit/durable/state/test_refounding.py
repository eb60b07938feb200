"""A node that is its whole cluster begins its state anew in an empty store."""

from __future__ import annotations

import random

from flockmq.cluster.commands import AcceptLoss, Command, CreateTopic, NodeSeen, encode_envelope
from flockmq.cluster.state import ClusterState
from flockmq.durable.state.ledger import Ledger
from flockmq.durable.state.refounding import refound
from flockmq.log.group import GroupLog
from flockmq.log.recovery import open_store
from flockmq.raft.replicas import decode_content
from flockmq.testing.lockstep_nodes import STORE
from flockmq.testing.simulation.disk import SimulatedDisk

ME = 1
OLD_STORE = 5


def changed(state: ClusterState, *commands: Command) -> ClusterState:
    for command in commands:
        assert state.apply(encode_envelope(1, 1, state.index, 0, command)).ok
    return state


def before(store: int = OLD_STORE) -> ClusterState:
    return changed(ClusterState(), NodeSeen(ME, "n1@h", "h", 1, store=store), CreateTopic("t"), AcceptLoss(1, ME))


def stored(log: GroupLog) -> ClusterState:
    data = log.load_snapshot()
    assert data is not None
    return ClusterState.decode(decode_content(data).state)


def test_the_new_state_takes_the_place_of_the_copy_that_it_was_made_from() -> None:
    """The node may end before that copy is replaced."""
    copy = before().encode()
    disk = SimulatedDisk(random.Random(1))
    store = open_store(disk, STORE, random.Random(1))
    refound(store, disk, ME, ClusterState.decode(copy))
    log = open_store(disk, STORE, random.Random(1)).groups[0]
    ledger = Ledger()
    assert ledger.replace(copy)
    assert ledger.replace(stored(log).encode())
    assert ledger.index == log.end_offset
    assert ledger.state.nodes[ME].store == store.identity
    partition = ledger.state.partition(1)
    assert (partition.founders, partition.heir) == ((ME,), 0)


def test_a_store_that_is_older_goes_on_with_all_changes_that_the_copy_knows() -> None:
    disk = SimulatedDisk(random.Random(1))
    store = open_store(disk, STORE, random.Random(1))
    state = before(store.identity)
    assert refound(store, disk, ME, state)
    assert not refound(store, disk, ME, ClusterState.decode(state.encode())), "it has come as far as the copy"
    refound(store, disk, ME, changed(state, CreateTopic("later")))
    log = open_store(disk, STORE, random.Random(1)).groups[0]
    found = stored(log)
    assert [topic.name for topic in found.topics.values()] == ["t", "later"]
    assert found.index == log.end_offset, "the next command is not taken for one that is known"
    assert (found.nodes[ME].store, found.nodes[ME].retired) == (store.identity, ())


def test_a_damaged_group_0_goes_on_with_the_copy() -> None:
    disk = SimulatedDisk(random.Random(1))
    store = open_store(disk, STORE, random.Random(1))
    state = before(store.identity)
    refound(store, disk, ME, state)
    store.groups[0].note_forgotten("Its disk lost something.")
    refound(store, disk, ME, changed(state, CreateTopic("later")))
    log = open_store(disk, STORE, random.Random(1)).groups[0]
    assert log.damage is None
    assert len(stored(log).topics) == 2
