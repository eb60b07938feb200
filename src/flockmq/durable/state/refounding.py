"""Begins the cluster state anew, from the copy that lay beside a store which was lost, is older now, or damaged.

Only for a node that is its whole cluster, and whose operator accepts that records of its topics are gone: the cluster,
its topics, clients and rules stay; topics go on with the logs that the store has, and begin anew, at offset 0, without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flockmq.raft.configuration import Configuration
from flockmq.raft.replicas import BOOTSTRAP_TERM, CheckpointContent, cut_damage
from flockmq.raft.senders import SenderTable

if TYPE_CHECKING:
    from flockmq.cluster.state import ClusterState
    from flockmq.log.disk import Disk
    from flockmq.log.group import GroupLog
    from flockmq.log.store import Store

GROUP = 0


def refound(store: Store, disk: Disk, node: int, state: ClusterState) -> bool:
    """Let group 0 go on with this state, if it has not got that far itself. Blocks; nothing runs in the store yet.
    True: ``state`` is changed, and is what group 0 has now."""
    log = store.groups.get(GROUP)
    if log is not None:
        cut_damage(log)
    is_behind = log is None or log.end_offset < state.index
    if log is None:
        log = store.create(GROUP)
    if is_behind:
        _own_all(state, node, store.identity)
        _write(store, disk, log, Configuration((node,)), state)
    log.repaired()
    commit = store.take_commit()
    if commit is not None:
        commit.perform(disk)
        store.committed(commit)
    return is_behind


def _write(store: Store, disk: Disk, log: GroupLog, members: Configuration, state: ClusterState) -> None:
    """Put a checkpoint with this state in the place of all entries."""
    index = log.last_index() + 1
    term = max(log.term, BOOTSTRAP_TERM)
    content = CheckpointContent(members, SenderTable(), state.encode()).encode()
    snapshot = log.save_snapshot(content, index, term, state.index)
    while not snapshot.saved:
        chore = store.take_chore()
        assert chore is not None, "the snapshot is still to be saved"
        chore.perform(disk)
        store.done(chore)
    log.use_snapshot(snapshot)
    log.reset(index, term, state.index)
    log.set_hard_state(term, 0, index)


def _own_all(state: ClusterState, node: int, store: int) -> None:
    """Let this node, with this store, be the founder of all partitions. That is a change like a command: what lies
    beside the store may stay as it was, and is older then."""
    state.index += 1
    known = state.nodes.get(node)
    if known is not None and known.store != store:
        state.nodes[node] = replace(known, store=store, retired=(*known.retired, known.store))
    alone = (node,)
    for partition in state.partitions():
        state.keep_partition(
            replace(
                partition, replicas=alone, target=alone, founders=alone, preferred=node, first=alone, as_of=0, heir=0
            )
        )
