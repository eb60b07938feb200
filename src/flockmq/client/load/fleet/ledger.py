"""Who promised what, and what came of it: the proof that nothing was lost.

```
 device:        the broker acknowledged message 7 of this topic --> confirm(topic, 7)
 control room:  message 7 of this topic arrived ----------------> receive(topic, qos, 7)
                                                                  missing(): confirmed and not received
```
Devices number the messages of each topic from 1 on and go on to the next number only when the last was acknowledged
(QoS 1 and 2), so what should have arrived is everything up to the last confirmed one.
"""

from __future__ import annotations


class Arrivals:
    """The numbers that arrived of one topic: all up to ``through``, and a few beyond a gap."""

    __slots__ = ("ahead", "through")

    def __init__(self) -> None:
        self.through = 0
        self.ahead: set[int] = set()

    def add(self, number: int) -> bool:
        """Take note of one; False when it had come before."""
        if number <= self.through or number in self.ahead:
            return False
        self.ahead.add(number)
        while self.through + 1 in self.ahead:
            self.through += 1
            self.ahead.discard(self.through)
        return True

    def missing(self, confirmed: int) -> int:
        """How many of 1..confirmed have not come."""
        return max(0, confirmed - self.through - sum(1 for number in self.ahead if number <= confirmed))


class Ledger:
    """Counts of everything that devices and control room did."""

    def __init__(self) -> None:
        self.published = [0, 0, 0]
        """Messages handed to the broker, by QoS."""
        self.received = [0, 0, 0]
        """Messages that arrived for the first time, by QoS."""
        self.repeated = [0, 0, 0]
        """Messages that arrived once more, by QoS: normal at 1, wrong at 2."""
        self.commands_sent = 0
        self.wills_due = 0
        self.wills_seen = 0
        self._answered: set[int] = set()
        self._confirmed: dict[str, int] = {}
        self._arrivals: dict[str, Arrivals] = {}

    def confirm(self, topic: str, qos: int, number: int) -> None:
        """The broker has taken charge of this message (QoS 0: it was written)."""
        self.published[qos] += 1
        if qos:
            self._confirmed[topic] = number

    def receive(self, topic: str, qos: int, number: int) -> None:
        """This message arrived at the control room."""
        fresh = self._arrivals.setdefault(topic, Arrivals()).add(number)
        (self.received if fresh else self.repeated)[qos] += 1

    def answer(self, command: int) -> bool:
        """A device answered; False when it had done so before."""
        fresh = command not in self._answered
        self._answered.add(command)
        return fresh

    @property
    def answers(self) -> int:
        """Commands that were answered."""
        return len(self._answered)

    def missing(self) -> int:
        """Messages of QoS 1 and 2 that the broker took charge of and that never arrived."""
        nothing = Arrivals()
        return sum(self._arrivals.get(topic, nothing).missing(last) for topic, last in self._confirmed.items())

    def settled(self) -> bool:
        """Whether nothing is under way any more that must arrive."""
        return self.missing() == 0 and self.answers >= self.commands_sent and self.wills_seen >= self.wills_due
