"""Whether a leader may say what its group's log has, without asking a quorum first.

```
 elected --> knows_all: everything of earlier terms is applied here, so all that was ever acknowledged
         --> speaks_for: and no other replica can lead yet: a quorum of nodes was heard just now,
                         and leadership is not being handed over
```
A new leader has all entries that are committed, but learns that they are only with the first one of its own term
(thesis, 6.4): until then its log seems to end too early. A leader that was cut off, or stopped, does not know of the
next one. ``reads`` asks a quorum, which is certain and wakes the group; this is for questions about thousands of groups
at once, most of them quiet: their members wait for ``election_ms`` of silence before they elect another leader. The
rule takes for granted that a node that is heard also hears.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.raft.host import RaftHost
    from flockmq.raft.state import RaftState


def knows_all(state: RaftState) -> bool:
    """Whether this node leads, and has applied all that was committed before it did."""
    return state.role == LEADER and state.applied >= state.term_start


def near(host: RaftHost, now: int) -> set[int]:
    """Nodes that were heard so shortly before ``now``, the present moment, that they can't have given this one up."""
    ms = host.settings.election_ms // 2
    found = {node for node, peer in host.peers.items() if 0 <= now - peer.heard_raw < ms}
    found.add(host.node_id)
    return found


def speaks_for(host: RaftHost, group: int, nearby: set[int]) -> bool:
    """Whether this node may say what a group's log has; ``nearby`` as of now."""
    node = host.groups.get(group)
    if node is None or group in host.broken:
        return False
    state = node.state
    return knows_all(state) and not state.transfer_to and state.configuration.has_quorum(nearby)
