"""The packets of one publisher, built once and sent round and round under a window.

```
 block:  | unit 0 | unit 1 | ... | unit K-1 |      every unit is one PUBLISH, packet ids 1..K
              ^ next      ^ as far as the window allows
```
Sending is a slice of the block, whatever its length: no work per message. Two things may change in place before a
slice goes out: the time of sending (latency) and the digits of a fresh topic name. A slice must be written
completely before the next one is taken.
"""

from __future__ import annotations

from typing import Final

from flockmq.client.load.plan import FRESH_DIGITS, STAMP_BYTES, Load
from flockmq.client.load.units import build_units

NOTHING: Final = memoryview(b"")


class Ring:
    """A publisher's packets and how far it has come."""

    def __init__(self, load: Load, publisher: int, key: bytes = b"") -> None:
        """``key`` is the WebSocket key; empty means plain MQTT."""
        self.taken = 0
        """Messages handed out for sending."""
        self.units = build_units(load, publisher, key)
        self._view = memoryview(self.units.block)
        self._messages_max = load.messages or 2**62
        self._window = load.window if load.qos else 0
        self._stamp_key = int.from_bytes(self.units.key_at(self.units.stamp_at, STAMP_BYTES), "big")

    @property
    def done(self) -> bool:
        """Whether every message has been handed out."""
        return self.taken >= self._messages_max

    def stop(self) -> None:
        """Hand out no more."""
        self._messages_max = self.taken

    def limit_window(self, receive_maximum: int) -> None:
        """Never have more in flight than the broker allows."""
        if self._window:
            self._window = min(self._window, receive_maximum)

    def take_preamble(self) -> bytes:
        """The messages to send before all others, counted as taken."""
        self.taken += self.units.preamble_count
        return self.units.preamble

    def allowed(self, completed: int) -> int:
        """How many messages may go out now, when the broker has acknowledged ``completed`` so far."""
        most = self._messages_max
        if self._window:
            most = min(most, completed + self._window)
        return most - self.taken

    def take(self, completed: int, bytes_max: int) -> memoryview:
        """The next units to write, whole, at most about ``bytes_max``; empty when the window or the run is full."""
        units = self.units
        count = self.allowed(completed)
        if count <= 0:
            return NOTHING
        lap, index = divmod(self.taken - units.preamble_count, units.count)
        if index == 0 and units.digits_at:
            self._rename(lap)
        count = min(count, units.count - index, max(1, bytes_max // units.unit_bytes))
        self.taken += count
        return self._view[index * units.unit_bytes : (index + count) * units.unit_bytes]

    def take_stamped(self, completed: int, count: int, now_ns: int) -> memoryview:
        """The next ``count`` units or fewer, with ``now_ns`` written into each."""
        slice_ = self.take(completed, count * self.units.unit_bytes)
        stamp = (now_ns ^ self._stamp_key).to_bytes(STAMP_BYTES, "big")
        for at in range(self.units.stamp_at, len(slice_), self.units.unit_bytes):
            slice_[at : at + STAMP_BYTES] = stamp
        return slice_

    def _rename(self, lap: int) -> None:
        """Give every unit a name never used before: the lower digits count units, the upper ones laps."""
        units = self.units
        upper = FRESH_DIGITS - len(str(units.count - 1))
        for place, digit in enumerate(f"{lap:0{upper}d}"[-upper:]):
            self._column(place, digit.encode() * units.count)
        if lap == 0:
            names = [f"{unit:0{FRESH_DIGITS}d}".encode() for unit in range(units.count)]
            for place in range(upper, FRESH_DIGITS):
                self._column(place, bytes(name[place] for name in names))

    def _column(self, place: int, digits: bytes) -> None:
        """Write one digit of the name into every unit."""
        at = self.units.digits_at + place
        key = self.units.key_at(at, 1)[0]
        masked = bytes(digit ^ key for digit in digits) if key else digits
        self.units.block[at :: self.units.unit_bytes] = masked
