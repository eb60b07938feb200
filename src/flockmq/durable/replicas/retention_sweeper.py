"""Lets partitions forget what is old or too much, a few groups at a time, on every replica for itself.

```
 tick --> the next few groups --> how long their segments may become, by what the topic keeps now
      `-> those that are due            |
                                        v
                     what the topic keeps, what cursors hold --> log/retention.expired
                                        |                                |
                     only what a checkpoint stands for may go            v
                     (more could go: have one made,          ripe, and with others: GroupLog.compact_to
                      look again soon)                        a cursor lost records: say so
```
A restart begins with the checkpoint and applies what follows; a follower that lacks entries which are gone gets the
checkpoint and all entries that are kept. So entries up to the latest checkpoint may go, and not one more.

Groups forget together, because files go only when the store has written down where all its logs are, and the more logs
there are the more that costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.log.errors import StoreDown
from flockmq.log.retention import Expiry, expired

if TYPE_CHECKING:
    from flockmq.durable.machine.machine import PartitionMachine
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.group_directory import GroupDirectory
    from flockmq.durable.state.layout import Layout
    from flockmq.durable.state.wall import WallClock
    from flockmq.log.settings import Retention
    from flockmq.node.events import EventList
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.replicas import Replica

ROUND_MS: Final = 10_000
"""How often every group is looked at."""
GROUPS_MAX: Final = 64
"""Groups that are looked at in one tick."""
SAVING_MAX: Final = 32
"""Checkpoints that are made for retention at once. Each time the store writes down where all its logs are."""
EMPTY_BYTES_MAX: Final = 65_536
"""A log without records is left alone while it is not larger: what leaders note there as they change is not worth the
files of a checkpoint, in each of thousands of unused topics."""
SAVE_RETRY_MS: Final = 2_000
DUE_GAP_MS: Final = 1_000
"""A group is not looked at sooner again because its oldest segment becomes too old."""
FORGET_GAP_MS: Final = 10
"""For each group of this node: how much later the next ones may forget; ``ROUND_MS`` at most."""


class _Saving:
    """A checkpoint that retention waits for."""

    def __init__(self, index: int) -> None:
        self.index = index
        """The checkpoint must cover this entry."""
        self.is_ours = False
        """True: the sweeper began the checkpoint and must activate it."""
        self.retry_at = 0


class RetentionSweeper:
    """See the module."""

    def __init__(
        self,
        engine: RaftEngine,
        machines: Machines,
        layout: Layout,
        groups: GroupDirectory,
        events: EventList,
        wall: WallClock,
    ) -> None:
        self._engine = engine
        self._machines = machines
        self._layout = layout
        self._groups = groups
        self._events = events
        self._wall = wall
        self._line: list[int] = []
        """Groups that this round has yet to look at."""
        self._round_at = 0
        self._ticked_at = 0
        self._rate = 0.0
        self._due: dict[int, int] = {}
        """Groups whose oldest segment becomes too old before the next round comes to them, and when."""
        self._ripe: dict[int, None] = {}
        """Groups that may forget something."""
        self._forget_at = 0
        self._saving: dict[int, _Saving] = {}
        self.bytes_removed = 0
        self.records_lost = 0
        """Records that went although a cursor held them."""

    def opened(self, group: int, replica: Replica) -> None:
        """A replica runs here: its first segment has to be right, too."""
        rule = self._layout.retention_of(group)
        if rule is not None:
            replica.log.roll_for(rule)

    def tick(self, now: int) -> None:
        """Look at some groups."""
        if self._engine.stopped:
            return
        if not self._line and now >= self._round_at:
            self._round_at = now + ROUND_MS
            self._line = list(self._machines.by_group)
            self._rate = len(self._line) / ROUND_MS
            self._ticked_at = now
        count = min(int(self._rate * (now - self._ticked_at)) + 1, GROUPS_MAX)
        self._ticked_at = now
        try:
            for _ in range(min(count, len(self._line))):
                self.look_at(self._line.pop(), now)
            for group in [group for group, at in self._due.items() if at <= now][:GROUPS_MAX]:
                self.look_at(group, now)
            for group in list(self._saving):
                self._follow_save(group, now)
            if self._ripe and now >= self._forget_at:
                self._forget_some(now)
        except StoreDown:
            return  # the engine notices by itself

    def look_at(self, group: int, now: int) -> None:
        """See what one group may forget, and do what has to be done before."""
        self._due.pop(group, None)
        replica = self._engine.replicas.get(group)
        rule = self._layout.retention_of(group)
        if replica is None or rule is None:
            return
        replica.log.roll_for(rule)  # the topic may have been altered
        wanted = self._expired(group, replica, rule, now)
        if wanted.index:
            self._ripe[group] = None
        elif rule.age_ms:
            self._expect(group, replica, rule, now)

    def _expect(self, group: int, replica: Replica, rule: Retention, now: int) -> None:
        """Note when the oldest segment will be too old, if the next round would be late for that."""
        segments = replica.log.segments
        at = segments[0].latest_timestamp + rule.age_ms + 1 - self._wall.offset_ms if segments else 0
        if now < at < now + ROUND_MS:
            self._due[group] = max(at, now + DUE_GAP_MS)

    def _expired(self, group: int, replica: Replica, rule: Retention, now: int) -> Expiry:
        """What a group may forget now; a checkpoint is begun if more could go with one."""
        log = replica.log
        machine = self._machines.by_group.get(group)
        is_limited = rule.age_ms or rule.bytes or rule.bytes_bound
        if machine is None or group in self._engine.host.broken or not log.segments or not is_limited:
            return Expiry()
        if log.first_offset == log.end_offset and log.size() < EMPTY_BYTES_MAX:
            return Expiry()
        wall_ms = self._wall.at(now)
        held = self.held_offset(group, machine)
        last = min(machine.applied, log.last)
        # What sinks have staged stays on all replicas alike: where it is too much, the leader drops it through the log.
        staged = machine.sinks.held_index()
        if staged:
            last = min(last, staged - 1)
        wanted = expired(log, rule, wall_ms, held, last)
        checkpoint = replica.checkpoints.latest()
        known = checkpoint.index if checkpoint is not None else 0
        if known < wanted.index:
            self._begin_save(group, replica, wanted.index, now)
            wanted = expired(log, rule, wall_ms, held, min(known, last))
        return wanted

    def held_offset(self, group: int, machine: PartitionMachine) -> int | None:
        """The lowest offset that a cursor or consumer group which holds retention needs; None: none holds any.

        One that has not been anywhere yet may still want everything.
        """
        held: int | None = None
        for name in self._layout.holders_of(group):
            position = machine.cursors.get(name, 0)
            held = position if held is None else min(held, position)
        table = machine.groups
        needed = [table.held_offset(one) for one in self._groups.holders_of(group)]
        if table.runs:
            needed.append(table.letters_from())
        return min([*needed, held]) if held is not None else min(needed, default=None)

    def _forget_some(self, now: int) -> None:
        for group in list(self._ripe)[:GROUPS_MAX]:
            del self._ripe[group]
            replica = self._engine.replicas.get(group)
            machine = self._machines.by_group.get(group)
            rule = self._layout.retention_of(group)
            if replica is None or machine is None or rule is None:
                continue
            wanted = self._expired(group, replica, rule, now)  # a cursor may hold more meanwhile
            if wanted.index:
                self._forget(group, replica, machine, wanted)
            self._expect(group, replica, rule, now)
        if not self._ripe:
            self._forget_at = now + min(FORGET_GAP_MS * len(self._machines.by_group), ROUND_MS)

    def _forget(self, group: int, replica: Replica, machine: PartitionMachine, wanted: Expiry) -> None:
        log = replica.log
        before = log.first_offset
        log.compact_to(wanted.index)
        self.bytes_removed += wanted.bytes
        self._engine.kick()
        if not wanted.overrun:
            return
        for name in self._layout.holders_of(group):
            lost = log.first_offset - max(machine.cursors.get(name, 0), before)
            if lost > 0:
                self.records_lost += lost
                self._events.note(
                    "cursor_overrun",
                    {"group": group, "cursor": name, "lost": lost, "first_offset": log.first_offset},
                )

    def _begin_save(self, group: int, replica: Replica, index: int, now: int) -> None:
        if group not in self._saving and len(self._saving) < SAVING_MAX:
            self._saving[group] = _Saving(index)
            self._save(group, replica, now)

    def _save(self, group: int, replica: Replica, now: int) -> None:
        """Begin a checkpoint, unless one is being saved already: then its beginner lets it count."""
        saving = self._saving[group]
        saving.retry_at = now + SAVE_RETRY_MS
        table = self._engine.host.desks[group].table
        if replica.checkpoints.save(replica.node, table, self._machines.state_of(group)):
            saving.is_ours = True
            self._engine.kick()

    def _follow_save(self, group: int, now: int) -> None:
        saving = self._saving[group]
        replica = self._engine.replicas.get(group)
        if replica is None or group in self._engine.host.broken:
            del self._saving[group]
            return
        if saving.is_ours and replica.checkpoints.use_saved():
            saving.is_ours = False
            self._engine.kick()
        checkpoint = replica.checkpoints.latest()
        if not saving.is_ours and checkpoint is not None and checkpoint.index >= saving.index:
            del self._saving[group]
            self.look_at(group, now)
        elif now >= saving.retry_at:
            self._save(group, replica, now)
