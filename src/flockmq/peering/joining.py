"""`cluster join`: what a node that runs already may do to become part of another cluster.

```
 same cluster id                          --> nothing to do
 no cluster id                            --> join
 alone, no topics, no sessions            --> give up its own cluster id and join
 anything else      without --discard-data --> refused, with what would be lost
                    with --discard-data    --> leave the old cluster (if others are in it), set the data aside, join
```
Retained messages are no reason to refuse: a one-node cluster brings them along, and the newest of each topic stays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

STAY: Final = "STAY"
"""It is there already."""
MOVE: Final = "MOVE"
"""Take the other cluster's id and join."""
REFUSE: Final = "REFUSE"
"""Nothing changes; the reason is a sentence to show."""


class Belongings(NamedTuple):
    """What a node would bring to, or lose by, joining another cluster."""

    cluster_id: int
    members: int
    """Members of its cluster that have not left, itself among them."""
    topics: int
    sessions: int
    """Sessions that outlive their connection, plus those that are connected."""


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
    losses = []
    if mine.members > 1:
        losses.append(f"membership in a cluster of {mine.members} nodes")
    if mine.topics:
        losses.append(f"{mine.topics:,} {'topic' if mine.topics == 1 else 'topics'}")
    if mine.sessions:
        losses.append(f"{mine.sessions:,} {'session' if mine.sessions == 1 else 'sessions'}")
    if losses and not discard_data:
        return JoinPlan(
            REFUSE,
            f"Joining would cost this node {_listing(losses)}; repeat with --discard-data if that is wanted.",
        )
    return JoinPlan(MOVE, leave_first=mine.members > 1, discard_data=bool(mine.topics or mine.sessions))


def _listing(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
