"""What members on this node have: records of one grant, from their arrival until the leader has what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.durable.groups.messages import Grant, Reported
from flockmq.durable.machine.ranges import RangeSet

if TYPE_CHECKING:
    from flockmq.durable.groups.recent import RecentBatch
    from flockmq.durable.groups.tokens import Token
    from flockmq.durable.machine.ranges import Range


class Member:
    """Takes records of a group on this node. Sessions and fetchers say how."""

    def __init__(self, group: int, name: bytes, topic_filter: bytes = b"") -> None:
        self.group = group
        self.handle = 0
        self.name = name
        self.topic_filter = topic_filter
        """Of topic names, in internal form; empty: all that the group selects."""
        self.generation = 0
        self.partitions: list[int] = []
        """What the group reads."""
        self.had: dict[int, int] = {}
        """Records by partition that a fetcher of this name held when it came: they take no room from it."""
        self.is_gone = False

    def quota(self, partition: int) -> int:
        """How many records of a partition the member may have at a time."""
        raise NotImplementedError

    def take(self, hold: Hold, batches: list[RecentBatch]) -> None:
        """Records have come: those of the hold, somewhere in these batches."""
        raise NotImplementedError

    def brought(self) -> None:
        """All records that were granted together have come."""

    def lost(self, hold: Hold) -> None:
        """A hold is over before the member was done: its time is, or its group was reset."""


class LeftMember(Member):
    """Stands for a member that was gone when its grant came."""

    def quota(self, partition: int) -> int:  # noqa: ARG002
        """Nothing more."""
        return 0

    def take(self, hold: Hold, batches: list[RecentBatch]) -> None:
        """Never called: its grants go back."""


class Hold:
    """One grant."""

    def __init__(self, number: int, partition: int, grant: Grant, member: Member) -> None:
        self.number = number
        self.partition = partition
        self.grant = grant
        self.member = member
        self.open = RangeSet()
        """What the member has said nothing of."""
        self.open.add(grant.low, grant.high)
        self.unconfirmed = RangeSet()
        """What the leader does not know the outcome of."""
        self.unconfirmed.add(grant.low, grant.high)
        self.fresh_until = 0
        """Until when it may go to the member: the leader gives up what a silent node may hold."""
        self.until = 0
        """When the member's time is over; 0: nothing went to the member yet."""

    def is_of(self, token: Token) -> bool:
        """Whether a token names a record of this grant."""
        grant = self.grant
        return (
            grant.low <= token.offset < grant.high
            and grant.group == token.group
            and grant.generation == token.generation
            and grant.attempt == token.attempt
        )

    def reported(self) -> list[Reported]:
        """For a leader that asks."""
        grant = self.grant
        return [
            Reported(grant.group, grant.generation, grant.handle, grant.attempt, low, high, self.member.name)
            for low, high in self.unconfirmed.ranges()
        ]

    def confirm(self, low: int, high: int) -> bool:
        """The leader has the outcome of these; True: of all."""
        self.open.remove(low, high)
        self.unconfirmed.remove(low, high)
        return not self.unconfirmed.lows

    def left(self) -> list[Range]:
        """What the member has said nothing of."""
        return self.open.ranges()
