"""The callers of the admin API, and which one gives way when there are too many.

```
 a caller comes --> its address has too many strangers --> the oldest of them is closed
                --> the API is full --------------------> the oldest stranger of the address with the most is closed
                                                   `----> there is none: the newcomer is turned away
 a right token ---> no stranger any more: it gives way to no other caller
```
A stranger is a connection on which no right token has come yet. It costs nothing to be one, so strangers must not be
able to take all places: the next caller gets one of theirs, and has a moment to send a request.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Caller(Protocol):
    """A connection."""

    def give_way(self) -> None:
        """Close at once."""


class Callers:
    """Strangers by address, the first to come in front."""

    def __init__(self, places: int, per_address_max: int) -> None:
        self._places = places
        self._per_address_max = per_address_max
        self._addresses: dict[Caller, str] = {}
        self._strangers: dict[str, deque[Caller]] = {}
        self.gave_way = 0
        """Strangers that were closed for others, since the start."""

    def admit(self, caller: Caller, address: str, connected: int) -> bool:
        """Take a newcomer where so many are connected; False when there is no place for it."""
        if len(self._strangers.get(address, ())) >= self._per_address_max:
            self._close_oldest(address)
        elif connected >= self._places:
            if not self._strangers:
                return False
            self._close_oldest(max(self._strangers, key=lambda one: len(self._strangers[one])))
        self._addresses[caller] = address
        self._strangers.setdefault(address, deque()).append(caller)
        return True

    def forget(self, caller: Caller) -> None:
        """The caller is gone, or no stranger any more."""
        address = self._addresses.pop(caller, None)
        if address is not None:
            line = self._strangers[address]
            line.remove(caller)
            if not line:
                del self._strangers[address]

    def _close_oldest(self, address: str) -> None:
        oldest = self._strangers[address][0]
        self.forget(oldest)
        self.gave_way += 1
        oldest.give_way()
