"""One partition, as a node with members sees it: asks the leader for grants, brings their records, says what became.

```
 members --rooms--> PULL, parked at the leader --> grants --> holds --> records (replica here, or another) --> member
 member --ack, nack, ...--> settlements of a turn --> SETTLE --> the hold is confirmed
 a new leader --HELD(term)--> what is not confirmed; grants of earlier terms are void from now on
```
A question is parked as long as there are members or holds, so an idle group costs nothing but its part of one question
a second for all groups of the partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import OK
from flockmq.durable.groups.holds import Hold, LeftMember
from flockmq.durable.groups.messages import (
    ACK,
    BACK,
    BY_BACKOFF,
    EXPIRED,
    EXTENDED,
    LATER,
    LOST,
    SETTLEMENTS_MAX,
    Demand,
    Pull,
    Settlement,
    encode_settlements,
    read_grants,
)
from flockmq.errors import FlockError, OffsetGone, RemoteProtocolError
from flockmq.peering.kinds import GROUP_PULL, GROUP_SETTLE
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.groups.holds import Member
    from flockmq.durable.groups.messages import Grant, Grants
    from flockmq.durable.groups.recent import RecentBatch, RecentBatches
    from flockmq.durable.logs.logs import Logs
    from flockmq.tasks import Task

WAIT_MS: Final = 800
ASK_MS: Final = 3_000
ASKING_MAX: Final = 4
"""Questions on their way at a time, of one partition."""
PAUSE_MS: Final = 100
FRESH_MS: Final = 1_800
"""A grant goes to its member within this time after the question; see ``SILENT_MS`` of the leader."""
READ_BYTES: Final = 512 * 1_024
READ_WAIT_MS: Final = 500
AGAIN_MS: Final = 1_000
"""How long after a refusal of EXPIRED the leader is asked anew."""
SETTLE_MS: Final = 120_000
"""How long an outcome is kept for a leader that can't be reached."""


class Puller:
    """See the module."""

    def __init__(
        self,
        partition: int,
        boot: int,
        term: int,
        calls: PartitionCalls,
        logs: Logs,
        recent: RecentBatches,
        has_work: Callable[[Puller], None],
    ) -> None:
        self.partition = partition
        self.term = term
        """Grants of leaders of earlier terms are void."""
        self._boot = boot
        self._calls = calls
        self._logs = logs
        self._recent = recent
        self._has_work = has_work
        self.members: dict[tuple[int, int], Member] = {}
        self.holds: dict[int, Hold] = {}
        self.taken: dict[tuple[int, int], int] = {}
        """How many records each member has, here."""
        self._hold_number = 0
        self._stream = calls.now << 8
        self._number = 0
        self._seen = 0
        self._is_whole = True
        self._asking = 0
        self._told: dict[tuple[int, int], int] = {}
        """What the leader believes of the room of each member."""
        self._touched: dict[tuple[int, int], None] = {}
        self._gone: dict[tuple[int, int], Member] = {}
        self._outgoing: list[tuple[Settlement, Hold]] = []
        self._grants: deque[Hold] = deque()
        self._is_reading = False

    # Members.

    def add(self, member: Member) -> None:
        """A member takes records of this partition."""
        key = (member.group, member.handle)
        self.members[key] = member
        member.had[self.partition] = self.taken.get(key, 0)
        self._gone.pop(key, None)
        self._touched[key] = None

    def touch(self, member: Member) -> None:
        """A member may take more, or in another generation."""
        self._touched[member.group, member.handle] = None

    def remove(self, member: Member, keeps: bool) -> None:
        """A member takes no more. Unless it ``keeps`` what it has, all of that goes back."""
        key = (member.group, member.handle)
        if self.members.get(key) is member:
            del self.members[key]
            self._told.pop(key, None)
            self._touched.pop(key, None)
            self._gone[key] = member
        if not keeps:
            for hold in [one for one in self.holds.values() if one.member is member]:
                for low, high in hold.left():
                    self.settle(LOST if hold.until else BACK, hold, low, high, reason=b"its member left")

    def is_idle(self) -> bool:
        """Whether there is nothing to ask for."""
        return not (self.members or self.holds or self._gone or self._outgoing)

    def room_of(self, member: Member) -> int:
        """How many more records a member takes from this partition."""
        taken = self.taken.get((member.group, member.handle), 0) - member.had.get(self.partition, 0)
        return max(member.quota(self.partition) - max(taken, 0), 0)

    # Questions.

    def flush(self) -> None:
        """A turn ends: say what became of records, and who takes how many."""
        while self._outgoing:
            some = self._outgoing[:SETTLEMENTS_MAX]
            del self._outgoing[: len(some)]
            self._calls.tasks.start("what became of records of a group", self._settle(some))
        if self._asking >= ASKING_MAX and not self._is_whole:
            return  # what members take is told when one of the questions has its answer
        demands = self._demands()
        # A question that is tried again at a new leader says what was: the new stream's follows it.
        if demands or (not self.is_idle() and (self._is_whole or not self._asking)):
            self._ask(demands)

    def _demands(self) -> list[Demand]:
        found: list[Demand] = []
        if self._is_whole:
            self._gone = {}
            self._touched = dict.fromkeys(self.members)
            self._told = {}
        for key, member in self._gone.items():
            found.append(Demand(key[0], member.generation, key[1], 0, member.name, b"", True))
        self._gone = {}
        touched, self._touched = self._touched, {}
        for key in touched:
            taker = self.members.get(key)
            if taker is None:
                continue
            room = self.room_of(taker)
            told = self._told.get(key, -1)
            more = room - told
            if told < 0 or (more > 0 and (told == 0 or 2 * more >= taker.quota(self.partition))):
                self._told[key] = room
                found.append(Demand(key[0], taker.generation, key[1], room, taker.name, taker.topic_filter))
        return found

    def forget_told(self, member: Member) -> None:
        """Tell the leader again what a member takes: its group has another generation."""
        self._told.pop((member.group, member.handle), None)
        self.touch(member)

    def _ask(self, demands: list[Demand]) -> None:
        self._number += 1
        holdings = [one for hold in self.holds.values() for one in hold.reported()] if self._is_whole else []
        wait_ms = WAIT_MS if self.members or self.holds else 0
        pull = Pull(
            self._calls.me,
            self._boot,
            self._stream,
            self._number,
            self._seen,
            wait_ms,
            self._is_whole,
            demands,
            holdings,
        )
        self._is_whole = False
        self._asking += 1
        self._calls.tasks.start("records for groups", self._asked(pull.encode(), self._stream, self._calls.now))

    def _asked(self, body: bytes, stream: int, asked_at: int) -> Task[None]:
        reply = yield from self._calls.ask_leader(self.partition, GROUP_PULL, body, ASK_MS)
        if reply.code == OK:
            try:
                self._heard(read_grants(reply.body), stream, asked_at)
            except RemoteProtocolError:
                yield Sleep(PAUSE_MS)
        else:
            yield Sleep(PAUSE_MS)
        self._asking -= 1
        self._has_work(self)

    def _heard(self, answer: Grants, stream: int, asked_at: int) -> None:
        if stream != self._stream:
            return
        if not answer.term:
            self._begin_stream()
            return
        if answer.term < self.term:
            return  # a leader that has been replaced
        self.term = answer.term
        for grant in answer.grants:
            if grant.number == self._seen + 1:
                self._seen = grant.number
                self._take(grant, asked_at)
        self._read()

    def _begin_stream(self) -> None:
        self._stream += 1
        self._number = 0
        self._seen = 0
        self._is_whole = True

    def fence(self, term: int) -> list[Hold]:
        """A leader of this term asks what members hold: grants of earlier ones are void from now on."""
        if term > self.term:
            self.term = term
            self._begin_stream()
        return list(self.holds.values())

    # Records.

    def _take(self, grant: Grant, asked_at: int) -> None:
        key = (grant.group, grant.handle)
        if key in self._told:
            self._told[key] = max(self._told[key] - (grant.high - grant.low), 0)
        member = self.members.get(key) or self._gone.get(key)
        self._hold_number += 1
        hold = Hold(self._hold_number, self.partition, grant, member or LeftMember(grant.group, b""))
        self.holds[hold.number] = hold
        hold.fresh_until = asked_at + FRESH_MS
        self.taken[key] = self.taken.get(key, 0) + grant.high - grant.low
        if member is None or member.is_gone or member.generation != grant.generation:
            self.settle(BACK, hold, grant.low, grant.high)
        else:
            self._grants.append(hold)

    def _read(self) -> None:
        if self._grants and not self._is_reading:
            self._is_reading = True
            self._calls.tasks.start("records of a group", self._bring())

    def _bring(self) -> Task[None]:
        """Bring granted records to their members, in the order of the grants."""
        served: dict[Member, None] = {}
        try:
            while self._grants:
                hold = self._grants.popleft()
                low, high = hold.grant.low, hold.grant.high
                batches = self._recent.find(self.partition, low, high) or self._read_here(low, high)
                if not batches:
                    batches = yield from self._fetch(low, high)
                if not hold.open.lows:
                    continue  # given back meanwhile
                if batches and not hold.member.is_gone and self._calls.now <= hold.fresh_until:
                    hold.member.take(hold, batches)
                    served[hold.member] = None
                else:
                    self._back_from(hold)
        finally:
            self._is_reading = False
        for member in served:
            member.brought()
        self._has_work(self)

    def _back_from(self, hold: Hold) -> None:
        """A grant can't be brought: all later ones of its member go back with it, or records would change order."""
        self.settle(BACK, hold, hold.grant.low, hold.grant.high)
        for later in [one for one in self._grants if one.grant.handle == hold.grant.handle]:
            if later.grant.group == hold.grant.group:
                self._grants.remove(later)
                self.settle(BACK, later, later.grant.low, later.grant.high)

    def _read_here(self, low: int, high: int) -> list[RecentBatch]:
        local = self._logs.local
        if not local.is_here(self.partition) or local.end(self.partition) < high:
            return []
        found: list[RecentBatch] = []
        try:
            while low < high:
                for data in local.read(self.partition, low, READ_BYTES, high):
                    found.append(self._recent.put(self.partition, data))
                    low = max(low, found[-1].end)
        except FlockError:
            return []
        return [batch for batch in found if batch.view.count]

    def _fetch(self, low: int, high: int) -> Task[list[RecentBatch]]:
        found: list[RecentBatch] = []
        while low < high:
            fetched = yield from self._logs.fetch(self.partition, low, READ_BYTES, READ_WAIT_MS, high)
            if isinstance(fetched.error, OffsetGone) and low < fetched.first:
                low = fetched.first  # retention was faster: the leader will see that
                continue
            if fetched.error is not None or not fetched.batches:
                yield Sleep(PAUSE_MS)
                return []
            for data in fetched.batches:
                found.append(self._recent.put(self.partition, data))
                low = max(low, found[-1].end)
        return [batch for batch in found if batch.view.count]

    # Outcomes.

    def settle(
        self, what: int, hold: Hold, low: int, high: int, delay_ms: int = BY_BACKOFF, reason: bytes = b""
    ) -> None:
        """Say what became of records of a hold."""
        grant = hold.grant
        before = hold.open.size
        hold.open.remove(low, high)
        self._free(hold, before - hold.open.size)
        last = self._outgoing[-1] if self._outgoing else None
        if what == ACK and last is not None and last[1] is hold and last[0].what == ACK and last[0].high == low:
            self._outgoing[-1] = (last[0]._replace(high=high), hold)
            return
        of = (grant.group, grant.generation, grant.attempt)
        self._outgoing.append((Settlement(what, *of, low, high, delay_ms, grant.handle, reason), hold))
        self._has_work(self)

    def _free(self, hold: Hold, count: int) -> None:
        """The member has room again."""
        if not count:
            return
        key = (hold.grant.group, hold.grant.handle)
        left = self.taken.get(key, 0) - count
        if left > 0:
            self.taken[key] = left
        else:
            self.taken.pop(key, None)
        if key in self.members:
            self._touched[key] = None

    def confirm(self, hold: Hold, low: int, high: int) -> None:
        """The leader has an outcome of records."""
        before = hold.open.size
        is_over = hold.confirm(low, high)
        self._free(hold, before - hold.open.size)
        if is_over:
            self.holds.pop(hold.number, None)

    def _settle(self, some: list[tuple[Settlement, Hold]]) -> Task[None]:
        """Tell the leader until it has committed the outcomes."""
        due_at = self._calls.now + SETTLE_MS
        while some and self._calls.now < due_at:
            body = encode_settlements(self._calls.me, self._boot, [one for one, _ in some])
            reply = yield from self._calls.ask_leader(self.partition, GROUP_SETTLE, body, ASK_MS)
            if reply.code == OK and len(reply.body) == len(some):
                some = self._settled(some, reply.body)
            elif not self._calls.layout.replicas_of(self.partition):
                break  # the topic is gone
            if some:
                yield Sleep(PAUSE_MS)
        for one, hold in some:
            self.confirm(hold, one.low, one.high)
        self._has_work(self)

    def _settled(self, some: list[tuple[Settlement, Hold]], codes: bytes) -> list[tuple[Settlement, Hold]]:
        left: list[tuple[Settlement, Hold]] = []
        for (one, hold), code in zip(some, codes, strict=True):
            if code == LATER:
                left.append((one, hold))
            elif code == EXTENDED:
                hold.open.add(one.low, one.high)
                key = (one.group, one.handle)
                self.taken[key] = self.taken.get(key, 0) + one.high - one.low
                hold.until = self._calls.now + AGAIN_MS
            else:
                self.confirm(hold, one.low, one.high)
        return left

    def expire(self, now: int) -> None:
        """Members had their time."""
        for hold in [one for one in self.holds.values() if 0 < one.until <= now and one.open.lows]:
            hold.member.lost(hold)
            for low, high in hold.left():
                self.settle(EXPIRED, hold, low, high, reason=b"not acknowledged in time")

    def drop_generation(self, group: int, generation: int) -> None:
        """A group was reset: holds of earlier generations are void."""
        for hold in [one for one in self.holds.values() if one.grant.group == group]:
            if hold.grant.generation < generation and hold.open.lows:
                hold.member.lost(hold)
                self.confirm(hold, hold.grant.low, hold.grant.high)

    def acknowledge(self, hold: Hold, low: int, high: int) -> None:
        """A member is done with records."""
        self.settle(ACK, hold, low, high)
