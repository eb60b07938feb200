"""A window in which records of one key go to one member at a time, in order. ``stream`` is one key for the partition.

```
 key --> Lane: records in order     owner: the member with the highest hash of (key, member)
          |  nothing held           --> the lane's records go to its owner
          |  held by another member --> the lane waits until all it holds of the key is settled, and that is committed
          `  a delivery failed      --> the lane waits until that record is handed out again, first of all
```
A lane stands in the line of its owner while it may have something for the owner. What puts the lane back there: fresh
records, the end of a backoff, another member that holds nothing of the key any more, a change of members.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop
from typing import TYPE_CHECKING, Final

from flockmq.durable.groups.window import Holder, Holding, NamesOf, Piece, Pin, Waiting, Window
from flockmq.routing.spreading import spread

if TYPE_CHECKING:
    from flockmq.durable.machine.group_bodies import Failed
    from flockmq.durable.machine.ranges import Range

OWNERS_MAX: Final = 65_536
"""Keys whose owner is remembered."""


class Lane:
    """The records of one key."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.queue: deque[Piece] = deque()
        """Fresh ones."""
        self.holder: Holder | None = None
        self.held = 0
        self.blocked: set[int] = set()
        """Records whose delivery failed and that are not handed out again yet."""
        self.line: Holder | None = None
        """In whose line it stands."""


class KeyedWindow(Window):
    """See the module."""

    is_keyed = True

    def __init__(self, generation: int, floor: int, in_flight_max: int, term: int = 0) -> None:
        super().__init__(generation, floor, in_flight_max, term)
        self._lanes: dict[bytes, Lane] = {}
        self._lines: dict[Holder, deque[Lane]] = {}
        self._homeless: list[Lane] = []
        """Lanes that had something while there was no member."""
        self._owners: dict[bytes, Holder] = {}
        self._pins: list[Pin] = []

    def _lane(self, key: bytes) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        return lane

    def _owner(self, key: bytes) -> Holder | None:
        owner = self._owners.get(key)
        if owner is None and self._lines:
            best = -1
            for holder in self._lines:
                weight = spread(key + b"\0%d\0%d" % (holder.node_id, holder.handle))
                if weight > best:
                    best = weight
                    owner = holder
            if owner is not None:
                if len(self._owners) >= OWNERS_MAX:
                    self._owners = {}
                self._owners[key] = owner
        return owner

    def _list(self, lane: Lane) -> None:
        """Let the lane's owner look at it."""
        if lane.line is not None or not (lane.queue or lane.blocked):
            return
        owner = self._owner(lane.key)
        if owner is None:
            self._homeless.append(lane)
        elif lane.holder is None or lane.holder is owner:
            lane.line = owner
            self._lines[owner].append(lane)

    def _tidy(self, lane: Lane) -> None:
        if not lane.held:
            lane.holder = None
            if not lane.queue and not lane.blocked and lane.line is None:
                self._lanes.pop(lane.key, None)
                return
        self._list(lane)

    def _follow(self, holders: list[Holder]) -> None:
        """The members may have changed: then keys have other owners."""
        if len(holders) == len(self._lines) and all(holder in self._lines for holder in holders):
            return
        self._lines = {holder: deque() for holder in sorted(holders, key=lambda one: (one.node_id, one.handle))}
        self._owners = {}
        self._homeless = []
        for lane in self._lanes.values():
            lane.line = None
            self._list(lane)

    # What the log has.

    def wants_more(self) -> bool:
        """See Window; also up to what members had from an earlier leader, or a key's records would change order."""
        return super().wants_more() or self._is_behind()

    def _is_behind(self) -> bool:
        return bool(self.known.highs) and self.position < self.known.highs[-1]

    def _put_fresh(self, piece: Piece) -> None:
        if piece.low < piece.high:
            self.fresh_count += piece.high - piece.low
            lane = self._lane(piece.key)
            _insert(lane.queue, piece)
            self._list(lane)

    def _wait(self, offset: int, waiting: Waiting) -> None:
        super()._wait(offset, waiting)
        lane = self._lane(waiting.key)
        lane.blocked.add(offset)
        self._list(lane)

    def _drop_fresh(self, offset: int) -> bool:
        for lane in self._lanes.values():
            for at, piece in enumerate(lane.queue):
                if piece.low <= offset < piece.high:
                    del lane.queue[at]
                    for start, stop in ((offset + 1, piece.high), (piece.low, offset)):
                        if start < stop:
                            lane.queue.insert(at, Piece(start, stop, piece.key))
                    self.fresh_count -= 1
                    return True
        return False

    # To members.

    def hand_out(self, holders: list[Holder], now_ms: int, names_of: NamesOf | None = None) -> list[Holding]:  # noqa: ARG002
        """Give owners the records of their lanes."""
        found: list[Holding] = []
        self._follow(holders)
        if self._is_behind():
            return found
        while self._heap and self._heap[0][0] <= now_ms:
            one = heappop(self._heap)
            if not self._is_void(one):
                self._list(self._lane(self.waiting[one[1]].key))
        for holder, line in self._lines.items():
            while line and holder.room > 0 and self.room() > 0:
                lane = line[0]
                if self._hand_out_lane(lane, holder, now_ms, found):
                    line.popleft()
                    lane.line = None
        return found

    def _hand_out_lane(self, lane: Lane, holder: Holder, now_ms: int, found: list[Holding]) -> bool:
        """Hand out what the lane has; True: the lane has no more for now, and may leave the line."""
        if lane.holder is not None and lane.holder is not holder:
            return True
        while lane.queue or lane.blocked:
            first = min(lane.blocked) if lane.blocked else -1
            if first >= 0 and (not lane.queue or first < lane.queue[0].low):
                waiting = self.waiting.get(first)
                if waiting is None or waiting.ready_ms > now_ms:
                    return True
                if holder.room <= 0:
                    return False
                del self.waiting[first]
                lane.blocked.discard(first)
                holder.room -= 1
                found.append(self._hold(first, first + 1, self.attempt(waiting.deliveries + 1), holder, lane.key))
            elif not self._hand_out_fresh(lane, holder, first, found):
                return False
        return True

    def _hand_out_fresh(self, lane: Lane, holder: Holder, before: int, found: list[Holding]) -> bool:
        """Hand out fresh records of a lane, up to offset ``before`` (-1: all); False when there is no room."""
        piece = lane.queue[0]
        high = min(piece.high, before) if before >= 0 else piece.high
        count = min(high - piece.low, holder.room, self.room())
        if count <= 0:
            return False
        lane.queue.popleft()
        if piece.low + count < piece.high:
            lane.queue.appendleft(Piece(piece.low + count, piece.high, piece.key))
        self.fresh_count -= count
        holder.room -= count
        found.append(self._hold(piece.low, piece.low + count, self.attempt(1), holder, lane.key))
        return True

    def _put_held(self, holding: Holding) -> None:
        super()._put_held(holding)
        lane = self._lane(holding.key)
        lane.held += holding.high - holding.low
        lane.holder = holding.holder

    # From members.

    def ack(self, low: int, high: int, attempt: int) -> tuple[list[Range], int]:
        """See Window; the key stays with the member until the outcome is committed."""
        for holding in self.overlapping(low, high):
            if holding.attempt == attempt:
                self._pin(holding.key, min(high, holding.high) - max(low, holding.low))
        return super().ack(low, high, attempt)

    def bury(self, failed: Holding) -> None:
        """See Window; as with ``ack``."""
        super().bury(failed)
        lane = self._lane(failed.key)
        lane.holder = lane.holder or failed.holder
        self._pin(failed.key, failed.high - failed.low)

    def _pin(self, key: bytes, count: int) -> None:
        self._lane(key).held += count
        self._pins.append(Pin(key, count))

    def take_pins(self) -> list[Pin]:
        """See Window."""
        pins, self._pins = self._pins, []
        return pins

    def unpin(self, pins: Sequence[Pin]) -> None:
        """See Window."""
        for pin in pins:
            lane = self._lane(pin.key)
            lane.held -= pin.records
            self._tidy(lane)

    def _take(self, holding: Holding, low: int, high: int) -> Range:
        lane = self._lane(holding.key)
        lane.held -= holding.high - holding.low
        part = super()._take(holding, low, high)
        self._tidy(lane)
        return part

    def _accept(self, offset: int, found: list[Range]) -> None:
        super()._accept(offset, found)
        self._unblock(offset)

    def _unblock(self, offset: int) -> None:
        for lane in list(self._lanes.values()):
            if offset in lane.blocked:
                lane.blocked.discard(offset)
                self._tidy(lane)

    def _back(self, holding: Holding, low: int, high: int) -> None:
        if holding.deliveries > 1:
            super()._back(holding, low, high)
            return
        lane = self._lane(holding.key)
        _insert(lane.queue, Piece(low, high, holding.key))
        self.fresh_count += high - low
        self._list(lane)

    def retry(self, failed: Holding, ready_ms: int) -> list[Failed]:
        """See Window; the lane waits from now on."""
        lane = self._lane(failed.key)
        lane.blocked.update(range(failed.low, failed.high))
        return super().retry(failed, ready_ms)

    def take_waiting(self, offset: int) -> Waiting | None:
        """See Window."""
        waiting = super().take_waiting(offset)
        self._unblock(offset)
        return waiting


def _insert(queue: deque[Piece], piece: Piece) -> None:
    """Put records at their place; most come last."""
    if not queue or queue[-1].low < piece.low:
        queue.append(piece)
        return
    at = 0
    while queue[at].low < piece.low:
        at += 1
    queue.insert(at, piece)
