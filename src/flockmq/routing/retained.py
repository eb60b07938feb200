"""The last retained message of each topic name, within limits; on several nodes the last writer wins.

```
 put, delete --> stamp --.                                get: exact name       refused when a limit would be passed
                         |--> bucket: name -> message     match: by filter      walks only branches that can match
 apply (other nodes) ----'      |-> tree of names         sweep: a few a call   so that nothing expired stays for long
 restore (the disk)             |-> names that expire
                                `-> unsaved, unsent: names that changed, for the disk and for the other nodes
```
What has expired is never handed out, swept or not. ``$SYS`` messages are the broker's own: they count in no limit and
in no listing, and neither disk nor other nodes get them.

Once other nodes are told (``share``), a deleted message leaves its version behind until every node must have heard of
the deletion: without it a node that was away would bring the message back. A message that expires leaves its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.routing.buckets import BUCKETS, ORIGIN_BITS, ORIGIN_MASK, Bucket, Changes, bucket_of, version_of
from flockmq.routing.clock import HybridClock, stamp_at, stamp_wall_ms
from flockmq.routing.names import UNBOUNDED, Named, NameTree
from flockmq.routing.retained_usage import OTHERS_FACTOR, RetainedUsage, message_bytes
from flockmq.routing.tombstones import TOMBSTONE_MS, Tombstones

if TYPE_CHECKING:
    from flockmq.mqtt.run import Run

SWEEP_WHEN_FULL: Final = 64
"""How many names a refused message may look at to find expired ones that make room for it."""

UNSAVED_MAX: Final = 1_000_000
UNSENT_MAX: Final = 1_000_000
ORIGINS_MAX: Final = 10_000
OFFSET_BITS: Final = 44
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
GROUP_MASK: Final = (1 << (ORIGIN_BITS - OFFSET_BITS)) - 1
"""How a partition and an offset share the place of a node id."""

# What became of a change from another node.
APPLIED: Final = 0
OLDER: Final = 1
"""We have the same, or later news."""
AHEAD: Final = 2
"""Its stamp lies too far in the future."""
FULL: Final = 3
"""It would pass the limits."""


class RetainedMessage(Named):
    """The message that new subscribers to a topic name get first."""

    def __init__(self, topic: bytes, run: Run, stamp: int, origin: int, is_system: bool) -> None:
        super().__init__(topic)
        self.run = run
        self.stamp = stamp
        self.origin = origin
        """The node that stamped the message."""
        self.is_system = is_system
        self.sequence = 0
        """Place in the order of storing, set by the store."""

    def is_expired(self, now: int) -> bool:
        """Whether its message expiry interval has passed."""
        return 0 < self.run.expires_at <= now

    def stored_wall_ms(self) -> int:
        """When it was published, in milliseconds since 1970."""
        return stamp_wall_ms(self.stamp)


def committed_origin(group: int, offset: int) -> int:
    """What stands in place of a node id in the version of a message that a log holds: partition and offset."""
    return (group & GROUP_MASK) << OFFSET_BITS | (offset & OFFSET_MASK)


def shared_origin(known: dict[int, int], origin: int) -> int:
    """The same id as the same object: thousands of messages of a node need not each hold a copy."""
    if len(known) > ORIGINS_MAX:
        known.clear()
    return known.setdefault(origin, origin)


class RetainedStore:
    """All retained messages of a node. A limit of 0 is no limit."""

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        wall_offset_ms: int = 0,
        tombstone_ms: int = TOMBSTONE_MS,
        origin: int = 0,
    ) -> None:
        self.usage = RetainedUsage(messages_max, bytes_max)
        self.steps = 0
        """Names and branches that the last match looked at: a leading ``+`` may mean all of them."""
        self.sequence = 0
        """Messages stored so far, the broker's own included."""
        self.clock = HybridClock()
        self.wall_offset_ms = wall_offset_ms
        """Wall clock minus the broker's clock."""
        self.origin = origin
        """The id of this node, in versions of what it writes."""
        self.is_shared = False
        """Whether other nodes have, or may have, the same messages."""
        self.buckets: list[Bucket] = [Bucket() for _ in range(BUCKETS)]
        self.tombstones = Tombstones(self.buckets, messages_max, tombstone_ms)
        self.unsaved: Changes | None = None
        """What the disk does not have yet; None without one."""
        self.unsent: Changes | None = None
        """What was written here and other nodes were not told; None without them."""
        self._names: NameTree[RetainedMessage] = NameTree()
        self._expiring: dict[bytes, None] = {}
        self._to_sweep: list[bytes] = []
        self._origins: dict[int, int] = {}

    # --- other nodes and the disk ---

    def share(self, origin: int) -> None:
        """Other nodes have the same messages: keep digests and deletions from now on."""
        self.origin = origin
        if self.is_shared:
            return
        self.is_shared = True
        for bucket in self.buckets:
            for topic in bucket.topics():
                bucket.add_digest(topic, bucket.version(topic))

    def keep_unsent(self) -> Changes:
        """Collect what other nodes must be told."""
        if self.unsent is None:
            self.unsent = Changes(UNSENT_MAX)
        return self.unsent

    def keep_unsaved(self) -> Changes:
        """There is a disk: collect what it must be told."""
        if self.unsaved is None:
            self.unsaved = Changes(UNSAVED_MAX)
        return self.unsaved

    # --- changes ---

    def put(self, topic: bytes, run: Run, now: int) -> bool:
        """Keep a message in place of the topic's last one; False, and nothing changed, when a limit would be passed."""
        size = message_bytes(topic, run)
        if not self._fits(topic, size, 1):
            self.sweep_expired(now, SWEEP_WHEN_FULL)
            if not self._fits(topic, size, 1):
                return False
        stamp = self.clock.next(now + self.wall_offset_ms)
        self._set(RetainedMessage(topic, run, stamp, self.origin, False), size)
        if not topic.startswith(b"$SYS/"):
            if self.unsent is not None:
                self.unsent.add(topic)
            if self.unsaved is not None:
                self.unsaved.add(topic)
        return True

    def put_system(self, topic: bytes, run: Run, now: int) -> None:
        """Keep a message of the broker's own."""
        self._set(RetainedMessage(topic, run, (now + self.wall_offset_ms) << 16, 0, True), 0)

    def delete(self, topic: bytes, now: int) -> bool:
        """Remove a topic's message; False when there is none. Disk and other nodes may have one, and are told."""
        bucket = self.buckets[bucket_of(topic)]
        message = bucket.messages.get(topic)
        if message is not None:
            self._remove(bucket, message)
        if not topic.startswith(b"$SYS/"):
            if self.is_shared:
                self._bury(bucket, topic, version_of(self.clock.next(now + self.wall_offset_ms), self.origin), now)
            if self.unsent is not None:
                self.unsent.add(topic)
            if self.unsaved is not None:
                self.unsaved.add(topic)
        return message is not None

    def apply(self, topic: bytes, run: Run | None, stamp: int, origin: int, now: int) -> int:
        """Take over what another node wrote or (without a run) deleted, if it is later than what is here."""
        if topic.startswith(b"$SYS/"):
            return OLDER  # every node has its own
        if not self.clock.observe(stamp, now + self.wall_offset_ms):
            return AHEAD
        bucket = self.buckets[bucket_of(topic)]
        version = version_of(stamp, origin)
        if version <= bucket.version(topic):
            return OLDER
        if run is not None and not 0 < run.expires_at <= now:
            size = message_bytes(topic, run)
            if not self._fits(topic, size, OTHERS_FACTOR):
                return FULL
            self._set(RetainedMessage(topic, run, stamp, shared_origin(self._origins, origin), False), size)
        else:
            message = bucket.messages.get(topic)
            if message is not None:
                self._remove(bucket, message)
            self._bury(bucket, topic, version, now)
        if self.unsaved is not None:
            self.unsaved.add(topic)
        return APPLIED

    def commit(self, topic: bytes, run: Run | None, wall_ms: int, group: int, offset: int, now: int) -> int:
        """Take over what the log of a durable topic says: commit order decides, on every replica the same.

        Within a partition the later offset wins, whatever the clocks said. The version follows from the log and from
        the version before it, so that replicas agree without a word, and to apply a record again changes nothing.
        """
        bucket = self.buckets[bucket_of(topic)]
        known = bucket.version(topic)
        stamp = stamp_at(wall_ms)
        origin = committed_origin(group, offset)
        before = known & ORIGIN_MASK
        if known and before >> OFFSET_BITS == origin >> OFFSET_BITS:
            if not 0 < (origin - before) & OFFSET_MASK <= OFFSET_MASK >> 1:
                return OLDER
            stamp = max(stamp, (known >> ORIGIN_BITS) + 1)
        elif version_of(stamp, origin) <= known:
            return OLDER
        if run is not None and not 0 < run.expires_at <= now:
            size = message_bytes(topic, run)
            if not self._fits(topic, size, OTHERS_FACTOR):
                return FULL
            self._set(RetainedMessage(topic, run, stamp, origin, False), size)
        else:
            message = bucket.messages.get(topic)
            if message is not None:
                self._remove(bucket, message)
            self._bury(bucket, topic, version_of(stamp, origin), now)
        if self.unsaved is not None:
            self.unsaved.add(topic)
        return APPLIED

    def restore(self, topic: bytes, run: Run | None, stamp: int, origin: int, now: int) -> bool:
        """Take over what the disk has, limits or not; False for what has expired or been forgotten since."""
        self.clock.resume(stamp)
        bucket = self.buckets[bucket_of(topic)]
        version = version_of(stamp, origin)
        if version <= bucket.version(topic) or topic.startswith(b"$SYS/"):
            return False
        if run is not None and not 0 < run.expires_at <= now:
            message = RetainedMessage(topic, run, stamp, shared_origin(self._origins, origin), False)
            self._set(message, message_bytes(topic, run))
            return True
        self._bury(bucket, topic, version, now)
        return run is None and bucket.version(topic) == version

    def written_ms(self, topic: bytes) -> int:
        """When the newest message, or deletion, of a name was written, by its writer's clock; 0: never."""
        return stamp_wall_ms(self.version(topic) >> ORIGIN_BITS)

    # --- finding ---

    def get(self, topic: bytes, now: int) -> RetainedMessage | None:
        """Find the message of a topic name."""
        message = self.buckets[bucket_of(topic)].messages.get(topic)
        if message is not None and message.is_expired(now):
            self._expire(message, now)
            return None
        return message

    def match(self, topic_filter: bytes, now: int) -> list[RetainedMessage]:
        """Find the messages whose topic names match a filter; ``steps`` then says how much work it was."""
        found = self.match_within(topic_filter, now, UNBOUNDED)
        return found if found is not None else []

    def match_within(self, topic_filter: bytes, now: int, steps_max: int) -> list[RetainedMessage] | None:
        """Match, but give up with None after ``steps_max`` steps."""
        found = self._names.match_within(topic_filter, steps_max)
        self.steps = self._names.steps
        if found is None or not self._expiring:
            return found
        fresh = [message for message in found if not message.is_expired(now)]
        if len(fresh) < len(found):
            for message in found:
                if message.is_expired(now):
                    self._expire(message, now)
        return fresh

    def topics(self) -> list[bytes]:
        """List all topic names in no particular order, the broker's own and expired ones included."""
        found: list[bytes] = []
        for bucket in self.buckets:
            found.extend(bucket.messages)
        return found

    def entries(self) -> list[bytes]:
        """List all names that a disk or another node should know of: messages and deletions."""
        found: list[bytes] = []
        for bucket in self.buckets:
            found.extend(bucket.topics())
        return found

    def message(self, topic: bytes) -> RetainedMessage | None:
        """Find a topic's message, expired or not."""
        return self.buckets[bucket_of(topic)].messages.get(topic)

    def version(self, topic: bytes) -> int:
        """Find the version of a topic's message or deletion; 0 when nothing is known of it."""
        return self.buckets[bucket_of(topic)].version(topic)

    # --- time ---

    def sweep(self, now: int, budget: int) -> int:
        """Look at up to ``budget`` names that expire, and as many deletions: how many messages were removed."""
        if self.tombstones.count:
            forgotten = self.tombstones.sweep(now + self.wall_offset_ms, budget)
            if self.unsaved is not None:
                for topic in forgotten:
                    self.unsaved.add(topic)
        return self.sweep_expired(now, budget)

    def sweep_expired(self, now: int, budget: int) -> int:
        """Look at up to ``budget`` names that expire, in turn, and remove those that have: how many."""
        left = min(budget, len(self._to_sweep) + len(self._expiring))  # the rest of a round, then at most one more
        removed = 0
        while left > 0:
            if not self._to_sweep:
                self._to_sweep = list(self._expiring)
                left = min(left, len(self._to_sweep))
                continue
            left -= 1
            topic = self._to_sweep.pop()
            message = self.buckets[bucket_of(topic)].messages.get(topic)
            if message is not None and message.is_expired(now):
                self._expire(message, now)
                removed += 1
        return removed

    # --- bookkeeping ---

    def _fits(self, topic: bytes, size: int, factor: int) -> bool:
        old = self.buckets[bucket_of(topic)].messages.get(topic)
        return self.usage.fits(topic, size, old.run if old is not None and not old.is_system else None, factor)

    def _set(self, message: RetainedMessage, size: int) -> None:
        topic = message.topic
        self.sequence += 1
        message.sequence = self.sequence
        bucket = self.buckets[bucket_of(topic)]
        old = bucket.messages.get(topic)
        if self.is_shared and not message.is_system and not topic.startswith(b"$SYS/"):
            version = bucket.version(topic)
            if version:
                bucket.take_digest(topic, version)
            bucket.add_digest(topic, version_of(message.stamp, message.origin))
        if old is None:
            self.tombstones.replace(bucket, topic)
        elif not old.is_system:
            self.usage.remove(topic, old.run)
        bucket.messages[topic] = message
        self._names.set(message)
        if message.run.expires_at:
            self._expiring[topic] = None
        elif old is not None:
            self._expiring.pop(topic, None)
        if not message.is_system:
            self.usage.add(topic, size)

    def _remove(self, bucket: Bucket, message: RetainedMessage) -> None:
        topic = message.topic
        if self.is_shared and not message.is_system and not topic.startswith(b"$SYS/"):
            bucket.take_digest(topic, version_of(message.stamp, message.origin))
        if not message.is_system:
            self.usage.remove(topic, message.run)
        del bucket.messages[topic]
        self._names.remove(topic)
        self._expiring.pop(topic, None)

    def _expire(self, message: RetainedMessage, now: int) -> None:
        """Remove a message whose time has passed; its version stays, so that no older message takes its place."""
        topic = message.topic
        bucket = self.buckets[bucket_of(topic)]
        self._remove(bucket, message)
        if message.is_system or topic.startswith(b"$SYS/"):
            return
        self._bury(bucket, topic, version_of(message.stamp, message.origin), now)
        if self.unsaved is not None:
            self.unsaved.add(topic)

    def _bury(self, bucket: Bucket, topic: bytes, version: int, now: int) -> None:
        """Remember a deletion, in place of an older one."""
        if not self.is_shared or self.tombstones.is_forgotten(version, now + self.wall_offset_ms):
            self.tombstones.remove(bucket, topic)
            return
        dropped = self.tombstones.put(bucket, topic, version)
        if dropped and self.unsaved is not None:
            self.unsaved.add(dropped)
