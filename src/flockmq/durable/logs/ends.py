"""Where a partition ends for certain: for those who ask for an offset that no replica seems to have.

```
 ask(group) --> END to the leader --> kept until the next tick --> ``RaftEngine.read``: a quorum confirms --> end
```
A leader that was elected just now may not know yet all that is committed, and one that was cut off does not know what
the others commit without it. Only what a quorum confirmed after the question came is told; everything else is "later".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK
from flockmq.peering.fields import U64
from flockmq.peering.fields import Reader as Fields
from flockmq.peering.kinds import END_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls, Replied
    from flockmq.durable.logs.reading import Reader

TIMEOUT_MS: Final = 2_000
WAITING_MAX: Final = 1_024

End = Callable[[int], None]
"""The end; -1 when nobody could tell for certain."""


class Ends:
    """See the module."""

    def __init__(self, calls: PartitionCalls, reader: Reader) -> None:
        self._calls = calls
        self._reader = reader
        self._waiting: list[tuple[int, Replied]] = []
        calls.serve(END_CALL, self._on_end)

    def ask(self, group: int, reply: End, now: int, timeout_ms: int = TIMEOUT_MS) -> None:
        """Ask where a partition ends; ``reply`` is called once."""
        self._calls.ask(group, END_CALL, b"", partial(_read_end, reply), now, timeout_ms)

    def tick(self, now: int) -> None:
        """The present moment, by which a lease is judged."""
        waiting = self._waiting
        self._waiting = []
        for group, answer in waiting:
            self._calls.engine.read(group, partial(self._confirmed, group, answer), now)

    def _on_end(self, group: int, fields: Fields, answer: Replied) -> None:
        fields.finish()
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append((group, answer))
        else:
            answer(LATER, b"")

    def _confirmed(self, group: int, answer: Replied, done: bool) -> None:
        end = self._reader.end_of(group) if done else -1
        if end < 0:
            answer(LATER, b"")
        else:
            answer(OK, U64.pack(end))


def _read_end(reply: End, code: int, body: bytes) -> None:
    reply(Fields(body).u64() if code == OK else -1)
