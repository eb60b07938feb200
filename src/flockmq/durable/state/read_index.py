"""A linearizable read of a group: what a quorum confirms to be committed is applied here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.tasks import Promise, promised

if TYPE_CHECKING:
    from flockmq.raft.engine import RaftEngine


def read_index(engine: RaftEngine, group: int, now: int) -> Promise[bool]:
    """A promise of True once all that was committed before ``now`` is applied here; of False when this node does not
    lead. ``now`` must be the present, not the time of the last tick: a lease is judged by it."""
    if not engine.is_leader(group):
        return promised(False)
    promise: Promise[bool] = Promise()
    engine.read(group, promise.set, now)
    return promise
