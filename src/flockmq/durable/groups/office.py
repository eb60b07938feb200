"""What the leader of a partition knows of consumer groups beyond the log, for one term: windows, members, grants.

```
 demands of nodes --> Holders --.
 table (log) -------> Windows --+--> hand_out --> grants --> NodeStream of the member's node --> its next PULL
 settlements -------> Windows ----> statements for the log
```
An office is void when the term ends, and when a statement of it was not committed: then another one begins, which asks
all nodes what they hold.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.cluster.groups import SHARE
from flockmq.durable.groups.keyed_window import KeyedWindow
from flockmq.durable.groups.messages import Grant
from flockmq.durable.groups.window import Holder, Window
from flockmq.durable.machine.ranges import RangeSet
from flockmq.mqtt.topics import matches
from flockmq.tasks import Signal

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.groups.messages import Demand, Pull, Reported
    from flockmq.durable.groups.window import Holding
    from flockmq.durable.machine.group_table import GroupTable
    from flockmq.tasks import Promise

STREAM_MS: Final = 5_000
"""A node that asks nothing for so long takes nothing more; several times as long as it waits for an answer."""
HOLDERS_MAX: Final = 100_000
"""Members of all groups of a partition."""


class NodeStream:
    """Grants on their way to one node."""

    def __init__(self, node_id: int, boot: int, stream: int) -> None:
        self.node_id = node_id
        self.boot = boot
        self.stream = stream
        self.number = 0
        """Of the last question."""
        self.granted = 0
        """Number of the last grant."""
        self.grants: list[Grant] = []
        """Those that the node has not seen."""
        self.news = Signal()
        self.demands: dict[int, dict[int, Demand]] = {}
        """By group and member: what the node said last."""

    def put(self, holding: Holding, group: int, generation: int) -> None:
        """Another grant."""
        self.granted += 1
        handle = holding.holder.handle
        self.grants.append(Grant(self.granted, group, generation, handle, holding.attempt, holding.low, holding.high))

    def saw(self, seen: int) -> None:
        """The node has the grants up to this number."""
        grants = self.grants
        if grants and grants[0].number <= seen:
            self.grants = [grant for grant in grants if grant.number > seen]


class GroupOffice:
    """What there is of one group."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.holders: dict[tuple[int, int], Holder] = {}
        """(node, handle) -> member, also one that has gone and still holds something."""
        self.takers: dict[tuple[int, int], Holder] = {}
        """Those that are there."""

    def holder(self, node_id: int, handle: int, name: bytes) -> Holder:
        """A member, known or not."""
        found = self.holders.get((node_id, handle))
        if found is None:
            found = self.holders[node_id, handle] = Holder(node_id, handle, name)
        return found

    def tidy(self) -> None:
        """Forget members that are gone and hold nothing."""
        for key in [key for key, one in self.holders.items() if not one.held and key not in self.takers]:
            del self.holders[key]


class Office:
    """See the module."""

    def __init__(self, partition: int, term: int, now: int, clock_ms: int = 0) -> None:
        self.partition = partition
        self._clock_ms = clock_ms
        self.term = term
        self.since = now
        self.is_void = False
        self.groups: dict[int, GroupOffice] = {}
        self.streams: dict[int, NodeStream] = {}
        self.boots: dict[int, int] = {}
        """Node -> the boot that its members' holdings belong to."""
        self.heard_at: dict[int, int] = {}
        """Node -> when it said something last."""
        self.missing: set[int] = set()
        """Nodes that have not said what they hold under this office."""
        self.is_collected = False
        self.stated: Promise[bool] | None = None
        """The latest statement that went into the log."""
        self.dirty: set[int] = set()
        """Groups that may have something to hand out."""
        self.hungry: set[int] = set()
        """Groups with a member that takes more than there was."""
        self.waiting: set[int] = set()
        """Groups with records that wait for the end of a backoff."""
        self.passing: set[int] = set()
        """Groups with ranges that are not selected and not stated yet."""
        self.dying: set[int] = set()
        """Groups with dead letters on their way."""

    def log_time(self, now: int) -> int:
        """What the log said when the term began, and what has passed here since: no clock that is set counts."""
        return self._clock_ms + now - self.since

    def group(self, group: ConsumerGroup, table: GroupTable) -> GroupOffice | None:
        """The office of a group in its present generation; None while the log has not begun that."""
        found = self.groups.get(group.id)
        state = table.state(group.id, group.generation)
        if state is None:
            return None
        is_keyed = group.mode != SHARE
        if found is not None and found.window.generation == state.generation:
            if found.window.is_keyed != is_keyed:
                self.void()  # the next office asks anew what members hold
                return None
            found.window.in_flight_max = group.max_in_flight
            return found
        kind = KeyedWindow if is_keyed else Window
        window = kind(state.generation, state.floor, group.max_in_flight, self.term)
        window.load(state)
        if state.dying:
            self.dying.add(group.id)
        found = self.groups[group.id] = GroupOffice(window)
        for stream in self.streams.values():
            for demand in stream.demands.get(group.id, {}).values():
                self._demand(stream, demand)
        return found

    def take_pull(self, stream: NodeStream, pull: Pull, now: int) -> None:
        """A question of a node: what its members take. Questions that were overtaken change nothing."""
        self.heard_at[stream.node_id] = now
        if pull.number <= stream.number:
            return
        stream.number = pull.number
        stream.saw(pull.seen)
        for demand in pull.demands:
            demands = stream.demands.setdefault(demand.group, {})
            if demand.is_gone:
                demands.pop(demand.handle, None)
                if not demands:
                    del stream.demands[demand.group]
            else:
                demands[demand.handle] = demand
            self._demand(stream, demand)
        stream.news.fire()

    def _demand(self, stream: NodeStream, demand: Demand) -> None:
        office = self.groups.get(demand.group)
        key = (stream.node_id, demand.handle)
        if office is None:
            self.dirty.add(demand.group)
            return
        if demand.is_gone:
            office.takers.pop(key, None)
            office.tidy()
        elif office.window.generation == demand.generation:
            unseen = [one for one in stream.grants if one.group == demand.group and one.handle == demand.handle]
            taken = sum([one.high - one.low for one in unseen if one.generation == demand.generation])
            holder = office.holder(stream.node_id, demand.handle, demand.name)
            holder.wants = partial(matches, demand.filter) if demand.filter else None
            holder.room = max(demand.room - taken, 0)
            office.takers[key] = holder
        self.dirty.add(demand.group)

    def end_stream(self, node_id: int) -> None:
        """A node takes nothing more."""
        stream = self.streams.pop(node_id, None)
        for group, office in self.groups.items():
            gone = [key for key in office.takers if key[0] == node_id]
            for key in gone:
                del office.takers[key]
            if gone:
                office.tidy()
                self.dirty.add(group)
        if stream is not None:
            stream.news.fire()

    def reconcile(self, node_id: int, holdings: list[Reported]) -> None:
        """A node with a new stream says what it holds: what it was granted beyond that never got there."""
        reported: dict[int, RangeSet] = {}
        for one in holdings:
            reported.setdefault(one.group, RangeSet()).add(one.low, one.high)
        for group, office in self.groups.items():
            there = reported.get(group) or RangeSet()
            for holding in office.window.of_node(node_id):
                for low, high in there.gaps(holding.low, holding.high):
                    office.window.give_back(low, high, holding.attempt)
                    self.dirty.add(group)

    def void(self) -> None:
        """Nothing that this office does counts any more."""
        self.is_void = True
        for stream in self.streams.values():
            stream.news.fire()
