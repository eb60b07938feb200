"""Links between nodes that delay, lose, double and reorder frames, and can be cut in one direction.

```
 send(sender, receiver, frame) --cut?--> lost, or held until the cut is healed (as TCP resends after an outage)
                               --loss?-> lost
                               `-------> delay, usually in order --> deliver(sender, receiver, frame), perhaps twice
```
A cut concerns one direction of one pair, so any partition is a set of them: one-way, partial (1 and 2 both reach 3 but
not each other), or clean in two halves. What was already under way when a link is cut still arrives: late messages from
a life before are among the things that consensus must bear.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flockmq.testing.simulation.events import EventQueue

Deliver = Callable[[int, int, bytes], None]
HELD_MAX: Final = 200
"""Frames that one cut link keeps for later; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How bad the network is."""

    delay_us_min: int = 100
    delay_us_max: int = 1_500
    loss: float = 0.0
    """Share of frames that vanish."""
    duplicate: float = 0.0
    """Share of frames that arrive a second time, later."""
    reorder: float = 0.0
    """Share of frames that may overtake those before them."""
    late: float = 0.0
    """Share of frames that are under way for up to ``late_us_max``, and do not hold up those behind them."""
    late_us_max: int = 3_000_000


CALM: Final = Conditions()


class Network:
    """All links. ``deliver`` is called when a frame arrives; a process may be there or not."""

    def __init__(self, queue: EventQueue, rng: random.Random, deliver: Deliver) -> None:
        self.conditions = CALM
        self.sent = 0
        self.lost = 0
        self._queue = queue
        self._rng = rng
        self._deliver = deliver
        self._cut: dict[tuple[int, int], list[bytes] | None] = {}
        self._arrival: dict[tuple[int, int], int] = {}

    def cut(self, sender: int, receiver: int, hold: bool) -> None:
        """Nothing sent from now on arrives; with ``hold`` it does once the link is healed."""
        self._cut.setdefault((sender, receiver), [] if hold else None)

    def is_cut(self, sender: int, receiver: int) -> bool:
        """Whether this direction is cut."""
        return (sender, receiver) in self._cut

    def heal(self) -> None:
        """Remove all cuts and let go of what they held."""
        cuts = self._cut
        self._cut = {}
        for (sender, receiver), held in cuts.items():
            for frame in held or ():
                self.send(sender, receiver, frame)

    def send(self, sender: int, receiver: int, frame: bytes) -> None:
        """A node gives out a frame."""
        self.sent += 1
        link = (sender, receiver)
        if self._cut and link in self._cut:
            self._hold(self._cut[link], frame)
            return
        conditions = self.conditions
        draw = self._rng.random
        if conditions.loss and draw() < conditions.loss:
            self.lost += 1
            return
        now = self._queue.now
        delay = conditions.delay_us_min + int(draw() * (conditions.delay_us_max - conditions.delay_us_min))
        if conditions.late and draw() < conditions.late:
            arrival = now + int(draw() * conditions.late_us_max)
        else:
            arrival = now + delay
            if not (conditions.reorder and draw() < conditions.reorder):
                arrival = max(arrival, self._arrival.get(link, 0))
                self._arrival[link] = arrival
        self._queue.at(arrival, self._deliver, sender, receiver, frame)
        if conditions.duplicate and draw() < conditions.duplicate:
            again = arrival + int(draw() * 10 * conditions.delay_us_max)
            self._queue.at(again, self._deliver, sender, receiver, frame)

    def _hold(self, held: list[bytes] | None, frame: bytes) -> None:
        self.lost += 1
        if held is None:
            return
        held.append(frame)
        if len(held) > HELD_MAX:
            del held[0]
