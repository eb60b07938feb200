"""How much retained messages take, and whether another one fits: in all, in bytes, and in its namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt.namespaces import INSIDE

if TYPE_CHECKING:
    from flockmq.mqtt.run import Run

MESSAGE_OVERHEAD_BYTES: Final = 512
"""What a retained message takes beside its topic and packet: objects, slots in maps, its place in the tree."""

LEVELS_INCLUDED: Final = 8
LEVEL_OVERHEAD_BYTES: Final = 200
"""What each level beyond those may take: two names that share a hundred levels need a hundred branches."""

OTHERS_FACTOR: Final = 2
"""How far messages of other nodes may pass the limits: both sides of a partition may have filled up to them."""


def message_bytes(topic: bytes, run: Run) -> int:
    """Count what a message takes of the limit in bytes."""
    deeper = topic.count(b"/") - LEVELS_INCLUDED
    levels = deeper * LEVEL_OVERHEAD_BYTES if deeper > 0 else 0
    return len(topic) + len(run.wire) + MESSAGE_OVERHEAD_BYTES + levels


def prefix_of(topic: bytes) -> bytes:
    """What tells the namespace of a name: ``$ns/NAME/``, or nothing for the default one."""
    return topic[: topic.find(b"/", 4) + 1] if topic.startswith(INSIDE) else b""


class RetainedUsage:
    """Counts the messages of a store, without the broker's own. A limit of 0 is no limit."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.count = 0
        self.bytes = 0
        """What the messages take, overhead included."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._limits: dict[bytes, int] = {}
        """Most messages of a namespace, by its prefix."""
        self._inside: dict[bytes, int] = {}
        """Messages of namespaces, by prefix."""
        self._inside_count = 0

    def limit_prefix(self, prefix: bytes, messages_max: int) -> None:
        """Limit the messages of a namespace, 0: no longer. The prefix of the default one is empty."""
        self._limits.pop(prefix, None)
        if messages_max:
            self._limits[prefix] = messages_max

    def count_of(self, prefix: bytes) -> int:
        """Messages of a namespace; the prefix of the default one is empty."""
        return self._inside.get(prefix, 0) if prefix else self.count - self._inside_count

    def fits(self, topic: bytes, size: int, old: Run | None, factor: int) -> bool:
        """Whether a message of ``size`` bytes fits into ``factor`` times the limits, in place of an ``old`` one."""
        count = self.count + 1
        total = self.bytes + size
        if old is not None:
            count -= 1
            total -= message_bytes(topic, old)
        if self._messages_max and count > self._messages_max * factor:
            return False
        if self._limits and old is None:
            prefix = prefix_of(topic)
            limit = self._limits.get(prefix, 0)
            if limit and self.count_of(prefix) >= limit * factor:
                return False
        return not self._bytes_max or total <= self._bytes_max * factor

    def is_full(self) -> bool:
        """Whether not even another node's message of a new topic would be taken."""
        if self._messages_max and self.count >= self._messages_max * OTHERS_FACTOR:
            return True
        return self._bytes_max > 0 and self.bytes >= self._bytes_max * OTHERS_FACTOR

    def add(self, topic: bytes, size: int) -> None:
        """A message is there."""
        self.count += 1
        self.bytes += size
        if topic.startswith(INSIDE):
            self._count_inside(topic, 1)

    def remove(self, topic: bytes, run: Run) -> None:
        """A message is gone."""
        self.count -= 1
        self.bytes -= message_bytes(topic, run)
        if topic.startswith(INSIDE):
            self._count_inside(topic, -1)

    def _count_inside(self, topic: bytes, change: int) -> None:
        prefix = prefix_of(topic)
        self._inside_count += change
        count = self._inside.pop(prefix, 0) + change
        if count:
            self._inside[prefix] = count
