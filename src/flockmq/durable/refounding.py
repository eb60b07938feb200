"""Begins the cluster state anew in an empty store, from the copy that lay beside the lost one.

Only for a node that is its whole cluster, and whose operator accepts that the records of its topics are gone: the
cluster, its topics, clients and rules stay, the logs of the topics begin anew, at offset 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flockmq.raft.configuration import Configuration
from flockmq.raft.replicas import BOOTSTRAP_TERM, CheckpointContent
from flockmq.raft.senders import SenderTable

if TYPE_CHECKING:
    from flockmq.cluster.state import ClusterState
    from flockmq.log.disk import Disk
    from flockmq.log.store import Store

GROUP = 0


def refound(store: Store, disk: Disk, node: int, state: ClusterState) -> None:
    """Write group 0 with this state as its checkpoint. Blocks; the store must be new."""
    _own_all(state, node, store.identity)
    log = store.create(GROUP)
    content = CheckpointContent(Configuration((node,)), SenderTable(), state.encode()).encode()
    snapshot = log.save_snapshot(content, 1, BOOTSTRAP_TERM, state.index)
    while not snapshot.saved:
        chore = store.take_chore()
        assert chore is not None, "the snapshot is still to be saved"
        chore.perform(disk)
        store.done(chore)
    log.use_snapshot(snapshot)
    log.reset(1, BOOTSTRAP_TERM, state.index)
    log.set_hard_state(BOOTSTRAP_TERM, 0, 1)
    commit = store.take_commit()
    assert commit is not None, "there is room in a new store"
    commit.perform(disk)
    store.committed(commit)


def _own_all(state: ClusterState, node: int, store: int) -> None:
    """Let this node, with this store, be the founder of all partitions. That is a change like a command: what lies
    beside the store may stay as it was, and is older then."""
    state.index += 1
    known = state.nodes.get(node)
    if known is not None:
        state.nodes[node] = replace(known, store=store, retired=(*known.retired, known.store))
    alone = (node,)
    for partition in state.partitions():
        state.keep_partition(
            replace(
                partition, replicas=alone, target=alone, founders=alone, preferred=node, first=alone, as_of=0, heir=0
            )
        )
