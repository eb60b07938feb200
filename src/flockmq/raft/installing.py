"""The follower's side of snapshots (Raft paper, section 7): pieces are gathered, then one takes the place of the log.

```
 SnapshotChunk --> on_chunk --> SnapshotSink --all of it is saved--> _install: log and state begin anew behind it
                      `-- the log has all that it stands for: only an acknowledgement
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft.messages import SnapshotReply
from flockmq.raft.ports import BROKEN, SAVED
from flockmq.raft.replication import acknowledge, commit_to, hear_leader

if TYPE_CHECKING:
    from flockmq.raft.messages import SnapshotChunk, SnapshotMeta
    from flockmq.raft.state import RaftState


def on_chunk(state: RaftState, chunk: SnapshotChunk) -> None:
    """A piece arrived."""
    hear_leader(state, chunk.sender, chunk.last_index, chunk.lease_round)
    meta = chunk.meta
    if meta.index <= state.commit:
        # We have all of it. A snapshot must never take the place of newer entries (paper, section 7).
        acknowledge(state, state.commit)
        return
    if state.log.term_at(meta.index) == meta.term:
        # The log has the last entry it stands for, so it has all before: keep the log (paper, figure 13, step 6).
        acknowledge(state, meta.index)
        commit_to(state, meta.index)
        return
    if state.sink is None:
        return
    have = state.sink.received(meta)
    if chunk.position <= have <= chunk.position + len(chunk.data):
        fresh = chunk.data[have - chunk.position :]
        if fresh:
            state.sink.write(meta, have, fresh)
            have += len(fresh)
    if have < meta.size:
        state.send(_reply(state, chunk, have, is_durable=False))
        return
    verdict = state.sink.complete(meta)
    if verdict == BROKEN:
        state.send(_reply(state, chunk, 0, is_durable=False))
    elif verdict == SAVED:
        _install(state, meta)
        state.promise(_reply(state, chunk, have, is_durable=True))
    # Being saved still: the leader will ask again.


def _install(state: RaftState, meta: SnapshotMeta) -> None:
    """Let the snapshot take the place of the whole log and of the state made from it (paper, figure 13, steps 7, 8).

    The state may be newer than the snapshot of another leader, which wants to fill in entries that this log lacks.
    """
    state.log.restart_at(meta.index, meta.term, meta.next_offset)
    state.configurations = [(meta.index, meta.configuration)]
    state.commit = meta.index
    if meta.applied > state.applied:
        state.applied = meta.applied
        state.restores = True
    state.matched = max(state.matched, meta.index)
    state.install = meta
    state.dirty = True


def _reply(state: RaftState, chunk: SnapshotChunk, position: int, is_durable: bool) -> SnapshotReply:
    return SnapshotReply(state.group, state.node, chunk.sender, state.term, chunk.meta.index, position, is_durable)
