"""Which topic names came before: a plan is worth keeping from the second time on.

Many names are used once and never again. Keeping their plans would cost more than making them, and would push out the
plans of names that do come again. So one byte is remembered of each name, at a place that follows from its hash;
names that come later take the same places. Being wrong now and then costs a plan kept too early or made twice.
"""

from __future__ import annotations

from typing import Final

TAG_SHIFT: Final = 40
"""Tags come from other bits of the hash than places do."""


class FamiliarNames:
    """Remembers names in at least ``places_min`` places of one byte. A few times as many as names in use are good."""

    def __init__(self, places_min: int) -> None:
        places = 64
        while places < places_min:
            places *= 2
        self._mask = places - 1
        self._tags = bytearray(places)

    def meet(self, topic: bytes) -> bool:
        """Tell whether the name came before, and remember it."""
        number = hash(topic)
        place = number & self._mask
        tag = (number >> TAG_SHIFT) & 0xFF | 1
        if self._tags[place] == tag:
            return True
        self._tags[place] = tag
        return False
