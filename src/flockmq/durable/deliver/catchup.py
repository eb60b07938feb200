"""Where one session stands in the logs that it does not follow live: because it is slow, or asked for history.

```
 partition   0 ......... position ............. stream.next: what this node delivers live
                            |--- read from the log, as the client takes it ---|   level: live again

 subscription that was there before      |floor ------------->     has had everything before
 subscription with flockmq-from     |start ------------------>
 subscription made meanwhile                        |start -->
```
A partition is read once for all subscriptions of the session, in offset order, and each record is delivered at most
once: to the subscriptions whose start lies behind it. While a partition is read like this, nothing of it is delivered
live to the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.routing.plan import Target
from flockmq.routing.subscription import merge
from flockmq.routing.table import sequence_of
from flockmq.session.places import FLOOR, LISTED, POSITION, START, LogPlace

if TYPE_CHECKING:
    from flockmq.durable.deliver.shared_batches import SharedBatch
    from flockmq.durable.logs.seeking import Sought
    from flockmq.routing.subscription import Subscription
    from flockmq.routing.table import SubscriptionTable
    from flockmq.session.session import Session

UNKNOWN: Final = -1
"""Instead of an offset: it has to be found out."""
NEVER: Final = 1 << 62
"""A start that is not known yet: nothing is delivered to that subscription before."""

MANY: Final = 16
"""A session with more subscriptions, and more than a batch has names, is asked by name."""
NO_TARGETS: Final[dict[int, Target]] = {}


class Wanted:
    """The part of a batch that a session gets."""

    def __init__(self, filters: tuple[bytes, ...], only: Target | None, targets: dict[int, Target]) -> None:
        self.filters = filters
        """Filters that match all names that the session wants, and no other name."""
        self.only = only
        """The target of all that these match; None: see ``targets``."""
        self.targets = targets
        """By the number of the name."""

    def target(self, index: int) -> Target | None:
        """What the session gets of a name."""
        return self.only if self.only is not None else self.targets.get(index)

    def tells_clients_apart(self) -> bool:
        """Whether it matters which client published a message."""
        if self.only is not None:
            return self.only.has_no_local
        return any(target.has_no_local for target in self.targets.values())


class Catchup:
    """See the module."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.positions: dict[int, int] = {}
        """By partition: the next offset to read; ``UNKNOWN`` while a start has to be found out first."""
        self._paused: dict[int, int] = {}
        """By partition with an unknown position: up to where it was delivered live."""
        self._floors: dict[int, int] = {}
        self._starts: dict[Subscription, dict[int, int]] = {}
        self._listed: dict[int, list[int]] = {}
        """By partition, offsets to be read past: their messages are under way, or done. The highest first."""
        self.held: set[int] = set()
        """Partitions whose next message would overtake others in the session's queue: not read before that is empty."""
        self.due: dict[int, Sought] = {}
        """By partition with an index of names: what to read next, as far as it was sought."""
        self.gap = 0
        """Records that were gone before the session could read them, and that its client was not told of yet."""

    # --- beginning and ending ---

    def lag(self, group: int, offset: int) -> None:
        """What comes from this offset on is more than the session takes."""
        self.positions[group] = offset

    def pause(self, subscription: Subscription, group: int, live: int) -> None:
        """A subscription asks for history, and from where on is not known yet. ``live`` is where the stream stands."""
        if group not in self.positions:
            self.positions[group] = UNKNOWN
            self._paused[group] = live
        self._starts.setdefault(subscription, {})[group] = NEVER

    def unpause(self, group: int) -> None:
        """No subscription waits for a start any more: go on from where the partition was live."""
        if self.positions.get(group) == UNKNOWN:
            live = self._paused.pop(group, UNKNOWN)
            if live == UNKNOWN:
                self.drop(group)
            else:
                self.positions[group] = live

    def stream_known(self, group: int, live: int) -> None:
        """The stream of a partition has found out where it begins."""
        if self._paused.get(group) == UNKNOWN:
            self._paused[group] = live

    def start(self, subscription: Subscription, group: int, offset: int) -> None:
        """The start of a subscription's history is known."""
        own = self._starts.get(subscription)
        if own is None or group not in own:
            return  # unsubscribed, or asked for something else meanwhile
        before = self.positions.get(group, UNKNOWN)
        if before == UNKNOWN:
            before = self._paused.pop(group, UNKNOWN)
        if before == UNKNOWN:
            before = offset
        self._floors[group] = max(self._floors.get(group, 0), before)
        for starts in self._starts.values():
            if group in starts:
                starts[group] = max(starts[group], before)
        own[group] = offset
        self.positions[group] = min(before, offset)

    def replace(self, old: Subscription, subscription: Subscription) -> None:
        """The client subscribed again without a start: the new subscription keeps the old positions."""
        starts = self._starts.pop(old, None)
        if starts is not None:
            self._starts[subscription] = starts

    def join(self, subscription: Subscription, group: int, live: int) -> None:
        """A new subscription without a start: of a partition that is being read it gets what is new."""
        self._starts.setdefault(subscription, {})[group] = max(live, 0)

    def forget(self, subscription: Subscription) -> None:
        """A subscription ended, or another one took its place."""
        self._starts.pop(subscription, None)

    def drop(self, group: int) -> None:
        """The partition is level, or no subscription wants it any more."""
        self.positions.pop(group, None)
        self.held.discard(group)
        self.due.pop(group, None)
        self._paused.pop(group, None)
        self._floors.pop(group, None)
        self._listed.pop(group, None)
        for subscription in list(self._starts):
            starts = self._starts[subscription]
            starts.pop(group, None)
            if not starts:
                del self._starts[subscription]

    def known_positions(self) -> dict[int, int]:
        """By partition, the next offset that the session reads; without those whose position has to be found out."""
        found: dict[int, int] = {}
        for group, position in self.positions.items():
            offset = self._paused.get(group, UNKNOWN) if position == UNKNOWN else position
            if offset != UNKNOWN:
                found[group] = offset
        return found

    # --- moving to another node ---

    def places(self) -> list[LogPlace]:
        """Where it stands, for the node that it goes to. A start request whose offset is not known yet is forgotten."""
        found: list[LogPlace] = []
        for group, offset in self.known_positions().items():
            found.append(LogPlace(POSITION, b"", group, offset))
            if group in self._floors:
                found.append(LogPlace(FLOOR, b"", group, self._floors[group]))
            found += [LogPlace(LISTED, b"", group, listed) for listed in self._listed.get(group, ())]
            for subscription, starts in self._starts.items():
                if group in starts and starts[group] != NEVER:
                    found.append(LogPlace(START, subscription.topic_filter, group, starts[group]))
        return found

    def take_places(self, places: list[LogPlace]) -> None:
        """Go on where it stood on another node."""
        for place in places:
            if place.kind == POSITION:
                self.positions[place.group] = place.offset
            elif place.kind == FLOOR:
                self._floors[place.group] = place.offset
            elif place.kind == LISTED:
                self._listed.setdefault(place.group, []).append(place.offset)
            else:
                subscription = self.session.subscriptions.get(place.topic_filter)
                if subscription is not None:
                    self._starts.setdefault(subscription, {})[place.group] = place.offset
        for offsets in self._listed.values():
            offsets.sort(reverse=True)

    def is_waiting(self, group: int) -> bool:
        """Whether a subscription of the session still waits for its start in a partition."""
        return any(starts.get(group, 0) == NEVER for starts in self._starts.values())

    def advance(self, group: int, offset: int) -> None:
        """The record of the session says that it wants nothing before an offset."""
        if UNKNOWN < self.positions.get(group, UNKNOWN) < offset:
            self.positions[group] = offset

    def is_listed(self, group: int, offset: int) -> bool:
        """Whether a record is not to be delivered: its message is under way, or done."""
        return self.has_listed(group, offset) and self._listed[group][-1] == offset

    def has_listed(self, group: int, offset: int) -> bool:
        """Whether such a record is at this offset or behind it; those before it are forgotten."""
        offsets = self._listed.get(group)
        if offsets is None:
            return False
        while offsets and offsets[-1] < offset:
            offsets.pop()
        if not offsets:
            del self._listed[group]
        return len(offsets) > 0

    # --- reading ---

    def captured_filters(self) -> tuple[bytes, ...]:
        """Filters of which the session gets captured messages."""
        subscriptions = self.session.subscriptions.values()
        return tuple({one.topic_filter: None for one in subscriptions if one.qos and not one.group})

    def start_of(self, subscription: Subscription, group: int) -> int:
        """The first offset of a partition that a subscription gets."""
        starts = self._starts.get(subscription)
        if starts is not None and group in starts:
            return starts[group]
        return self._floors.get(group, 0)

    def cut(self, group: int, low: int, high: int) -> int:
        """Up to where, from ``low`` on, the same subscriptions count, and no record is listed: ``high`` at most."""
        if self._listed and self.has_listed(group, low):
            high = min(high, self._listed[group][-1])
        floor = self._floors.get(group, 0)
        if low < floor < high:
            high = floor
        for starts in self._starts.values():
            start = starts.get(group, 0)
            if low < start < high:
                high = start
        return high

    def wanted(self, table: SubscriptionTable, group: int, batch: SharedBatch, offset: int) -> Wanted | None:
        """The part of a batch for the session, from an offset to the next ``cut``; None: nothing."""
        subscriptions = self.session.subscriptions
        if len(subscriptions) > MANY and len(subscriptions) > len(batch.decoder().topics):
            return self._wanted_by_name(table, group, batch, offset)
        matching: list[Subscription] = []
        for subscription in subscriptions.values():
            has_begun = not subscription.group and self.start_of(subscription, group) <= offset
            if has_begun and batch.names_of(subscription.topic_filter):
                matching.append(subscription)
        if not matching:
            return None
        if len(matching) == 1:
            return Wanted((matching[0].topic_filter,), matching[0], NO_TARGETS)
        matching.sort(key=sequence_of)
        by_name: dict[int, list[Subscription]] = {}
        for subscription in matching:
            for index in batch.names_of(subscription.topic_filter):
                by_name.setdefault(index, []).append(subscription)
        targets = {index: merge(found) for index, found in by_name.items()}
        return Wanted(tuple([subscription.topic_filter for subscription in matching]), None, targets)

    def _wanted_by_name(self, table: SubscriptionTable, group: int, batch: SharedBatch, offset: int) -> Wanted | None:
        """The same for a session with more subscriptions than the batch has names."""
        targets: dict[int, Target] = {}
        names: list[bytes] = []
        for index, topic in enumerate(batch.decoder().topics):
            target = self.target(table, group, topic, offset)
            if target is not None:
                targets[index] = target
                names.append(topic)
        return Wanted(tuple(names), None, targets) if targets else None

    def target(self, table: SubscriptionTable, group: int, topic: bytes, offset: int) -> Target | None:
        """What the session gets of a topic name at an offset."""
        matching: list[Subscription] = []
        for entry in table.matching(topic):
            subscription = entry.of(self.session)
            if subscription is not None and self.start_of(subscription, group) <= offset:
                matching.append(subscription)
        if not matching:
            return None
        if len(matching) > 1:
            matching.sort(key=sequence_of)
        return merge(matching)
