"""The members of all groups on this node, and the partitions that they read.

```
 join(member) --> a Puller for each partition of its group     flush: pullers with something to say
 leave(member) --> what it has goes back, unless it keeps that  tick: times that are over, groups that changed
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from flockmq.durable.calls import OK, Reply
from flockmq.durable.groups.messages import encode_holdings
from flockmq.durable.groups.pulling import Puller
from flockmq.durable.groups.recent import RecentBatches
from flockmq.peering.fields import U64, Reader
from flockmq.peering.kinds import GROUP_HELD

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.groups.holds import Hold, Member
    from flockmq.durable.groups.tokens import Token
    from flockmq.durable.logs.logs import Logs
    from flockmq.durable.state.group_directory import GroupDirectory

MEMBERS_MAX: Final = 100_000
"""Of this node."""
NAMES_MAX: Final = 10_000
"""Fetchers whose number is remembered: the same fetcher is the same member."""


class Acknowledging(Protocol):
    """The groups of a session."""

    def flush(self) -> None:
        """Settle what the client has acknowledged."""


class Members:
    """See the module."""

    def __init__(self, boot: int, calls: PartitionCalls, logs: Logs, directory: GroupDirectory) -> None:
        self._boot = boot
        self._calls = calls
        self._logs = logs
        self._directory = directory
        self._recent = RecentBatches()
        self.pullers: dict[int, Puller] = {}
        """By partition."""
        self._work: dict[Puller, None] = {}
        self._acknowledged: list[Acknowledging] = []
        """Sessions whose clients acknowledged something in this turn."""
        self._terms: dict[int, int] = {}
        """Partition -> the latest term in which a leader asked what members hold."""
        self.by_group: dict[int, dict[int, Member]] = {}
        """Group -> handle -> member."""
        self._handle = 0
        self._names: dict[tuple[int, bytes], int] = {}
        self._version = (-1, -1)
        calls.serve_replica(GROUP_HELD, self._on_held)

    def has_room(self) -> bool:
        """Whether another member may join."""
        return sum(map(len, self.by_group.values())) < MEMBERS_MAX

    def join(self, member: Member, is_named: bool = False) -> None:
        """A member takes records from now on. ``is_named``: it comes and goes under its name."""
        members = self.by_group.setdefault(member.group, {})
        key = (member.group, member.name)
        handle = self._names.get(key, 0) if is_named else 0
        if not handle or handle in members:
            self._handle += 1
            handle = self._handle
        if is_named:
            self._names.pop(key, None)
            self._names[key] = handle
            if len(self._names) > NAMES_MAX:
                del self._names[next(iter(self._names))]
        member.handle = handle
        members[handle] = member
        self._place(member)

    def _place(self, member: Member) -> None:
        """Let a member read the partitions that its group reads now."""
        group = self._directory.group(member.group)
        partitions = [] if group is None else [place.partition for place in self._directory.places_of(group)]
        generation = 0 if group is None else group.generation
        for partition in [one for one in member.partitions if one not in partitions]:
            puller = self.pullers.get(partition)
            if puller is not None:
                puller.remove(member, False)
                self._has_work(puller)
        added = [one for one in partitions if one not in member.partitions]
        member.partitions = partitions
        is_anew = generation != member.generation
        member.generation = generation
        for partition in partitions:
            puller = self.puller(partition)
            if partition in added:
                puller.add(member)
            elif is_anew:
                puller.forget_told(member)
            if is_anew:
                puller.drop_generation(member.group, generation)
            self._has_work(puller)

    def touch(self, member: Member) -> None:
        """A member may take more."""
        for partition in member.partitions:
            puller = self.puller(partition)
            puller.touch(member)
            self._has_work(puller)

    def leave(self, member: Member, keeps: bool = False) -> None:
        """A member takes no more; what it has goes back, unless it ``keeps`` that."""
        member.is_gone = True
        members = self.by_group.get(member.group)
        if members is not None and members.get(member.handle) is member:
            del members[member.handle]
            if not members:
                del self.by_group[member.group]
        for partition in member.partitions:
            puller = self.pullers.get(partition)
            if puller is not None:
                puller.remove(member, keeps)
                self._has_work(puller)

    def puller(self, partition: int) -> Puller:
        """The partition, as this node sees it."""
        found = self.pullers.get(partition)
        if found is None:
            term = self._terms.get(partition, 0)
            found = Puller(partition, self._boot, term, self._calls, self._logs, self._recent, self._has_work)
            self.pullers[partition] = found
        return found

    def hold_of(self, token: Token) -> Hold | None:
        """The hold that a token belongs to, if it is on this node."""
        puller = self.pullers.get(token.partition)
        if puller is not None:
            for hold in puller.holds.values():
                if hold.is_of(token):
                    return hold
        return None

    def _has_work(self, puller: Puller) -> None:
        if not self._work:
            self._calls.engine.wake()
        self._work[puller] = None

    def _on_held(self, body: bytes) -> Reply:
        """The new leader of a partition asks what members here hold."""
        reader = Reader(body)
        partition = reader.u64()
        term = reader.u64()
        self._terms[partition] = max(self._terms.get(partition, 0), term)
        puller = self.pullers.get(partition)
        if puller is None:
            return Reply(OK, U64.pack(self._boot) + encode_holdings([]))
        found = [one for hold in puller.fence(term) for one in hold.reported()]
        self._has_work(puller)
        return Reply(OK, U64.pack(self._boot) + encode_holdings(found))

    def acknowledged(self, queue: Acknowledging) -> None:
        """A client has acknowledged something: it is settled when the turn ends, all together."""
        self._acknowledged.append(queue)
        self._calls.engine.wake()

    def flush(self, now: int) -> None:  # noqa: ARG002
        """A turn ends."""
        acknowledged, self._acknowledged = self._acknowledged, []
        for queue in acknowledged:
            queue.flush()
        while self._work:
            work, self._work = self._work, {}
            for puller in work:
                puller.flush()

    def tick(self, now: int) -> None:
        """Time passes; groups may have changed."""
        if self._version != self._directory.version:
            self._version = self._directory.version
            for members in list(self.by_group.values()):
                for member in list(members.values()):
                    self._place(member)
        for partition, puller in list(self.pullers.items()):
            puller.expire(now)
            if puller.is_idle() and not self._calls.layout.replicas_of(partition):
                del self.pullers[partition]
