"""Delivers a run to clients of this node, members of shared groups, and other nodes.

```
 published here ----> route --> plan: targets --> their sessions
                                      groups ---> a node by its members (share_out) --> one member there
                                      remotes --> their buffers (forward), one copy each

 from another node -> take_run -----> targets               take_shared --> one member, or on to another node
```
"""

from __future__ import annotations

from flockmq.mqtt.namespaces import DOLLAR, INSIDE
from flockmq.mqtt.run import Run
from flockmq.mqtt.topics import check_topic_name
from flockmq.node.congestion import slow_down
from flockmq.node.state import NodeState
from flockmq.routing.parcel import HOPS_MAX, Parcel, run_head, shared_head
from flockmq.routing.peer import Peer
from flockmq.routing.plan import RoutePlan
from flockmq.routing.shared import ShareGroup
from flockmq.session.connection import Connection


def route(node: NodeState, plan: RoutePlan, run: Run, publisher: Connection | None, now: int) -> bool:
    """Deliver a run to all its subscribers, here and on other nodes; False when there are none."""
    if plan.targets:
        deliver_here(node, plan, run, publisher, now)
    if plan.remotes:
        forward(node, plan.remotes, run, publisher, now)
    if plan.groups:
        for group in plan.groups:
            deliver_shared(node, group, run, publisher, now)
        return True
    if not plan.targets and not plan.remotes:
        node.stats.publishes_unmatched += run.count
        return False
    return True


def deliver_here(node: NodeState, plan: RoutePlan, run: Run, publisher: Connection | None, now: int) -> None:
    """Deliver a run to the clients of this node that subscribed alone."""
    stats = node.stats
    sender = publisher.session if publisher is not None else None
    count = run.count
    receivers = len(plan.targets)
    node.turns.work += receivers if run.qos == 0 else receivers + receivers * (count >> 2)
    dropped = 0
    # Only subscribers of the default namespace may get the publisher's own bytes: they hold the namespace's prefix.
    version_as_is = 0 if run.topic[0] == DOLLAR and run.topic.startswith(INSIDE) else run.version
    for target in plan.targets:
        session = target.session
        if target.has_no_local and session is sender:
            own = target.own
            if own is None:
                continue
            target = own  # noqa: PLW2901
        qos = target.qos if target.qos < run.qos else run.qos
        connection = session.connection
        retain = run.retain and target.retain_as_published
        if qos == 0:
            if connection is None:
                continue
            lost = 0
            if (
                run.qos == 0
                and connection.version == version_as_is
                and run.retain == retain
                and run.expires_at == 0
                and not target.identifier_properties
                and connection.client_alias_max == 0
                and connection.client_packet_max == 0
            ):
                if not connection.send(run.wire, count):
                    lost = session.send_some(connection, run, retain, b"")
            else:
                lost = session.send_now(connection, run, retain, target.identifier_properties, now)
            stats.publishes_out_qos0 += count - lost
            dropped += lost
            if publisher is not None and connection.is_crowded():
                slow_down(node, publisher, connection, now)
        elif not session.is_logged:  # a logged session gets the run from a log
            lost = session.deliver(run, qos, retain, target.identifier_properties, None, now)
            if lost:
                stats.dropped_queue += lost
            if publisher is not None and connection is not None and session.is_crowded():
                slow_down(node, publisher, connection, now)
    if dropped:
        stats.dropped_slow += dropped


def deliver_shared(node: NodeState, group: ShareGroup, run: Run, publisher: Connection | None, now: int) -> None:
    """One member of the group gets each message."""
    sender = publisher.session if publisher is not None else None
    publisher_id = sender.client_id if sender is not None else ""
    if group.remote is None:
        deliver_to_members(node, group, run, publisher, publisher_id, now)
    else:
        share_out(node, group, run, publisher, publisher_id, 0, now)


def deliver_to_members(
    node: NodeState, group: ShareGroup, run: Run, publisher: Connection | None, publisher_id: str, now: int
) -> None:
    """Members on this node get a run, one for each message where the strategy says so."""
    if not group.spreads or run.count == 1:
        deliver_to_member(node, group, run, publisher, publisher_id, now)
        return
    node.turns.work += run.count
    for index in range(run.count):
        deliver_to_member(node, group, run.part(index, index + 1), publisher, publisher_id, now)


def deliver_to_member(
    node: NodeState, group: ShareGroup, run: Run, publisher: Connection | None, publisher_id: str, now: int
) -> None:
    """Choose a member and give it the run."""
    member = group.pick(publisher_id, run.topic)
    if member is None:
        return
    stats = node.stats
    qos = member.qos if member.qos < run.qos else run.qos
    retain = run.retain and member.retain_as_published
    session = member.session
    lost = session.deliver(run, qos, retain, member.identifier_properties, group, now)
    connection = session.connection
    if qos:
        stats.dropped_queue += lost
    elif connection is not None:
        stats.publishes_out_qos0 += run.count - lost
        stats.dropped_slow += lost
    if publisher is not None and connection is not None and (connection.is_crowded() or session.is_crowded()):
        slow_down(node, publisher, connection, now)


def reroute(node: NodeState, group: ShareGroup, run: Run, now: int) -> None:
    """A message whose chosen member is gone for good goes to another one, if there is any."""
    current = find_group(node, group.name, group.topic_filter)
    if current is None:
        return
    if current.remote is not None:
        share_out(node, current, run, None, "", 0, now)
    else:
        deliver_to_member(node, current, run, None, "", now)


# --- other nodes ---


def forward(node: NodeState, peers: list[Peer], run: Run, publisher: Connection | None, now: int) -> None:
    """Give a run to other nodes; it goes out with the frame of this turn."""
    if run.expires_at and run.expires_at <= now:
        return
    head = run_head(run, now)
    for peer in peers:
        peer.put(head, run.wire, run.qos, run.count)
        if publisher is not None and peer.is_full():
            slow_down(node, publisher, peer, now)


def share_out(
    node: NodeState,
    group: ShareGroup,
    run: Run,
    publisher: Connection | None,
    publisher_id: str,
    hops: int,
    now: int,
) -> None:
    """Divide a run between the nodes that have members of the group; each chooses among its own."""
    if run.expires_at and run.expires_at <= now:
        return
    low = 0
    table = node.table
    local_first = node.settings.shared_local_first
    for choice in group.choose(run.count, publisher_id, run.topic, table.node_id, table.links, local_first):
        part = run.part(low, low + choice.count)
        low += choice.count
        peer = choice.peer
        if peer is None:
            deliver_to_members(node, group, part, publisher, publisher_id, now)
            continue
        peer.put(shared_head(part, group, hops, publisher_id, now), part.wire, part.qos, part.count)
        if publisher is not None and peer.is_full():
            slow_down(node, publisher, peer, now)


def take_run(node: NodeState, run: Run, peer: Peer, now: int) -> None:
    """A run from another node, for all clients of this one. The publisher's node retains and forwards it."""
    topic = run.topic
    plan = node.table.plans.get(topic)
    if plan is None:
        check_topic_name(topic)
        plan = node.table.plan(topic)
    if plan.targets:
        deliver_here(node, plan, run, peer, now)


def take_shared(node: NodeState, parcel: Parcel, peer: Peer, now: int) -> bool:
    """A run from another node, for one member of a group; False when no member is left for it.

    Where no member is connected, another node may have one that is: it goes on, ``HOPS_MAX`` times at most.
    """
    run = parcel.run
    check_topic_name(run.topic)
    group = find_group(node, parcel.group, parcel.topic_filter)
    if group is None:
        return False
    if group.remote is not None and parcel.hops < HOPS_MAX and not group.has_connected():
        share_out(node, group, run, peer, parcel.publisher_id, parcel.hops + 1, now)
        return True
    if not group.members:
        return False
    deliver_to_members(node, group, run, peer, parcel.publisher_id, now)
    return True


def find_group(node: NodeState, name: bytes, topic_filter: bytes) -> ShareGroup | None:
    """The shared group of this name and filter, if it has members anywhere."""
    entry = node.table.entry(topic_filter)
    if entry is None or entry.groups is None:
        return None
    return entry.groups.get(name)
