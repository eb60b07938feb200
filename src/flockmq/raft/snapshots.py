"""The leader's side of snapshots, for followers that lack entries which are gone here (Raft paper, section 7).

```
 leader: SnapshotSource --chunk(position)--> follower: SnapshotSink
                        <--"I have so much"--   ... until all is here and saved, then the log begins anew behind it
                        --appends------------>  retained entries, then new ones
```
A transfer goes on where it stood: the follower says how much of exactly this snapshot it has, after a lost piece, a
pause or a restart of either side alike. One piece is out at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft.messages import SnapshotChunk, SnapshotMeta

if TYPE_CHECKING:
    from flockmq.raft.messages import SnapshotReply
    from flockmq.raft.progress import Progress
    from flockmq.raft.state import RaftState


def begin(state: RaftState, node: int, progress: Progress) -> None:
    """The entries a follower needs next are gone here: send it a snapshot, if there is one that helps."""
    if state.source is None:
        return
    checkpoint = state.source.latest()
    log = state.log
    if checkpoint is None:
        return
    # What is only in memory will be gone before the snapshot has arrived, so begin with what the disk has.
    first = max(log.first_index(), min(log.stable.first_index(), checkpoint.index + 1))
    # It must join up with the log: all entries behind it have to be here.
    if checkpoint.index < first - 1 or log.term_at(first - 1) < 0:
        return
    progress.send_snapshot(
        SnapshotMeta(
            first - 1,
            log.term_at(first - 1),
            log.offset_at(first),
            checkpoint.configuration,
            checkpoint.index,
            checkpoint.term,
            checkpoint.size,
            checkpoint.checksum,
        )
    )
    send_chunk(state, node, progress)


def send_chunk(state: RaftState, node: int, progress: Progress) -> None:
    """Send the next piece, unless one is out."""
    meta = progress.snapshot
    if meta is None or state.source is None or progress.chunk_round >= 0:
        return
    length = min(state.settings.snapshot_chunk_bytes, meta.size - progress.snapshot_position)
    data = state.source.read(meta, progress.snapshot_position, length) if length > 0 else b""
    if len(data) != max(length, 0):
        progress.probe(progress.match + 1)  # gone meanwhile: a newer one has to do
        return
    progress.chunk_round = state.round
    state.send(
        SnapshotChunk(
            state.group,
            state.node,
            node,
            state.term,
            meta,
            progress.snapshot_position,
            data,
            state.log.last_index,
            state.round,
        )
    )


def resume(progress: Progress, lease_round: int) -> None:
    """A heartbeat that left two rounds after a piece was answered, the piece was not: send it again."""
    if progress.chunk_round >= 0 and lease_round >= progress.chunk_round + 2:
        progress.chunk_round = -1


def is_needless(state: RaftState, progress: Progress) -> bool:
    """Whether the follower has come so far that entries will do, or another snapshot is needed.

    The log may have been compacted further since this one was begun: a follower that has all of it can't go on with it.
    """
    match = progress.match
    if progress.snapshot is not None and match >= progress.snapshot.index:
        return True
    return state.log.term_at(match) >= 0 and match + 1 >= state.log.first_index()


def on_reply(state: RaftState, reply: SnapshotReply) -> bool:
    """The follower says how far it is; True when the snapshot is durable there."""
    progress = state.progress.get(reply.sender)
    if progress is None:
        return False
    progress.active = True
    meta = progress.snapshot
    if meta is None or reply.index != meta.index:
        return False
    progress.chunk_round = -1
    state.dirty = True
    if reply.position >= meta.size and reply.is_durable:
        return True
    progress.snapshot_position = min(reply.position, meta.size)
    return False
