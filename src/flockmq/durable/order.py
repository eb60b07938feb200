"""The order of a turn and of a tick: the parts of a node, one after the other, and why in this order.

```
 a loop turn ends   turn_of:       routes ... consensus ... formation --> one frame per peer
 in its middle      before_consensus --> a turn of consensus --> after_consensus
 every 100 ms       tick_of:       formation, components, routes, calls with tasks
                    slow_tick_of:  what durable topics look at besides consensus, which ticks every 50 ms
```
Outside this table: clients' shares (``node/turns.py``), nodes before clients (``drivers/flush.py``), the two timers
(``drivers/runner.py``, ``server/durable.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flockmq.peering.channels import FEEDS, MAPS, RAFT, RETAINED, RUNS

if TYPE_CHECKING:
    from flockmq.durable.node import DurableNode
    from flockmq.peering.forming import Formation
    from flockmq.peering.node import Base
    from flockmq.peering.ports import Component

Step = tuple[str, Callable[[int], None]]
"""A part's name, and what it does at a moment."""


def components_of(base: Base, durable: DurableNode | None) -> dict[int, Component]:
    """The parts that talk to their like on other nodes, by channel, in the order in which they end a turn."""
    found: dict[int, Component] = {
        # Retained messages go before maps, which tell that a route is known: a subscriber gets a message as a live one,
        # or finds it retained.
        RETAINED: base.retained,
        MAPS: base.maps,
        RUNS: base.forwarding,
    }
    if durable is not None:
        found[RAFT] = durable.consensus  # behind all that clients and nodes brought: one frame and one write have it
        found[FEEDS] = durable.delivery
    return found


def turn_of(base: Base, formation: Formation, components: dict[int, Component]) -> tuple[Step, ...]:
    """The steps at the end of a loop turn."""
    return (
        ("routes", base.routes.flush),  # subscriptions of this turn become entries of the own map
        *((type(one).__name__, one.flush) for one in components.values()),
        ("formation", formation.flush),
    )


def before_consensus(durable: DurableNode) -> tuple[Step, ...]:
    """The steps before a turn of consensus, whose results go into it."""
    return (
        ("clock", durable.begin_turn),
        ("cursors", durable.cursors.flush),
        ("releases", durable.releases.flush),
        ("QoS 2 to sessions", durable.session_room.sending.flush),
        ("sessions", durable.session_room.log.flush),
        ("members of groups", durable.group_room.members.flush),
        ("control", durable.control.flush),
    )


def after_consensus(durable: DurableNode) -> tuple[Step, ...]:
    """The steps that follow from a turn of consensus."""
    return (
        ("state", durable.meta.flush),
        ("barrier", durable.barrier.flush),
        ("groups", durable.group_room.dispatching.flush),
    )


def tick_of(base: Base, formation: Formation, components: dict[int, Component]) -> tuple[Step, ...]:
    """The steps of a tick, about every 100 ms, after membership."""
    return (
        ("formation", formation.tick),
        *((type(one).__name__, one.tick) for one in components.values()),
        ("routes", base.routes.tick),
        ("calls", base.calls.tick),  # runs tasks: the error of one is raised when all others have ticked
    )


def slow_tick_of(durable: DurableNode) -> tuple[Step, ...]:
    """The steps of durable topics in a tick, about every 100 ms, after consensus."""
    return (
        ("barrier", durable.barrier.flush),
        ("members", durable.members.tick),
        ("partitions", durable.partitions.tick),
        ("control", durable.control.tick),
        ("retention", durable.retention_sweeper.tick),
        ("cursors", durable.cursor_sweeper.tick),
        ("releases", durable.releases.tick),
        ("shards of sessions", durable.session_room.shards.tick),
        ("wills", durable.session_room.firing.tick),
        ("sessions without user or namespace", durable.session_room.pruning.tick),
        ("sessions to make sure of", durable.session_room.reclaiming.tick),
        ("sessions that went elsewhere", durable.session_room.yielding.tick),
        ("statements about sessions", durable.session_room.repeating.tick),
        ("QoS 2 to sessions", durable.session_room.sending.tick),
        ("marks of sessions", durable.session_room.marking.tick),
        ("holds of captured messages", durable.capture_holds.tick),
        ("groups", durable.group_room.dispatching.tick),
        ("members of groups", durable.group_room.members.tick),
        ("dead letters", durable.group_room.letters.tick),
        ("usage", durable.usage.tick),
        ("appending", durable.appending.tick),
    )
