"""A node that is its whole cluster begins its state anew in an empty store."""

from __future__ import annotations

import random

from flockmq.cluster.commands import AcceptLoss, Command, CreateTopic, NodeSeen, encode_envelope
from flockmq.cluster.state import ClusterState
from flockmq.durable.ledger import Ledger
from flockmq.durable.refounding import refound
from flockmq.log.recovery import open_store
from flockmq.raft.replicas import decode_content
from flockmq.testing.simulation.disk import SimulatedDisk
from meta_cluster import STORE

ME = 1
OLD_STORE = 5


def before() -> ClusterState:
    state = ClusterState()
    commands: list[Command] = [NodeSeen(ME, "n1@h", "h", 1, store=OLD_STORE), CreateTopic("t"), AcceptLoss(1, ME)]
    for command in commands:
        assert state.apply(encode_envelope(1, 1, state.index, 0, command)).ok
    return state


def test_the_new_state_takes_the_place_of_the_copy_that_it_was_made_from() -> None:
    """The node may end before that copy is replaced."""
    copy = before().encode()
    disk = SimulatedDisk(random.Random(1))
    store = open_store(disk, STORE, random.Random(1))
    refound(store, disk, ME, ClusterState.decode(copy))
    log = open_store(disk, STORE, random.Random(1)).groups[0]
    data = log.load_snapshot()
    assert data is not None
    ledger = Ledger()
    assert ledger.replace(copy)
    assert ledger.replace(decode_content(data).state)
    assert ledger.index == log.end_offset
    assert ledger.state.nodes[ME].store == store.identity
    partition = ledger.state.partition(1)
    assert (partition.founders, partition.heir) == ((ME,), 0)
