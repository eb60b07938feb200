"""Fetchers: members that take records for one call and settle them later, by token, on any node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import OK
from flockmq.durable.groups.holds import Member
from flockmq.durable.groups.messages import (
    ACK,
    BACK,
    BURY,
    BY_BACKOFF,
    DONE,
    EXTEND,
    LATER,
    LETTER,
    NACK,
    NO_GROUP,
    OTHER_GENERATION,
    STALE,
    Settlement,
    encode_settlements,
)
from flockmq.durable.groups.port import Fetched
from flockmq.durable.groups.tokens import Token, read_token, token_text
from flockmq.durable.groups.window import DELIVERIES
from flockmq.log.columns import QOS_MASK
from flockmq.peering.kinds import GROUP_SETTLE
from flockmq.tasks import Signal, within

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.groups.holds import Hold
    from flockmq.durable.groups.members import Members
    from flockmq.durable.groups.port import Allows
    from flockmq.durable.groups.recent import RecentBatch
    from flockmq.durable.state.group_directory import GroupDirectory, Place
    from flockmq.log.batch import Record
    from flockmq.tasks import Promise, Task

COUNT_MAX: Final = 1_000
"""Records of one fetch."""
BYTES_MAX: Final = 8 * 1_048_576
"""Of one fetch, about."""
WAIT_MS_MAX: Final = 60_000
LINGER_MS: Final = 50
"""How long a fetch waits for more where some have come and there may be more."""
SENTENCES: Final = {
    STALE: "This token is stale: the record was delivered again, or is settled already.",
    LETTER: "The record is a dead letter already.",
    OTHER_GENERATION: "The group was reset after this record was fetched; fetch again.",
    NO_GROUP: "The consumer group was deleted.",
    LATER: "The partition's leader did not answer in time; try again.",
}
NO_TOKEN: Final = "This is no token of a consumer group; use a token that fetch returned."  # noqa: S105


class Fetcher(Member):
    """One call."""

    def __init__(self, group: int, name: bytes, count_max: int, until_ms: int, allows: Allows | None) -> None:
        super().__init__(group, name)
        self.found: list[tuple[Hold, Record]] = []
        self.surplus: list[tuple[Hold, int]] = []
        self.news = Signal()
        self.share = 0
        self.got: dict[int, int] = {}
        """Records by partition."""
        self._count_max = count_max
        self._ack_wait_ms = until_ms
        self._allows = allows
        self._bytes = 0

    def quota(self, partition: int) -> int:  # noqa: ARG002
        """A part of what is wanted, or all once it is known where records are."""
        return self.share or self._fair_share()

    def _fair_share(self) -> int:
        return -(-self._count_max // max(len(self.partitions), 1))

    def may_get_more(self) -> bool:
        """Whether a partition gave its share of what is wanted since the last time, and so may have more."""
        got, self.got = self.got, {}
        return not self.found or any(count >= self._fair_share() for count in got.values())

    def is_full(self) -> bool:
        """Whether the call has what it wanted."""
        return len(self.found) >= self._count_max or self._bytes >= BYTES_MAX

    def take(self, hold: Hold, batches: list[RecentBatch]) -> None:
        """See Member."""
        grant = hold.grant
        for batch in batches:
            for offset in range(max(grant.low, batch.base), min(grant.high, batch.end)):
                if offset not in hold.open:
                    continue
                record = batch.view.record(offset - batch.base)
                if self.is_full() or (self._allows is not None and not self._allows(record.topic)):
                    self.surplus.append((hold, offset))
                else:
                    self.found.append((hold, record))
                    self._bytes += len(record.payload)
        self.got[hold.partition] = self.got.get(hold.partition, 0) + grant.high - grant.low

    def brought(self) -> None:
        """See Member."""
        self.news.fire()


class Fetching:
    """Fetches, and settlements by token."""

    def __init__(self, boot: int, calls: PartitionCalls, directory: GroupDirectory, members: Members) -> None:
        self._boot = boot
        self._calls = calls
        self._directory = directory
        self._members = members

    def fetch(
        self, group_id: int, member: str, count_max: int, wait_ms: int, allows: Allows | None = None
    ) -> Promise[list[Fetched]]:
        """See ``GroupMembers``."""
        task = self._fetch(group_id, member.encode(), min(count_max, COUNT_MAX), min(wait_ms, WAIT_MS_MAX), allows)
        return self._calls.tasks.start("a fetch from a group", task)

    def _fetch(
        self, group_id: int, name: bytes, count_max: int, wait_ms: int, allows: Allows | None
    ) -> Task[list[Fetched]]:
        group = self._directory.group(group_id)
        if group is None or count_max <= 0 or not self._members.has_room():
            return []
        fetcher = Fetcher(group_id, name, count_max, group.ack_wait_ms, allows)
        self._members.join(fetcher, is_named=True)
        try:
            due_at = self._calls.now + max(wait_ms, 2 * LINGER_MS)
            while not fetcher.is_full() and self._calls.now < due_at:
                before = len(fetcher.found)
                wait_for_ms = due_at - self._calls.now if not before else LINGER_MS
                yield from within(fetcher.news.next(), wait_for_ms)
                if before and len(fetcher.found) == before:
                    break
                if not fetcher.may_get_more():
                    break
                fetcher.share = count_max
                self._members.touch(fetcher)
        finally:
            self._members.leave(fetcher, keeps=True)
        for hold, offset in fetcher.surplus:
            self._members.puller(hold.partition).settle(BACK, hold, offset, offset + 1)
        until = self._calls.now + group.ack_wait_ms
        for hold, _ in fetcher.found:
            hold.until = until
        return [one for one in [self._fetched(hold, record) for hold, record in fetcher.found] if one is not None]

    def _fetched(self, hold: Hold, record: Record) -> Fetched | None:
        place = self._directory.place_of(hold.partition)
        grant = hold.grant
        token = Token(hold.partition, grant.group, grant.attempt, grant.generation, record.offset)
        return None if place is None else fetched_record(record, place, token_text(token), grant.attempt & DELIVERIES)

    # By token.

    def ack(self, tokens: list[str]) -> Promise[list[str]]:
        """See ``GroupMembers``."""
        return self._settle(tokens, ACK)

    def nack(self, tokens: list[str], delay_ms: int | None = None, reason: str = "") -> Promise[list[str]]:
        """See ``GroupMembers``."""
        delay = BY_BACKOFF if delay_ms is None else min(max(delay_ms, 0), BY_BACKOFF - 1)
        return self._settle(tokens, NACK, delay, reason.encode())

    def bury(self, tokens: list[str], reason: str = "") -> Promise[list[str]]:
        """See ``GroupMembers``."""
        return self._settle(tokens, BURY, 0, reason.encode())

    def extend(self, tokens: list[str], ms: int) -> Promise[list[str]]:
        """See ``GroupMembers``."""
        return self._settle(tokens, EXTEND, min(max(ms, 0), BY_BACKOFF - 1))

    def _settle(
        self, texts: list[str], what: int, delay_ms: int = BY_BACKOFF, reason: bytes = b""
    ) -> Promise[list[str]]:
        task = self._settle_all(texts, what, delay_ms, reason)
        return self._calls.tasks.start("settlements by token", task)

    def _settle_all(self, texts: list[str], what: int, delay_ms: int, reason: bytes) -> Task[list[str]]:
        outcomes = [NO_TOKEN] * len(texts)
        by_partition: dict[int, list[tuple[int, Token]]] = {}
        for at, text in enumerate(texts):
            token = read_token(text)
            if token is not None:
                by_partition.setdefault(token.partition, []).append((at, token))
        questions = []
        for partition, tokens in by_partition.items():
            settlements = [_settlement(what, one, delay_ms, reason) for _, one in tokens]
            body = encode_settlements(self._calls.me, self._boot, settlements)
            questions.append((tokens, self._calls.ask_leader(partition, GROUP_SETTLE, body)))
        for tokens, question in questions:
            reply = yield from question
            codes = reply.body if reply.code == OK else bytes((LATER,)) * len(tokens)
            for (at, token), code in zip(tokens, codes, strict=True):
                outcomes[at] = "" if code == DONE else SENTENCES.get(code, SENTENCES[STALE])
                if code != LATER:
                    self._follow(token, what, delay_ms)
        return outcomes

    def _follow(self, token: Token, what: int, delay_ms: int) -> None:
        """What was said by token may be about a hold of this node."""
        hold = self._members.hold_of(token)
        if hold is None:
            return
        if what == EXTEND:
            hold.until = max(hold.until, self._calls.now + delay_ms)
        else:
            self._members.puller(token.partition).confirm(hold, token.offset, token.offset + 1)


def _settlement(what: int, token: Token, delay_ms: int, reason: bytes) -> Settlement:
    low = token.offset
    return Settlement(what, token.group, token.generation, token.attempt, low, low + 1, delay_ms, 0, reason)


def fetched_record(record: Record, place: Place, token: str, attempt: int) -> Fetched:
    """A record for a caller."""
    return Fetched(
        token,
        place.partition,
        place.shard,
        place.topic.name,
        record.offset,
        attempt,
        record.topic,
        record.client,
        record.timestamp_ms,
        record.payload,
        record.flags & QOS_MASK,
        record.user,
        record.key,
        record.properties,
    )
