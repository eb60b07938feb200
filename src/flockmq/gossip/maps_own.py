"""The map that this node writes.

```
 set, delete --> entries (at once) and pending --seal--> segment: the last change of each key, encoded once --> log
```
Every change has its own version; those of one turn travel together, and of several changes of a key only the last does.
"""

from __future__ import annotations

import random
from typing import Final

from flockmq.gossip.maps_codec import BOOT_MAX, DELTA_BYTES, ENTRY_BYTES, encode_delta
from flockmq.gossip.maps_replica import OwnerMap
from flockmq.gossip.maps_report import MapsReport
from flockmq.gossip.maps_settings import MapsSettings

RISE_MAX: Final = 1_000
"""Milliseconds, as boots are: the next start is most likely above them by itself."""


class OwnMap(OwnerMap):
    """The own map; ``version`` is what was sealed, ``version_next`` what the next seal will make of it."""

    def __init__(self, owner: int, boot: int, settings: MapsSettings, report: MapsReport) -> None:
        super().__init__(owner, max(boot, 1), settings.log_bytes_max)
        self.version_next = 0
        self._settings = settings
        self._report = report
        self._chunk_room = settings.chunk_bytes_max - DELTA_BYTES
        self._pending: dict[bytes, bytes | None] = {}
        self._pending_bytes = 0
        self._full_reported = False

    def set(self, key: bytes, value: bytes) -> int:
        """The version of this change; what there is no room for is left out, counted and reported."""
        old = self.entries.get(key)
        if old == value:
            return self.version_next
        entry_bytes = ENTRY_BYTES + len(key) + len(value)
        grown = self.size + entry_bytes
        if old is not None:
            grown -= ENTRY_BYTES + len(key) + len(old)
        settings = self._settings
        if (
            grown > settings.bytes_max
            or (old is None and len(self.entries) >= settings.keys_max)
            or len(key) > settings.key_bytes_max
            or len(value) > settings.value_bytes_max
        ):
            self._refuse(key, value)
            return self.version_next
        if self._pending_bytes + entry_bytes > self._chunk_room:
            self.seal()
        self.entries[key] = value
        self.size = grown
        self._pending[key] = value
        self._pending_bytes += entry_bytes
        self.version_next += 1
        return self.version_next

    def delete(self, key: bytes) -> int:
        """The version of this change; a key that is not there changes nothing."""
        old = self.entries.get(key)
        if old is None:
            return self.version_next
        entry_bytes = ENTRY_BYTES + len(key)
        if self._pending_bytes + entry_bytes > self._chunk_room:
            self.seal()
        del self.entries[key]
        self.size -= entry_bytes + len(old)
        self._pending[key] = None
        self._pending_bytes += entry_bytes
        self.version_next += 1
        return self.version_next

    def has_room(self, key: bytes, value: bytes) -> bool:
        """Whether ``set`` would take this new key."""
        settings = self._settings
        return (
            self.size + ENTRY_BYTES + len(key) + len(value) <= settings.bytes_max
            and len(self.entries) < settings.keys_max
            and len(key) <= settings.key_bytes_max
            and len(value) <= settings.value_bytes_max
        )

    def seal(self) -> None:
        """What was changed becomes a segment of the log."""
        pending = self._pending
        if not pending:
            return
        self._pending = {}
        self._pending_bytes = 0
        first = self.version
        last = self.version_next
        self.version = last
        self.log.append(first, last, encode_delta(self.owner, self.boot, first, last, pending))

    def is_below(self, boot: int, version: int) -> bool:
        """Whether a peer's copy of this map would always win over the map itself."""
        return boot > self.boot or (boot == self.boot and version > self.version_next)

    def rise_above(self, boot: int, rng: random.Random) -> bool:
        """Begin a new life of the map above that boot, with all that is in it. False: there is nothing above."""
        # Not just one more: a former life may have risen from there as well, unknown to the peers that told of it.
        risen = boot + 1 + rng.randrange(RISE_MAX)
        if risen > BOOT_MAX:
            return False
        self.seal()
        self._report.note("map_boot_raised", {"boot": self.boot, "seen": boot})
        self.boot = risen
        self.log.clear()
        return True

    def _refuse(self, key: bytes, value: bytes) -> None:
        self._report.refused += 1
        if not self._full_reported:  # once is enough: it will not get better by being said again
            self._full_reported = True
            sizes: dict[str, object] = {"keys": len(self.entries), "bytes": self.size}
            self._report.note("map_full", {**sizes, "key_bytes": len(key), "value_bytes": len(value)})
