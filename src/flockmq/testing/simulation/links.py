"""Links and datagrams between simulated nodes: links keep the order and lose nothing until they break.

```
 wanted by one of two nodes that reach each other --> a link, a moment later --> frames in order, after some delay
 split, death, or a link that is wanted no more   --> it is down on both sides, what was on its way is lost
```
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flockmq.testing.simulation.machine import Machine
    from flockmq.testing.simulation.world import World

DELAY_US_MIN: Final = 200
DELAY_US_MAX: Final = 2_000
LINK_US: Final = 100_000
"""How often links are looked after."""


class LinkNetwork:
    """See the module. ``loss`` is the share of datagrams that vanish."""

    def __init__(self, world: World, rng: random.Random, machines: Sequence[Machine[Any]], loss: float = 0.0) -> None:
        self.delay_us = DELAY_US_MAX
        self.frames = 0
        self._world = world
        self._rng = rng
        self._machines = machines
        self._loss = loss
        self._parts: list[set[int]] = []
        self._links: dict[tuple[int, int], int] = {}
        """Linked pairs, the smaller first, and which link of theirs it is: frames of an older one are lost."""
        self._last: dict[tuple[int, int], int] = {}
        self._number = 0
        world.queue.after(LINK_US, self._look_after)

    def split(self, parts: Iterable[set[int]]) -> None:
        """Nodes of different parts don't reach each other from now on; no parts: all do."""
        self._parts = list(parts)
        for first, second in list(self._links):
            if not self.reaches(first, second):
                self.unlink(first, second)

    def reaches(self, first: int, second: int) -> bool:
        """Whether anything is carried between two nodes."""
        return not self._parts or any(first in part and second in part for part in self._parts)

    def are_linked(self, nodes: set[int]) -> bool:
        """Whether all of these have links with each other."""
        among = sum(first in nodes and second in nodes for first, second in self._links)
        return among == len(nodes) * (len(nodes) - 1) // 2

    def unlink(self, first: int, second: int) -> None:
        """End a link, if there is one."""
        pair = _pair(first, second)
        if self._links.pop(pair, None) is None:
            return
        for one, other in (pair, pair[::-1]):
            machine = self._machines[one - 1]
            if machine.process is not None:
                machine.do(machine.life, machine.process.link_down, other)

    def died(self, number: int) -> None:
        """All links of a node are down."""
        for first, second in [pair for pair in self._links if number in pair]:
            self.unlink(first, second)

    def send_frame(self, sender: int, receiver: int, frame: bytes) -> None:
        """Send a frame over a link, behind those before it; without a link it is lost."""
        link = self._links.get(_pair(sender, receiver))
        if link is None:
            return
        self.frames += 1
        due = max(self._due(), self._last.get((sender, receiver), 0))
        self._last[sender, receiver] = due
        self._world.queue.at(due, self._frame, sender, receiver, link, frame)

    def send_datagram(self, sender: int, receiver: int, body: bytes) -> None:
        """Send a datagram; it may overtake others, or vanish."""
        if self._loss and self._rng.random() < self._loss:
            return
        self._world.queue.at(self._due(), self._datagram, sender, receiver, body)

    def _due(self) -> int:
        return self._world.queue.now + DELAY_US_MIN + int(self._rng.random() * self.delay_us)

    def _frame(self, sender: int, receiver: int, link: int, frame: bytes) -> None:
        machine = self._machines[receiver - 1]
        if machine.process is not None and self._links.get(_pair(sender, receiver)) == link:
            self._world.trace.note("frame", sender, receiver, zlib.crc32(frame))
            machine.do(machine.life, machine.process.frame, sender, frame)

    def _datagram(self, sender: int, receiver: int, body: bytes) -> None:
        machine = self._machines[receiver - 1]
        if machine.process is not None and self.reaches(sender, receiver):
            machine.do(machine.life, machine.process.datagram, sender, body)

    def _look_after(self) -> None:
        self._world.queue.after(LINK_US, self._look_after)
        for machine in self._machines:
            if machine.process is None:
                continue
            for other in list(machine.process.link_requests):
                peer = self._machines[other - 1]
                pair = _pair(machine.number, other)
                if pair in self._links or peer.process is None or not self.reaches(*pair):
                    continue
                self._number += 1
                self._links[pair] = self._number
                machine.do(machine.life, machine.process.link_up, other)
                peer.do(peer.life, peer.process.link_up, machine.number)


def _pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)
