"""Which topic names came before: a plan is worth keeping from the second time on.

```
 hash of the name --> a pair of bytes: [ newer | older ]     either is its tag: it came before
                                                             else: newer <- tag, older <- newer
```
Many names are used once and never again. Keeping their plans would cost more than making them, and would push out the
plans of names that do come again. So one byte is remembered of each name; names that come later take its place. Being
wrong now and then costs a plan kept too early or made once more. Pairs, because two names that share a single place
and come in turn would never be known.
"""

from __future__ import annotations

from typing import Final

TAG_SHIFT: Final = 40
"""Tags come from other bits of the hash than places do."""


class FamiliarNames:
    """Remembers names in at least ``places_min`` places of one byte. A few times as many as names in use is good."""

    def __init__(self, places_min: int) -> None:
        places = 64
        while places < places_min:
            places *= 2
        self._mask = places - 2  # even places: pairs start there
        self._tags = bytearray(places)

    def meet(self, topic: bytes) -> bool:
        """Tell whether the name came before, and remember it."""
        number = hash(topic)
        newer = number & self._mask
        tag = (number >> TAG_SHIFT) & 0xFF | 1
        tags = self._tags
        known = tags[newer]
        if known == tag:
            return True
        if tags[newer + 1] == tag:
            return True
        tags[newer + 1] = known
        tags[newer] = tag
        return False
