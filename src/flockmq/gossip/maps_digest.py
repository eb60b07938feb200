"""All maps in one number: equal roots mean equal maps on two nodes.

```
 root = bucket 0 ^ bucket 1 ^ ... ^ bucket 63          bucket b = fingerprints of all maps with owner % 64 == b, xored
```
A map has one writer, so owner, boot and version say what is in it: a fingerprint never looks at keys.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

from flockmq.gossip.maps_codec import BUCKET_COUNT

_PLACE: Final = Struct("<QQQ")


def fingerprint(owner: int, boot: int, version: int) -> int:
    """64 bits for a map at one version; boot 0 is no map."""
    if boot == 0:
        return 0
    return int.from_bytes(blake2b(_PLACE.pack(owner, boot, version), digest_size=8).digest(), "little")


class Digests:
    """The root and the buckets, kept up to date map by map."""

    def __init__(self) -> None:
        self.root = 0
        self.buckets: list[int] = [0] * BUCKET_COUNT
        self._prints: dict[int, int] = {}

    def put(self, owner: int, boot: int, version: int) -> None:
        """This map is at this version now."""
        new = fingerprint(owner, boot, version)
        self._change(owner, self._prints.get(owner, 0) ^ new)
        self._prints[owner] = new

    def remove(self, owner: int) -> None:
        """This map is gone."""
        self._change(owner, self._prints.pop(owner, 0))

    def mask(self, theirs: list[int]) -> int:
        """One bit for each bucket that differs."""
        mask = 0
        for number, bucket in enumerate(self.buckets):
            if bucket != theirs[number]:
                mask |= 1 << number
        return mask

    def _change(self, owner: int, difference: int) -> None:
        self.root ^= difference
        self.buckets[owner % BUCKET_COUNT] ^= difference
