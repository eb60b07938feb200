"""Reads that wait for their answer: first for the index from which they may be served, then until it is applied.

```
 begin --> number --> confirmed(index) --> due: index is not applied --> applied --> answer(True)
                `---> not here, group closed, engine stopped ---------------------> answer(False)
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.raft.state import ReadAnswer

ReadDone = Callable[[bool], None]


class PendingReads:
    """The reads of all groups of a node. Every answer is given exactly once."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[int, ReadDone]] = {}
        """Group and answer by number of the read."""
        self._due: dict[int, list[tuple[int, ReadDone]]] = {}
        """(index, answer) by group."""
        self._number = 0

    def begin(self, group: int, answer: ReadDone) -> int:
        """A read begins; its number."""
        self._number += 1
        self._asked[self._number] = (group, answer)
        return self._number

    def refuse(self, number: int) -> None:
        """A read can't be served here."""
        self._asked.pop(number)[1](False)

    def advance(self, group: int, confirmed: list[ReadAnswer], applied: int) -> None:
        """Indexes of reads are known, or more of a group is applied."""
        due = self._due.pop(group, [])
        for read in confirmed:
            if read.number not in self._asked:
                continue  # refused when its group stopped
            _, answer = self._asked.pop(read.number)
            if read.index < 0:
                answer(False)
            else:
                due.append((read.index, answer))
        if not due:
            return
        waiting = [(index, answer) for index, answer in due if index > applied]
        if waiting:
            self._due[group] = waiting
        for index, answer in due:
            if index <= applied:
                answer(True)

    def close_group(self, group: int) -> None:
        """A group is closed, or has stopped: its reads are refused."""
        for _, answer in self._due.pop(group, []):
            answer(False)
        for number in [number for number, (asked, _) in self._asked.items() if asked == group]:
            self.refuse(number)

    def stop(self) -> None:
        """Refuse all."""
        for _, answer in [*self._asked.values(), *(one for due in self._due.values() for one in due)]:
            answer(False)
        self._asked = {}
        self._due = {}
