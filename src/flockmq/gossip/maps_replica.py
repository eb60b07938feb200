"""One owner's map: the own one, or the copy of another's; what a change does to it.

```
 changes (DELTA)          --> apply    --> entries, Change by Change
 whole map (FULL pieces)  --> Staging  --> replace: only what differs becomes a Change, deletes first
```
A copy is exactly what the owner had at (boot, version). The exception is a copy that would pass the bounds: it is
``truncated``, goes on following the owner as well as it can, and is not passed on.
"""

from __future__ import annotations

from flockmq.gossip.maps_codec import ENTRY_BYTES, Change, FullHead, Pairs
from flockmq.gossip.maps_log import SegmentLog, Snapshot


class OwnerMap:
    """A map with all that is needed to pass it on."""

    def __init__(self, owner: int, boot: int, log_bytes_max: int) -> None:
        self.owner = owner
        self.boot = boot
        """0: nothing is known of the map yet."""
        self.version = 0
        self.entries: dict[bytes, bytes] = {}
        self.size = 0
        """Bytes of keys and values, eight more for each key."""
        self.truncated = False
        self.log = SegmentLog(log_bytes_max)
        self._snapshot: Snapshot | None = None

    def borrow_snapshot(self, chunk_bytes_max: int) -> Snapshot:
        """The whole map in pieces; a recent one if the log leads on from it. Give it back with ``return_snapshot``."""
        snapshot = self._snapshot
        if snapshot is None or not self.leads_on(snapshot.boot, snapshot.version):
            snapshot = Snapshot(self.owner, self.boot, self.version, self.entries, chunk_bytes_max)
            self._snapshot = snapshot
        snapshot.users += 1
        return snapshot

    def return_snapshot(self, snapshot: Snapshot) -> None:
        """One user less; without users it is dropped."""
        snapshot.users -= 1
        if snapshot.users == 0 and snapshot is self._snapshot:
            self._snapshot = None

    def leads_on(self, boot: int, version: int) -> bool:
        """Whether the log has all that was changed since."""
        return boot == self.boot and (version == self.version or self.log.index_of(version) >= 0)

    def is_newer_than(self, boot: int, version: int) -> bool:
        """A later life of the owner beats any version of the one before."""
        return self.boot > boot or (self.boot == boot and self.version > version)

    def is_older_than(self, boot: int, version: int) -> bool:
        """The other way round."""
        return self.boot < boot or (self.boot == boot and self.version < version)


class Staging:
    """A whole map on its way in."""

    def __init__(self, source: int, boot: int, version: int) -> None:
        self.source = source
        self.boot = boot
        self.version = version
        self.next_index = 0
        self.entries: dict[bytes, bytes] = {}
        self.size = 0
        self.truncated = False

    def expects(self, source: int, head: FullHead) -> bool:
        """Whether this is the next piece of the same map from the same node."""
        return (
            self.source == source
            and self.next_index == head.index
            and self.boot == head.boot
            and self.version == head.version
        )

    def apply(self, pairs: Pairs, keys_max: int, bytes_max: int) -> None:
        """What a piece holds."""
        entries = self.entries
        size = self.size
        for key, value in pairs:
            if value is None or key in entries:
                continue  # gone again within its first turn; a key twice is nothing that we would send
            grown = size + ENTRY_BYTES + len(key) + len(value)
            if grown > bytes_max or len(entries) >= keys_max:
                self.truncated = True
                continue
            entries[key] = value
            size = grown
        self.size = size


class Replica(OwnerMap):
    """The copy of a live owner's map, and what is known about how far behind it is."""

    def __init__(self, owner: int, log_bytes_max: int) -> None:
        super().__init__(owner, 0, log_bytes_max)
        self.boot_min = 0
        """Membership says that the owner was started then: what an earlier life said is void. 0: it said nothing."""
        self.known_boot = 0
        self.known_version = 0
        self.behind_since = -1
        """When the copy last moved while something newer was known; -1: nothing newer is known."""
        self.asked_until = 0
        """Until then an answer to a question may still come; no other node is asked."""
        self.staging: Staging | None = None

    def hear_of(self, boot: int, version: int) -> None:
        """The owner has got this far, or further."""
        if boot > self.known_boot or (boot == self.known_boot and version > self.known_version):
            self.known_boot = boot
            self.known_version = version

    def is_behind(self) -> bool:
        """Whether something newer is known."""
        return self.is_older_than(self.known_boot, self.known_version)

    def apply(self, pairs: Pairs, keys_max: int, bytes_max: int, changes: list[Change]) -> None:
        """Changes that follow on what is here."""
        owner = self.owner
        entries = self.entries
        size = self.size
        for key, value in pairs:
            old = entries.get(key)
            if old is not None:
                size -= ENTRY_BYTES + len(key) + len(old)
            if value is not None:
                grown = size + ENTRY_BYTES + len(key) + len(value)
                if grown <= bytes_max and (old is not None or len(entries) < keys_max):
                    size = grown
                    if old != value:
                        entries[key] = value
                        changes.append(Change(owner, key, value))
                    continue
                self.truncated = True  # and rather no value than one that the owner no longer has
            if old is not None:
                del entries[key]
                changes.append(Change(owner, key, None))
        self.size = size

    def replace(
        self, boot: int, version: int, entries: dict[bytes, bytes], size: int, truncated: bool, changes: list[Change]
    ) -> None:
        """This is the map now; say only what is different."""
        owner = self.owner
        old = self.entries
        for key in old:
            if key not in entries:
                changes.append(Change(owner, key, None))  # noqa: PERF401 - compiles better
        for key, value in entries.items():
            if old.get(key) != value:
                changes.append(Change(owner, key, value))
        self.boot = boot
        self.version = version
        self.entries = entries
        self.size = size
        self.truncated = truncated
        self.log.clear()
        self.staging = None
