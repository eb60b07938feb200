"""Replicas of partitions on this node follow the cluster state: opened, preferred leaders set, moved, removed.

```
 state names this node --> a log in the store: open it
                       |-> none, and this node is a founder: begin it with the first voters (state must be current,
                       |         and must know this node with this very store)
                       `-> none otherwise: an empty replica, which its leader fills
 state names it no more, and knows more of the group than this replica does --> close it and remove its log
 the topic is deleted ------------------------------------------------------> the same
```
A change of state marks the groups that it touched; a tick looks at a bounded number of them, so thousands of replicas
open without stopping anything else. Nothing is walked through when nothing changed.

*This very store*: a node that comes with another store than the one state knows has lost what it had, whatever lies
beside the store. State strikes it from all founders when it hears of the new store (``changes_nodes.py``); until then
nothing is begun here.

A store that can't read a part of its journal (``lost_groups``) may have lost whole groups: what is missing there is not
begun anew, unless it was made after this start. And state *knows more* when the configuration behind ``replicas`` is
not older than the one this replica knows: otherwise this replica may be a voter that state has yet to hear of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.replicas.moving import Mover
from flockmq.log.batch import CONFIG, NOOP
from flockmq.raft.configuration import Configuration
from flockmq.raft.state import HEALTH_NAMES, LEADER, ROLE_NAMES, SOUND

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.cluster.model import PartitionRecord, TopicRecord
    from flockmq.cluster.state import ClusterState
    from flockmq.durable.state.meta import Meta
    from flockmq.log.store import Store
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.ready import Ready
    from flockmq.raft.replicas import Replica

LOOKS_MAX: Final = 1_000
"""Groups that a tick looks at."""
OPENS_MAX: Final = 200
"""Replicas that a tick opens or removes."""
WHY_LOST: Final = (
    "This node had the only copy of this partition, and its store is gone: acknowledged records are lost. Put the "
    "store back, or give them up with `flockmq partition accept-loss {group}`."
)
TERM_BITS: Final = 20
"""More elections than any group has between two commands."""
UNNAMED_LOOK_MS: Final = 1_000


class PartitionStatus:
    """A replica as it is here now."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.role = "none"
        self.leader = 0
        self.term = 0
        self.replicas: tuple[int, ...] = ()
        """Voters as this replica knows them."""
        self.learners: tuple[int, ...] = ()
        self.first_offset = 0
        self.end_offset = 0
        """Behind the last record that is committed and applied here."""
        self.size_bytes = 0
        self.lag = 0
        """Entries that are in the log and not applied here."""
        self.health = "none"
        self.quiet = False
        self.reason = ""
        """Why it does not run; empty while it does."""


def lost_groups(store: Store) -> bool:
    """Whether a store that was just opened may have held groups that it does not know any more.

    Their creation may be in a part of the journal that can't be read. Then all logs that it still knows are marked,
    until each has been refilled; the mark of a new replica, which has yet to be filled, names no entry.
    """
    if not store.groups:
        return bool(store.notes)
    return any(log.damage is not None and log.damage.everything and log.damage.first for log in store.groups.values())


class Partitions:
    """See the module."""

    def __init__(
        self,
        meta: Meta,
        engine: RaftEngine,
        opened: Callable[[int, Replica], None],
        closed: Callable[[int], None],
    ) -> None:
        """``opened`` is called with each replica that was opened, before anything is applied to it; ``closed`` with
        each group whose replica was removed."""
        self.mover = Mover(meta, engine)
        self._opened = opened
        self._closed = closed
        self.has_lost = lost_groups(engine.store)
        self._meta = meta
        self._engine = engine
        self._node = engine.host.node_id
        self._seen: dict[str, TopicRecord] = {}
        self._seen_version = -1
        self._dirty: dict[int, None] = {}
        self._stirred: dict[int, None] = {}
        """Groups with a new leader or other members."""
        self._uncertain: dict[int, None] = {}
        """Groups to begin here, once state is known to be current, and knows the store of this node."""
        self._early: dict[int, None] = {}
        """Replicas of groups that a command made which is yet to come here, maybe with the one that deletes them."""
        self._unnamed: dict[int, None] = {}
        """Replicas that state does not name, but knows too little of."""
        self._heirs: dict[int, None] = {}
        """Replicas that are to go on alone and can't yet."""
        self._look_at_unnamed_at = 0

    def start(self) -> None:
        """Open, in the coming ticks, whatever the store has."""
        for group in sorted(self._engine.store.groups):
            if group:
                self._dirty[group] = None
        self.follow(self._meta.state)

    @property
    def pending(self) -> int:
        """Groups that are still to be looked at, 0 when all that the state names is open."""
        return len(self._dirty) + len(self._uncertain)

    # What changes.

    def follow(self, state: ClusterState) -> None:
        """The cluster state changed: mark the groups that are concerned."""
        if self._uncertain and self._meta.is_current and self._is_registered():
            self._dirty.update(self._uncertain)
            self._uncertain = {}
        if state.versions.topics == self._seen_version:
            return
        self._seen_version = state.versions.topics
        for group in [one for one in self._early if one < state.next_group]:
            del self._early[group]
            self._dirty[group] = None
        seen = self._seen
        for key, topic in state.topics.items():
            known = seen.get(key)
            if known is not topic:
                self._mark(known, topic)
        if len(seen) != len(state.topics) or seen.keys() != state.topics.keys():
            for key, topic in seen.items():
                if key not in state.topics:
                    self._mark(topic, None)
        self._seen = dict(state.topics)

    def _mark(self, known: TopicRecord | None, topic: TopicRecord | None) -> None:
        before = {} if known is None else {partition.group: partition for partition in known.partitions}
        for partition in () if topic is None else topic.partitions:
            if before.pop(partition.group, None) != partition:
                self._dirty[partition.group] = None
        self._dirty.update(dict.fromkeys(before))

    def applied(self, group: int, ready: Ready) -> None:
        """A partition has applied something: maybe another node leads it, or its members are others."""
        if ready.install is not None or any(entry.kind in (NOOP, CONFIG) for entry in ready.committed):
            self._stirred[group] = None

    # Time.

    def tick(self, now: int) -> None:
        """Time passes; called about every 100 ms."""
        if self._engine.stopped:
            return
        for group in self._engine.host.take_unknown():
            if group == 0:
                self._meta.invited()
            elif group in self._meta.state.places:
                self._dirty[group] = None
        self._look_at_dirty(now)
        stirred = self._stirred
        self._stirred = {}
        for group in stirred:
            self.mover.consider(group, now)
        self.mover.tick(now)
        if (self._unnamed or self._heirs) and now >= self._look_at_unnamed_at:
            self._look_at_unnamed_at = now + UNNAMED_LOOK_MS
            self._look_at_unnamed(now)
            self._dirty.update(self._heirs)
            self._heirs = {}

    def _look_at_dirty(self, now: int) -> None:
        looks = 0
        work = 0
        while self._dirty and looks < LOOKS_MAX and work < OPENS_MAX and self._engine.store.has_room():
            group = next(iter(self._dirty))
            del self._dirty[group]
            looks += 1
            work += self._look(group)
            self.mover.consider(group, now)

    def _look(self, group: int) -> int:
        """Do what state wants for a group; how much work that was."""
        state = self._meta.state
        record = state.partition(group) if group in state.places else None
        if group in self._engine.replicas:
            return self._look_at_replica(group, record)
        if group in self._engine.store.groups:
            if record is None and group < state.next_group:
                self._engine.store.remove(group)
                self._engine.kick()
            else:
                self._open(group, None, record)
                self._dirty[group] = None  # maybe only to see that it is to go
            return 1
        if record is None:
            self._engine.host.elsewhere.pop(group, None)
            return 0
        if self._node not in record.members():
            self._is_elsewhere(group, record)
            return 0
        return self._create(group, record)

    def _is_elsewhere(self, group: int, record: PartitionRecord) -> None:
        """Runs of this node find the leader through those that have a replica."""
        host = self._engine.host
        host.elsewhere[group] = record.replicas
        forwarder = host.forwarders.get(group)
        if forwarder is not None and forwarder.leader not in record.members():
            forwarder.set_leader(0, 0)  # it would wait for an answer of a node that knows nothing of the group any more
            host.submitted(group)

    def _look_at_replica(self, group: int, record: PartitionRecord | None) -> int:
        self._unnamed.pop(group, None)
        if record is None:
            if group < self._meta.state.next_group:
                self._close(group)
                return 1
            self._early[group] = None
            return 0
        if self._node in record.members():
            self._prefer(group, record)
            if record.heir == self._node:
                self._inherit(group)
            return 0
        if self._engine.host.groups[group].state.configuration_index <= record.as_of:
            self._close(group)
            return 1
        self._unnamed[group] = None
        return 0

    def _create(self, group: int, record: PartitionRecord) -> int:
        voters = record.voters_to_begin(self._node)
        if voters is not None and not (self._meta.is_current and self._is_registered()):
            self._uncertain[group] = None
            return 0
        if self.has_lost and group < self._meta.groups_at_start:
            voters = None
        self._open(group, voters, record)
        if voters is None and record.replicas == (self._node,) and not record.heir:
            self._engine.events.append(("partition_lost", {"group": group, "message": WHY_LOST.format(group=group)}))
        if record.heir == self._node:
            self._dirty[group] = None
        return 1

    def _is_registered(self) -> bool:
        """Whether state knows this node with the store that it has."""
        record = self._meta.state.nodes.get(self._node)
        return record is not None and record.store == self._engine.store.identity

    def _open(self, group: int, founders: tuple[int, ...] | None, record: PartitionRecord | None) -> None:
        replica = self._engine.open(group, founders, 0 if record is None else record.preferred)
        self._engine.host.elsewhere.pop(group, None)
        self._opened(group, replica)

    def _prefer(self, group: int, record: PartitionRecord) -> None:
        """The node that should lead: it campaigns first, and others hand over to it."""
        self._engine.host.prefer(group, record.preferred)

    def _inherit(self, group: int) -> None:
        """Go on alone, once: the members that this replica has then say that it was done. Under a leader that there is
        after all the members change in good order (``moving.py``)."""
        state = self._engine.host.groups[group].state
        if state.configuration == Configuration((self._node,)) and state.health == SOUND:
            return
        self._heirs[group] = None  # the leader it knows may be gone, or leave it halfway
        if not state.leader and self._meta.is_current:
            # Later than any term that other nodes may know a leader of, for the log that knew those terms may be gone.
            self._engine.host.go_alone(group, self._meta.state.index << TERM_BITS)
            self._engine.wake()

    def _close(self, group: int) -> None:
        self._engine.close_group(group)
        self._meta.removal.forget(group)
        self.was_closed(group)

    def was_closed(self, group: int) -> None:
        """The replica of a group is removed here."""
        if not group:
            return
        self._unnamed.pop(group, None)
        self._heirs.pop(group, None)
        self.mover.forget(group)
        self._closed(group)
        self._dirty[group] = None  # state may want one here after all, or know where the others are

    def _look_at_unnamed(self, now: int) -> None:
        state = self._meta.state
        for group in list(self._unnamed):
            if group in self._engine.replicas and group in state.places:
                self._meta.removal.consider(group, now, state.partition(group).replicas)
            else:
                del self._unnamed[group]

    # For people.

    def status(self, group: int) -> PartitionStatus | None:
        """A replica as it is here; None when there is none."""
        replica = self._engine.replicas.get(group)
        if replica is None:
            return None
        state = replica.node.state
        status = PartitionStatus(group)
        broken = self._engine.host.broken.get(group)
        status.role = "stopped" if broken is not None else ROLE_NAMES[state.role]
        status.reason = "" if broken is None else str(broken)
        status.leader = self._node if state.role == LEADER and broken is None else state.leader
        status.term = state.term
        status.replicas = state.configuration.voters
        status.learners = state.configuration.learners
        status.first_offset = replica.log.first_offset
        status.end_offset = self._engine.committed_offset(group)
        status.size_bytes = replica.log.size()
        status.lag = state.log.last_index - state.applied
        status.health = HEALTH_NAMES[state.health]
        status.quiet = state.quiet
        return status
