"""The window of a group over one partition, at the partition's leader: which record may go to which member now.

```
 log --feed--> fresh --hand_out--> held --ack--> settled          (the caller has SETTLE committed)
                 ^ '-- not sent --' |
                 |                  `--fail--> failing --FAIL committed--> waiting (backoff) --hand_out--> held
                 |                        `--> dead: no further delivery
  position: all before it were looked at        known: what is settled, held or dying beyond it
```
A pure object: the caller says what time it is, reads the log and commits. Records are handled as ranges; a range has
one number of delivery. What is in flight (held, failing, waiting) is bounded, so the holes above the floor are, too.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.durable.machine.group_bodies import Failed
from flockmq.durable.machine.ranges import RangeSet

if TYPE_CHECKING:
    from flockmq.durable.machine.group_table import GroupState
    from flockmq.durable.machine.ranges import Range

FRESH_MAX: Final = 4_096
"""Records that are looked at ahead of what members take, unless a batch has more."""
LOOKED_MAX: Final = 512
"""Fresh ranges that are looked at for a member with a filter of its own."""
PASSED_MAX: Final = 1_024
"""Ranges without selected records that wait to be stated."""

ATTEMPT_BITS: Final = 16
DELIVERIES: Final = (1 << ATTEMPT_BITS) - 1
"""The lower bits of an attempt count deliveries; the others are the term of the leader that handed the record out. So
what a former holder says is never taken for the word of the present one, though both leader and node were lost."""

DONE: Final = 0
STALE: Final = 1
"""The record was handed out again, or settled otherwise."""
LETTER: Final = 2
"""The record is a dead letter."""

Wants = Callable[[bytes], bool]
"""Whether a member takes records of a topic name."""
NamesOf = Callable[[int, int], list[tuple[int, int, bytes]]]
"""The topic names of a range of records, as ranges."""


class Piece(NamedTuple):
    """Selected records, one after the other."""

    low: int
    high: int
    key: bytes
    """Their partition key, or topic name; empty where the caller was not asked to look."""


class Pin(NamedTuple):
    """Records of a key whose outcome is not committed yet."""

    key: bytes
    records: int


class Holder:
    """A member that takes records of the partition: ``room`` more, now."""

    def __init__(self, node_id: int, handle: int, name: bytes, wants: Wants | None = None) -> None:
        self.node_id = node_id
        self.handle = handle
        """Number of the member on its node."""
        self.name = name
        self.wants = wants
        """None: all records of the group."""
        self.room = 0
        self.held = 0


class Holding:
    """Records with one holder, in one ``attempt``: the number of the delivery, and the term that it began in."""

    def __init__(self, low: int, high: int, attempt: int, holder: Holder, key: bytes = b"") -> None:
        self.low = low
        self.high = high
        self.attempt = attempt
        self.deliveries = attempt & DELIVERIES
        self.holder = holder
        self.key = key
        self.until = 0
        """Time until which the leader believes a silent node to hold them; 0: as its group says."""


class Waiting(NamedTuple):
    """A record whose delivery failed."""

    deliveries: int
    ready_ms: int
    last: Holder | None
    key: bytes


class Window:
    """See the module. Records go to any member, as fast as members take them."""

    is_keyed = False

    def __init__(self, generation: int, floor: int, in_flight_max: int, term: int = 0) -> None:
        self.generation = generation
        self._term = term << ATTEMPT_BITS
        self.in_flight_max = in_flight_max
        self.position = floor
        """The next offset to be looked at."""
        self.known = RangeSet()
        self.done = RangeSet()
        """Settled here, whether or not that is committed yet; from ``base`` on."""
        self.base = floor
        self.dying: set[int] = set()
        self.fresh: deque[Piece] = deque()
        self.fresh_count = 0
        self.failed_before: dict[int, Failed] = {}
        """What the log says of records beyond ``position``."""
        self.held: dict[int, Holding] = {}
        """By first offset."""
        self.held_count = 0
        self.failing: dict[int, Waiting] = {}
        """The log does not say yet that the delivery failed."""
        self.waiting: dict[int, Waiting] = {}
        self.passed: list[Range] = []
        """Not selected, and not stated yet."""
        self._lows: list[int] = []
        self._heap: list[tuple[int, int]] = []
        """(ready, offset) of what waits; some do not hold any more."""
        self._turn = 0

    def load(self, state: GroupState) -> None:
        """Begin where the table says that the group stands."""
        self.base = self.position = state.floor
        for low, high in state.settled.ranges():
            self.known.add(low, high)
            self.done.add(low, high)
        for offset in state.dying:
            self.known.add(offset, offset + 1)
            self.dying.add(offset)
        self.failed_before = dict(state.failed)

    def claim(self, holder: Holder, low: int, high: int, attempt: int, key: bytes = b"") -> list[Holding]:
        """A node says that its member holds these records; those that are settled are left out."""
        found: list[Holding] = []
        low = max(low, self.position)
        deliveries = attempt & DELIVERIES
        failed = self.failed_before
        over = sorted([one for one in failed if low <= one < high and failed[one].deliveries >= deliveries])
        for end in [*over, high]:  # of some the log says that this very delivery failed: its holder does not know yet
            for start, stop in self.known.gaps(low, end):
                self.known.add(start, stop)
                for offset in range(start, stop) if failed else ():
                    failed.pop(offset, None)
                found.append(self._hold(start, stop, attempt, holder, key))
            low = end + 1
        return found

    @property
    def in_flight(self) -> int:
        """Records that are not settled and were handed out at least once."""
        return self.held_count + len(self.failing) + len(self.waiting) + len(self.dying)

    def room(self) -> int:
        """How many more may be in flight."""
        return self.in_flight_max - self.in_flight

    # What the log has.

    def wants_more(self) -> bool:
        """Whether the log should be looked at further."""
        return self.fresh_count < FRESH_MAX and self.room() > 0

    def feed(self, end: int, pieces: Sequence[Piece]) -> None:
        """The log from ``position`` to ``end`` was looked at: these records are selected."""
        low = self.position
        self.position = end
        for piece in pieces:
            self._pass(low, piece.low)
            low = piece.high
            if not self.known.lows:
                self._enter(piece)
                continue
            for start, stop in self.known.gaps(piece.low, piece.high):
                self._enter(Piece(start, stop, piece.key))
        self._pass(low, end)
        self.known.remove(0, end)

    def _pass(self, low: int, high: int) -> None:
        """Records that are not selected are settled with the next statement."""
        for start, stop in self.known.gaps(low, high) if self.known.lows else ((low, high),):
            if start >= stop:
                continue
            self._settled(start, stop)
            if self.passed and self.passed[-1][1] == start:
                self.passed[-1] = (self.passed[-1][0], stop)
            else:
                self.passed.append((start, stop))

    def _enter(self, piece: Piece) -> None:
        """Selected records that no member has had, or whose deliveries failed before this node led."""
        low = piece.low
        if self.failed_before:
            for offset in sorted([one for one in self.failed_before if low <= one < piece.high]):
                failed = self.failed_before.pop(offset)
                self._put_fresh(Piece(low, offset, piece.key))
                self._wait(offset, Waiting(failed.deliveries, failed.ready_ms, None, piece.key))
                low = offset + 1
        self._put_fresh(Piece(low, piece.high, piece.key))

    def _put_fresh(self, piece: Piece) -> None:
        if piece.low >= piece.high:
            return
        self.fresh_count += piece.high - piece.low
        last = self.fresh[-1] if self.fresh else None
        if last is not None and last.high == piece.low and last.key == piece.key:
            self.fresh[-1] = Piece(last.low, piece.high, piece.key)
        else:
            self.fresh.append(piece)

    def _wait(self, offset: int, waiting: Waiting) -> None:
        self.waiting[offset] = waiting
        heappush(self._heap, (waiting.ready_ms, offset))

    def gone(self, first: int) -> None:
        """Retention took all before ``first``: what was pending is settled."""
        if first <= self.position:
            return
        self._settled(self.position, first)
        self.passed.append((self.position, first))
        self.position = first
        self.known.remove(0, first)

    # To members.

    def ready_at(self) -> int:
        """When the next record that waits may go; -1: none waits."""
        while self._heap and self._is_void(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else -1

    def _is_void(self, one: tuple[int, int]) -> bool:
        waiting = self.waiting.get(one[1])
        return waiting is None or waiting.ready_ms != one[0]

    def hand_out(self, holders: list[Holder], now_ms: int, names_of: NamesOf | None = None) -> list[Holding]:
        """Give members what they take: first what waited, then what is fresh, in fair parts."""
        takers = [holder for holder in holders if holder.room > 0]
        found: list[Holding] = []
        if not takers:
            return found
        self._hand_out_again(takers, now_ms, found, names_of)
        takers = [holder for holder in takers if holder.room > 0]
        if any(holder.wants is not None for holder in takers):
            self._hand_out_named(takers, found, names_of)
        else:
            self._hand_out_any(takers, found)
        return found

    def _hand_out_again(
        self, takers: list[Holder], now_ms: int, found: list[Holding], names_of: NamesOf | None
    ) -> None:
        left: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(left) < LOOKED_MAX:
            one = heappop(self._heap)
            if self._is_void(one):
                continue
            waiting = self.waiting[one[1]]
            name = names_of(one[1], one[1] + 1)[0][2] if names_of is not None else b""
            fit = [holder for holder in takers if holder.room > 0 and (holder.wants is None or holder.wants(name))]
            if not fit:
                left.append(one)
                if not any(holder.room > 0 for holder in takers):
                    break
                continue
            others = [holder for holder in fit if holder is not waiting.last] or fit
            self._turn += 1
            holder = others[self._turn % len(others)]
            del self.waiting[one[1]]
            attempt = self.attempt(waiting.deliveries + 1)
            found.append(self._hold(one[1], one[1] + 1, attempt, holder, waiting.key))
            holder.room -= 1
        for one in left:
            heappush(self._heap, one)

    def _hand_out_any(self, takers: list[Holder], found: list[Holding]) -> None:
        budget = min(self.fresh_count, self.room())
        self._turn += 1
        at = self._turn % max(len(takers), 1)
        takers = takers[at:] + takers[:at]
        while budget > 0 and takers:
            share = max(-(-budget // len(takers)), 1)
            for holder in takers:
                wanted = min(share, holder.room, budget)
                while wanted > 0:
                    piece = self.fresh[0]
                    count = min(wanted, piece.high - piece.low)
                    self._leave_fresh(count)
                    found.append(self._hold(piece.low, piece.low + count, self.attempt(1), holder, piece.key))
                    holder.room -= count
                    wanted -= count
                    budget -= count
            takers = [holder for holder in takers if holder.room > 0]

    def _leave_fresh(self, count: int) -> None:
        piece = self.fresh[0]
        self.fresh_count -= count
        if count == piece.high - piece.low:
            self.fresh.popleft()
        else:
            self.fresh[0] = Piece(piece.low + count, piece.high, piece.key)

    def _hand_out_named(self, takers: list[Holder], found: list[Holding], names_of: NamesOf | None) -> None:
        """As members have filters of their own, look at names; what no present member takes stays fresh."""
        left: list[Piece] = []
        looked = 0
        while self.fresh and looked < LOOKED_MAX and self.room() > 0 and any(holder.room > 0 for holder in takers):
            piece = self.fresh.popleft()
            self.fresh_count -= piece.high - piece.low
            for low, high, name in names_of(piece.low, piece.high) if names_of is not None else []:
                looked += 1
                fit = [holder for holder in takers if holder.wants is None or holder.wants(name)]
                start = low
                for holder in sorted(fit, key=lambda one: -one.room):
                    count = min(high - start, holder.room, self.room())
                    if count > 0:
                        found.append(self._hold(start, start + count, self.attempt(1), holder, piece.key))
                        holder.room -= count
                        start += count
                if start < high:
                    left.append(Piece(start, high, piece.key))
        for piece in reversed(left):
            self.fresh.appendleft(piece)
            self.fresh_count += piece.high - piece.low

    def attempt(self, deliveries: int) -> int:
        """A delivery in this leader's term."""
        return self._term | min(deliveries, DELIVERIES)

    def _hold(self, low: int, high: int, attempt: int, holder: Holder, key: bytes) -> Holding:
        holding = Holding(low, high, attempt, holder, key)
        self._put_held(holding)
        return holding

    def _put_held(self, holding: Holding) -> None:
        if not self._lows or holding.low > self._lows[-1]:
            self._lows.append(holding.low)
        else:
            insort(self._lows, holding.low)
        self.held[holding.low] = holding
        count = holding.high - holding.low
        self.held_count += count
        holding.holder.held += count

    # From members.

    def overlapping(self, low: int, high: int) -> list[Holding]:
        """What of a range is held, by first offset."""
        lows = self._lows
        at = max(bisect_right(lows, low) - 1, 0)
        found: list[Holding] = []
        while at < len(lows) and lows[at] < high:
            holding = self.held[lows[at]]
            if holding.high > low:
                found.append(holding)
            at += 1
        return found

    def _take(self, holding: Holding, low: int, high: int) -> Range:
        """Take a part out of a holding; the part that there was."""
        low = max(low, holding.low)
        high = min(high, holding.high)
        del self._lows[bisect_right(self._lows, holding.low) - 1]
        del self.held[holding.low]
        count = holding.high - holding.low
        self.held_count -= count
        holding.holder.held -= count
        for start, stop in ((holding.low, low), (high, holding.high)):
            if start < stop:
                rest = Holding(start, stop, holding.attempt, holding.holder, holding.key)
                rest.until = holding.until
                self._put_held(rest)
        return low, high

    def ack(self, low: int, high: int, attempt: int) -> tuple[list[Range], int]:
        """A member is done with records. What to state as settled, and DONE, STALE or LETTER: the worst of all."""
        found: list[Range] = []
        code = DONE
        left = low
        for holding in self.overlapping(low, high):
            code = max(code, self._ack_other(left, holding.low, attempt, found))
            left = holding.high
            if holding.attempt != attempt:
                code = max(code, STALE)
                continue
            part = self._take(holding, low, high)
            self._settled(*part)
            found.append(part)
        return found, max(code, self._ack_other(left, high, attempt, found))

    def _ack_other(self, low: int, high: int, attempt: int, found: list[Range]) -> int:
        """Records that no member holds: an ack in time for a delivery that counted as failed, or lost with a leader."""
        code = DONE
        for start, stop in self.done.gaps(max(low, self.base), high) if low < high else ():
            for offset in range(start, stop):
                waiting = self.waiting.get(offset) or self.failing.get(offset)
                if offset in self.dying:
                    code = max(code, LETTER)
                elif waiting is not None and attempt & DELIVERIES <= waiting.deliveries:
                    self.waiting.pop(offset, None)
                    self.failing.pop(offset, None)
                    self._accept(offset, found)
                elif waiting is None and (offset >= self.position or self._drop_fresh(offset)):
                    self._accept(offset, found)
                else:
                    code = max(code, STALE)
        return code

    def _accept(self, offset: int, found: list[Range]) -> None:
        self.failed_before.pop(offset, None)
        if offset >= self.position:
            self.known.add(offset, offset + 1)
        self._settled(offset, offset + 1)
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))

    def _drop_fresh(self, offset: int) -> bool:
        for at, piece in enumerate(self.fresh):
            if piece.low <= offset < piece.high:
                del self.fresh[at]
                for start, stop in ((offset + 1, piece.high), (piece.low, offset)):
                    if start < stop:
                        self.fresh.insert(at, Piece(start, stop, piece.key))
                self.fresh_count -= 1
                return True
        return False

    def _settled(self, low: int, high: int) -> None:
        if low <= self.base:
            self.base = self.done.take_head(max(high, self.base))
        else:
            self.done.add(low, high)

    def take_pins(self) -> list[Pin]:
        """What stays with its holder until the outcomes since the last call are committed: then call ``unpin``."""
        return []

    def unpin(self, pins: Sequence[Pin]) -> None:
        """These outcomes are committed."""

    def give_back(self, low: int, high: int, attempt: int) -> int:
        """The records never went to the member: as if they had not been handed out. How many."""
        count = 0
        for holding in reversed(self.overlapping(low, high)):
            if holding.attempt == attempt:
                start, stop = self._take(holding, low, high)
                count += stop - start
                self._back(holding, start, stop)
        return count

    def _back(self, holding: Holding, low: int, high: int) -> None:
        if holding.deliveries > 1:
            for offset in range(low, high):
                self._wait(offset, Waiting(holding.deliveries - 1, 0, None, holding.key))
        else:
            self.fresh.appendleft(Piece(low, high, holding.key))
            self.fresh_count += high - low

    def fail(self, low: int, high: int, attempt: int) -> tuple[list[Holding], int]:
        """A delivery failed. What of it was held: call ``retry`` or ``bury`` for each; and DONE, STALE or LETTER."""
        found: list[Holding] = []
        left = low
        is_whole = True
        for holding in self.overlapping(low, high):
            is_whole = is_whole and holding.low <= left and holding.attempt == attempt
            left = holding.high
            if holding.attempt == attempt:
                start, stop = self._take(holding, low, high)
                found.append(Holding(start, stop, attempt, holding.holder, holding.key))
        if is_whole and left >= high:
            return found, DONE
        return found, LETTER if any(low <= one < high for one in self.dying) else STALE

    def retry(self, failed: Holding, ready_ms: int) -> list[Failed]:
        """The records are delivered again: what to state; ``retried`` when it is committed."""
        found: list[Failed] = []
        for offset in range(failed.low, failed.high):
            self.failing[offset] = Waiting(failed.deliveries, ready_ms, failed.holder, failed.key)
            found.append(Failed(offset, failed.deliveries, ready_ms))
        return found

    def retried(self, failed: Sequence[Failed]) -> None:
        """The log says that these deliveries failed."""
        for one in failed:
            waiting = self.failing.pop(one.offset, None)
            if waiting is not None:
                self._wait(one.offset, waiting)

    def bury(self, failed: Holding) -> None:
        """The records are not delivered again."""
        self.dying.update(range(failed.low, failed.high))

    def take_waiting(self, offset: int) -> Waiting | None:
        """Take a record out that waits for its next delivery; it is to be buried."""
        return self.waiting.pop(offset, None)

    def buried(self, offset: int) -> None:
        """The dead letter of a record is in its log, or dropped."""
        if offset in self.dying:
            self.dying.discard(offset)
            self._settled(offset, offset + 1)

    def of_node(self, node_id: int) -> list[Holding]:
        """All that members of a node hold."""
        return [holding for holding in self.held.values() if holding.holder.node_id == node_id]

    def take_passed(self) -> list[Range]:
        """What to state as settled because it is not selected."""
        passed = self.passed
        self.passed = []
        return passed
