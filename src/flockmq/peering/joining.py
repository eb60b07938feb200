"""`cluster join` and `cluster leave`: what a node that runs already may do to change its cluster.

```
 same cluster id                          --> nothing to do
 no cluster id                            --> join
 alone, no topics, no sessions            --> give up its own cluster id and join
 anything else      without --discard-data --> refused, with what would be lost
                    with --discard-data    --> leave the old cluster (if others are in it), set the data aside, join

 leave, others answer                     --> they take over what it stores, then it goes
        no node answers, or none is there --> refused, with what would be lost; --discard-data goes all the same
```
Retained messages are no reason to refuse: a one-node cluster brings them along, and the newest of each topic stays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

STAY: Final = "STAY"
"""The node is in that cluster already."""
MOVE: Final = "MOVE"
"""Take the other cluster's id and join."""
REFUSE: Final = "REFUSE"
"""Nothing changes; the reason is a sentence to show."""


class Belongings(NamedTuple):
    """The data and memberships that a node would bring along, or lose, by joining another cluster."""

    cluster_id: int
    members: int
    """Members of its cluster that have not left, itself among them."""
    topics: int
    sessions: int
    """Sessions that outlive their connection, plus those that are connected."""
    known: int = 1
    """Nodes in the cluster state, this node among them, whether they answer or not."""
    is_edge: bool = False
    """An edge node holds no cluster state, so it can't be a cluster by itself."""


class JoinPlan(NamedTuple):
    """What `cluster join` does."""

    kind: str
    reason: str = ""
    leave_first: bool = False
    """Say goodbye to the other members of the old cluster."""
    discard_data: bool = False
    """Set topics and sessions aside before joining."""


def plan_join(mine: Belongings, target_cluster_id: int, *, discard_data: bool = False) -> JoinPlan:
    """Decide about `cluster join` towards a node whose cluster has that id (0: it belongs to none)."""
    if target_cluster_id == 0:
        return JoinPlan(REFUSE, "That node belongs to no cluster yet; start it without --join, or join another one.")
    if mine.cluster_id == target_cluster_id:
        return JoinPlan(STAY, "This node is a member of that cluster already.")
    losses = [f"membership in a cluster of {mine.members} nodes"] if mine.members > 1 else []
    losses += _stored(mine)
    if losses and not discard_data:
        return JoinPlan(
            REFUSE,
            f"Joining would cost this node {_listing(losses)}; repeat with --discard-data if that is wanted.",
        )
    return JoinPlan(MOVE, leave_first=mine.members > 1, discard_data=bool(mine.topics or mine.sessions))


class LeavePlan(NamedTuple):
    """What `cluster leave` does."""

    kind: str
    reason: str = ""
    hand_over: bool = False
    """Others take over what this node stores, before it goes."""


def plan_leave(mine: Belongings, *, discard_data: bool = False) -> LeavePlan:
    """Decide about `cluster leave`."""
    if mine.is_edge:
        return LeavePlan(
            REFUSE,
            "An edge node stores nothing for others and can't be a cluster by itself. Stop it: the others forget it by "
            "themselves, or at once by `flockmq node remove`.",
        )
    if mine.members > 1:
        return LeavePlan(MOVE, hand_over=not discard_data)
    if discard_data:
        return LeavePlan(MOVE)
    if mine.known > 1:
        others = "The other node of this cluster does not answer" if mine.known == 2 else _silent(mine.known - 1)
        return LeavePlan(
            REFUSE,
            f"{others}, so no node can take over what this node stores. Start more nodes, or repeat with "
            "--discard-data to leave all the same: what this node stores is set aside then.",
        )
    losses = _stored(mine)
    if losses:
        return LeavePlan(
            REFUSE,
            f"This node is alone in its cluster. To start over would cost it {_listing(losses)}; repeat with "
            "--discard-data if that is wanted.",
        )
    return LeavePlan(STAY, "This node is a cluster of its own already.")


def _silent(others: int) -> str:
    return f"None of the other {others} nodes of this cluster answers"


def _stored(mine: Belongings) -> list[str]:
    losses = []
    if mine.topics:
        losses.append(f"{mine.topics:,} {'topic' if mine.topics == 1 else 'topics'}")
    if mine.sessions:
        losses.append(f"{mine.sessions:,} {'session' if mine.sessions == 1 else 'sessions'}")
    return losses


def _listing(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
