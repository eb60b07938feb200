"""Commands whose outcome somebody waits for: a client of this node, or a peer without a replica of group 0.

```
 add --> is_out: maybe in the log --> applied here: its result
                |                --> a peer says what became of it; replied once this node is as far
                '-- never out -----> time is up: certainly not done.   Out, and time is up: nobody can say
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import Result
from flockmq.durable.state.wire import DONE, MAYBE, NOT_DONE, Answer, encode_answer
from flockmq.raft.appends import GIVE_UP_MS

if TYPE_CHECKING:
    from collections.abc import Callable

UNAVAILABLE: Final = "unavailable"
"""Code of a result: nothing was done, because nobody could decide. Try again."""
UNKNOWN: Final = "unknown"
"""Code of a result: it may have been done, or may still be. Look before trying again."""
BUSY: Final = "busy"
"""Code of a result: nothing was done, too much waits here."""

WAITING_MAX: Final = 4_096
LAST_MS: Final = 1_000
"""Before time is up: nobody is given a command any more, as they could hardly answer."""
TIMEOUT_MS: Final = GIVE_UP_MS + LAST_MS
"""Longer than whoever sends a command tries: it can be certain that nothing was sent, and by then it has said so."""

Key = tuple[int, int, int]
"""Node, life and number of whoever asked."""


def unavailable(why: str) -> Result:
    """Certainly not done."""
    return Result(False, f"{why} Nothing was changed; try again.", None, UNAVAILABLE)


def unknown(why: str) -> Result:
    """Nobody can say."""
    return Result(
        False, f"{why} The change may have been made, or may still be: look before trying again.", None, UNKNOWN
    )


class Pending:
    """One command."""

    def __init__(
        self,
        key: Key,
        envelope: bytes,
        due_at: int,
        reply: Callable[[Result], None] | None,
        answer: Callable[[bytes | None], None] | None,
    ) -> None:
        self.key = key
        self.envelope = envelope
        self.due_at = due_at
        self.reply = reply
        """Of a client of this node."""
        self.answer = answer
        """Of a peer."""
        self.is_out = False
        """It may be in the log."""
        self.tried: set[int] = set()
        """Peers that would not take it."""
        self.index = 0
        self.result: Result | None = None
        """What a peer said became of it; told when this node has come to ``index``."""

    def tell(self, result: Result) -> None:
        """This is what became of it."""
        if self.reply is not None:
            self.reply(result)
        elif self.answer is not None:
            if result.code in (UNAVAILABLE, BUSY):
                self.answer(encode_answer(Answer(NOT_DONE)))
            elif result.code == UNKNOWN:
                self.answer(encode_answer(Answer(MAYBE)))
            else:
                self.answer(encode_answer(Answer(DONE, self.index, result)))


class Waiting:
    """All of them."""

    def __init__(self) -> None:
        self.by_key: dict[Key, Pending] = {}
        self._finished: list[tuple[Pending, Result]] = []

    def has_room(self) -> bool:
        """Whether another one may wait."""
        return len(self.by_key) < WAITING_MAX

    def add(self, pending: Pending) -> None:
        """One more."""
        self.by_key[pending.key] = pending

    def finish(self, pending: Pending, result: Result) -> None:
        """Its outcome is known; told with ``tell_finished``. Later outcomes of the same command change nothing."""
        if self.by_key.pop(pending.key, None) is not None:
            self._finished.append((pending, result))

    def reached(self, index: int) -> None:
        """This node has applied all up to an index."""
        for pending in [one for one in self.by_key.values() if one.result is not None and one.index <= index]:
            assert pending.result is not None
            self.finish(pending, pending.result)

    def not_out(self, now: int) -> list[Pending]:
        """Commands that nobody has taken yet, and that there is time to give to somebody."""
        return [pending for pending in self.by_key.values() if not pending.is_out and pending.due_at - now > LAST_MS]

    def expire(self, now: int) -> None:
        """Give up on those that took too long, in the order in which they came."""
        while self.by_key:
            pending = next(iter(self.by_key.values()))
            if pending.due_at > now:
                return
            if pending.result is not None:
                self.finish(pending, pending.result)
            elif pending.is_out:
                self.finish(pending, unknown("The cluster did not decide in time."))
            else:
                self.finish(pending, unavailable("No node that decides about the cluster state could be reached."))

    def has_finished(self) -> bool:
        """Whether ``tell_finished`` has something to tell."""
        return bool(self._finished)

    def tell_finished(self) -> None:
        """Tell everybody."""
        finished = self._finished
        self._finished = []
        for pending, result in finished:
            pending.tell(result)
