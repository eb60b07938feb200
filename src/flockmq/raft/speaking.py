"""Whether a leader may say what its group's log has, without asking a quorum first.

```
 elected --> knows_all:   everything of earlier terms is applied here, so all that was ever acknowledged
         --> is_followed: and no other replica can lead yet: a quorum of members answered for the group once,
                          and their nodes were heard ever since, up to now, without a gap
         --> speaking_for: and leadership is not being handed over, nor was it in this term

 member  ---answers--beat--beat--beat--now    follows this leader still
 member  ---answers--beat--       --beat--now   may have elected another one meanwhile, until it answers again
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


def near(host: RaftHost, now: int) -> dict[int, int]:
    """Nodes that were heard just before ``now``, the present moment -> the tick since when without a gap."""
    gap_ms = host.settings.gap_ms
    return {node: peer.steady_since for node, peer in host.peers.items() if 0 <= now - peer.heard_raw < gap_ms}


def is_followed(state: RaftState, nearby: dict[int, int]) -> bool:
    """Whether no other node can lead this group; ``nearby`` as of now."""
    loyal = {state.node}
    for node, progress in state.progress.items():
        if node in nearby and progress.answered_tick >= nearby[node]:
            loyal.add(node)
    return state.configuration.has_quorum(loyal)


def speaking_for(host: RaftHost, groups: list[int], now: int) -> list[int]:
    """The groups of which this node may say, at ``now``, what their logs have.

    A quiet group whose members are heard again after a gap is woken: once they have answered, this node may.
    """
    nearby = near(host, now)
    heard = {host.node_id, *nearby}
    found: list[int] = []
    for group in groups:
        node = host.groups.get(group)
        if node is None or group in host.broken or not knows_all(node.state):
            continue
        if node.state.transfer_to or not node.state.lease_is_safe:
            continue  # the node that was told to lead may do so at any moment
        if is_followed(node.state, nearby):
            found.append(group)
        elif node.state.quiet and node.state.configuration.has_quorum(heard):
            host.wake(group)
    return found
