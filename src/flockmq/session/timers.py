"""One timer wheel for every deadline of the node: keep alives, expiries, delays.

A timer sits in the slot of its deadline until ``due`` hands it out or ``cancel`` takes it back; both cost the same
however many timers there are. Deadlines are rounded up to the grain, so nothing fires early.
"""

from __future__ import annotations

from typing import Final

GRAIN_MS: Final = 100


class Timer:
    """A deadline. ``kind`` says what to do, ``subject`` to which object."""

    def __init__(self, kind: int, subject: object, slot: int, key: int) -> None:
        self.kind = kind
        self.subject = subject
        self.slot = slot
        self.key = key
        self.is_off = False
        """The timer was cancelled: it must not be acted on, also when ``due`` had handed it out before that."""


class TimerWheel:
    """All timers by slot, in the order they were added within a slot."""

    def __init__(self, now: int) -> None:
        self.slots: dict[int, dict[int, Timer]] = {}
        self.next_slot = now // GRAIN_MS
        self.next_key = 0
        self.count = 0

    def add(self, deadline: int, kind: int, subject: object) -> Timer:
        """Set a timer; a deadline in the past is due at the next call."""
        slot = (deadline + GRAIN_MS - 1) // GRAIN_MS
        slot = max(slot, self.next_slot)
        self.next_key += 1
        timer = Timer(kind, subject, slot, self.next_key)
        timers = self.slots.get(slot)
        if timers is None:
            timers = {}
            self.slots[slot] = timers
        timers[timer.key] = timer
        self.count += 1
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Take a timer back; fine if it is None or has fired."""
        if timer is None:
            return
        timer.is_off = True
        timers = self.slots.get(timer.slot)
        if timers is None or timers.pop(timer.key, None) is None:
            return
        self.count -= 1
        if not timers:
            del self.slots[timer.slot]

    def due(self, now: int) -> list[Timer]:
        """All timers whose deadline has come, earliest first."""
        last = now // GRAIN_MS
        if last < self.next_slot:
            return []
        if last - self.next_slot > len(self.slots):
            slots = sorted(slot for slot in self.slots if slot <= last)
        else:
            slots = [slot for slot in range(self.next_slot, last + 1) if slot in self.slots]
        self.next_slot = last + 1
        fired: list[Timer] = []
        for slot in slots:
            fired.extend(self.slots.pop(slot).values())
        self.count -= len(fired)
        return fired
