"""What each side promised, and what came of it: the proof that nothing was lost.

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
        self.nodes_lost = 0
        self._doubtful: dict[str, int] = {}
        """Topic -> the last number that a node took charge of before it died."""
        self._asked: dict[str, set[int]] = {}
        """Device -> commands that it has not answered."""
        self._excused_commands = 0
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
        if not fresh and number in (self._doubtful.get(topic, -1), self._doubtful.get(topic, -1) + 1):
            return  # sent once more because it was not known whether the dead node had passed it on
        (self.received if fresh else self.repeated)[qos] += 1

    def ask(self, device: str, command: int) -> None:
        """A command goes to a device."""
        self.commands_sent += 1
        self._asked.setdefault(device, set()).add(command)

    def node_died(self, device: str, topics: list[str]) -> None:
        """The node of a device is gone, with the device's session and whatever was in its hands."""
        self.nodes_lost += 1
        for topic in topics:
            self._doubtful[topic] = self._confirmed.get(topic, 0)
        for command in self._asked.pop(device, ()):
            if command not in self._answered:
                self._answered.add(command)
                self._excused_commands += 1

    @property
    def excused(self) -> int:
        """What was lost with a node: at most the last message of a topic, and commands that waited there."""
        lost = [topic for topic, last in self._doubtful.items() if last and self._missed(topic, last)]
        return len(lost) + self._excused_commands

    def _missed(self, topic: str, number: int) -> bool:
        arrived = self._arrivals.get(topic)
        return arrived is None or (number > arrived.through and number not in arrived.ahead)

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
        total = 0
        for topic, last in self._confirmed.items():
            arrived = self._arrivals.get(topic, nothing)
            missing = arrived.missing(last)
            doubtful = self._doubtful.get(topic, 0)
            if missing and doubtful and self._missed(topic, doubtful):
                missing -= 1
            total += missing
        return total

    def confirmed(self) -> dict[str, int]:
        """Topic -> how many messages of QoS 1 or 2 the broker has acknowledged there; they are numbered from 1 on."""
        return dict(self._confirmed)

    def settled(self) -> bool:
        """Whether nothing is under way any more that must arrive."""
        return self.missing() == 0 and self.answers >= self.commands_sent and self.wills_seen >= self.wills_due
