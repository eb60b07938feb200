"""Changes of the cluster state on their way: submitted on any node, each with one result.

```
 submit(command) --> a replica of group 0 here: into its log (``engine.appends``: once, to the leader)
                 |-> none here: META_SUBMIT to a peer that has one; NOT_DONE: to the next one
                 |
                 '--> applied here: its result         a peer says DONE: its result, once this node is as far
                      never given to a log, and time is up: certainly not done
                      given to a log, and time is up: no node can say
```
Results are told after watchers of the state have heard of the change (``told``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import (
    INVALID,
    Command,
    RefusedError,
    Result,
    decode_envelope,
    encode_envelope,
)
from flockmq.durable.state.group0 import GROUP, has_replica
from flockmq.durable.state.wire import (
    COMMAND_BYTES_MAX,
    DONE,
    MAYBE,
    NOT_DONE,
    Answer,
    decode_answer,
    encode_answer,
)
from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.peering.kinds import META_SUBMIT
from flockmq.raft.appends import COMMITTED, GIVE_UP_MS, REFUSED, OpenBatch, Outcome
from flockmq.tasks import Promise, Signal, Sleep, Task, any_of, promised, within

if TYPE_CHECKING:
    import random

    from flockmq.durable.state.facts import Facts
    from flockmq.durable.state.ledger import Ledger
    from flockmq.durable.state.wall import WallClock
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine

UNAVAILABLE: Final = "unavailable"
"""Code of a result: nothing was done, because no node could decide. Try again."""
UNKNOWN: Final = "unknown"
"""Code of a result: it may have been done, or may still be. Look before trying again."""
BUSY: Final = "busy"
"""Code of a result: nothing was done, too much waits here."""

TOPIC: Final = b"$cluster"
OFFER_MS: Final = 200
"""How long a command waits before it is offered again."""
WAITING_MAX: Final = 4_096
LAST_MS: Final = 1_000
"""Before time is up: no node is given a command any more, as it could hardly answer."""
TIMEOUT_MS: Final = GIVE_UP_MS + LAST_MS
"""Longer than a sender of commands tries: it can be certain that nothing was sent, and by then it has said so."""
WHY_NO_LEADER: Final = (
    "No node leads the group that decides about the cluster state: most of its voters must run, and `flockmq doctor` "
    "says which are missing."
)

Key = tuple[int, int, int]
"""Node, life and number of a command's origin."""


def unavailable(why: str) -> Result:
    """Certainly not done."""
    return Result(False, f"{why} Nothing was changed; try again.", None, UNAVAILABLE)


def unknown(why: str) -> Result:
    """No node can say whether it was done."""
    return Result(
        False, f"{why} The change may have been made, or may still be: look before trying again.", None, UNKNOWN
    )


class _Pending:
    """One command. A ``BatchListener`` of the batch that it is in."""

    def __init__(self, envelope: bytes, due_at: int, ledger: Ledger) -> None:
        self.envelope = envelope
        self.due_at = due_at
        self.result: Promise[Result] = Promise()
        self.index = 0
        """Behind it in the log of group 0; 0 while that is not known."""
        self._ledger = ledger
        self.position = 0
        """In its batch."""

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:  # noqa: ARG002
        """The batch is in the log, or not, or no node can say."""
        if outcome.kind == REFUSED:
            self.result.set(unavailable(WHY_NO_LEADER))
        elif outcome.kind != COMMITTED:
            self.result.set(unknown("No majority of the nodes that decide confirmed the change in time."))
        else:
            self.index = outcome.offset + self.position + 1
            if self._ledger.index >= self.index:  # no result was seen: a whole state took its place
                self.result.set(unknown("This node caught up in one leap and did not see the outcome of the change."))


class Submitting:
    """See the module."""

    def __init__(
        self,
        engine: RaftEngine,
        calls: Calls,
        facts: Facts,
        rng: random.Random,
        ledger: Ledger,
        wall: WallClock,
    ) -> None:
        self._engine = engine
        self._calls = calls
        self._facts = facts
        self._rng = rng
        self._ledger = ledger
        self._wall = wall
        self._open: dict[Key, _Pending] = {}
        self._number = 0
        self.told = Signal()
        """Fires when watchers have heard of all that is applied."""
        self.news = Signal()
        """Fires when peers have told how far they are."""
        self.ahead: dict[int, None] = {}
        """Peers that said that they have applied more than this node."""
        calls.serve_task(META_SUBMIT, self._on_submit)

    def submit(self, command: Command) -> Promise[Result]:
        """Change the state: a promise of the result after the command was applied here; or of a code that says that it
        was certainly not done (``unavailable``, ``busy``) or that no node can say (``unknown``)."""
        self._number += 1
        host = self._engine.host
        now = self._calls.now
        envelope = encode_envelope(host.node_id, host.boot, self._number, self._wall.at(now), command)
        if len(envelope) > COMMAND_BYTES_MAX:
            text = f"This change has {len(envelope):,} bytes, {COMMAND_BYTES_MAX:,} are the most; make smaller ones."
            return promised(Result(False, text, None, INVALID))
        key = (host.node_id, host.boot, self._number)
        return self._calls.tasks.start("submit a change", self._submit(key, envelope))

    def _submit(self, key: Key, envelope: bytes) -> Task[Result]:
        pending = yield from self._carry_out(key, envelope)
        result: Result = pending.result.value
        return result

    def _on_submit(self, peer: int, body: bytes) -> Task[bytes]:
        """A peer without a replica has a command."""
        try:
            envelope = decode_envelope(body)
        except RefusedError as error:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, str(error)) from error
        key = (envelope.origin, envelope.boot, envelope.number)
        if not has_replica(self._engine) or envelope.origin != peer or key in self._open:
            return encode_answer(Answer(NOT_DONE))
        pending = yield from self._carry_out(key, body)
        result: Result = pending.result.value
        if result.code in (UNAVAILABLE, BUSY):
            return encode_answer(Answer(NOT_DONE))
        if result.code == UNKNOWN:
            return encode_answer(Answer(MAYBE))
        return encode_answer(Answer(DONE, pending.index, result))

    def _carry_out(self, key: Key, envelope: bytes) -> Task[_Pending]:
        """Give a command to group 0, here or elsewhere, and wait for its result."""
        pending = _Pending(envelope, self._calls.now + TIMEOUT_MS, self._ledger)
        if len(self._open) >= WAITING_MAX:
            pending.result.set(Result(False, "Too many changes wait here; try again in a moment.", None, BUSY))
            return pending
        self._open[key] = pending
        try:
            if has_replica(self._engine):
                yield from self._append(pending)
            else:
                yield from self._ask_peers(pending)
        finally:
            del self._open[key]
        yield from self.told.next()
        return pending

    def _append(self, pending: _Pending) -> Task[None]:
        """Into the log of group 0, through the replica here."""
        try:
            batch = self._engine.appends.open_batch(GROUP)
        except FlockError as error:
            pending.result.set(unavailable(str(error)))
            return
        pending.position = batch.builder.count
        batch.waiting[pending] = 1
        batch.builder.add(TOPIC, b"", self._wall.at(self._calls.now), 0, pending.envelope)
        yield from self._wait(pending)

    def _wait(self, pending: _Pending) -> Task[None]:
        """The command may be in a log: wait for the result, as long as there is time."""
        yield from within(pending.result, pending.due_at - self._calls.now)
        pending.result.set(unknown("The cluster did not decide in time."))

    def _ask_peers(self, pending: _Pending) -> Task[None]:
        """Without a replica here: let a peer that has one submit the command."""
        tried: set[int] = set()
        while pending.due_at - self._calls.now > LAST_MS:
            if has_replica(self._engine):
                yield from self._append(pending)
                return
            able = [node for node, head in self._facts.heads().items() if head.has_replica and node not in tried]
            if not able:
                tried.clear()
                yield Sleep(OFFER_MS)
                continue
            peer = able[int(self._rng.random() * len(able))]
            answer = yield from self._ask_peer(pending, peer)
            if pending.result.is_set:
                return
            if answer.status == DONE and answer.result is not None:
                yield from self._wait_until_applied(pending, peer, answer.index, answer.result)
                return
            if answer.status != NOT_DONE:
                yield from self._wait(pending)  # maybe it was taken: then it is seen here in time
                return
            tried.add(peer)
            yield Sleep(OFFER_MS)
        pending.result.set(unavailable("No node that decides about the cluster state could be reached."))

    def _ask_peer(self, pending: _Pending, peer: int) -> Task[Answer]:
        answered = self._calls.ask(peer, META_SUBMIT, pending.envelope, pending.due_at - self._calls.now)
        yield from any_of(answered, pending.result)  # the result may be seen here before the peer answers
        return decode_answer(answered.value) if answered.value is not None else Answer(MAYBE)

    def _wait_until_applied(self, pending: _Pending, peer: int, index: int, result: Result) -> Task[None]:
        pending.index = index
        if self._ledger.index < index:
            self.ahead[peer] = None
            self.news.fire()
        while self._ledger.index < index and self._calls.now < pending.due_at and not pending.result.is_set:
            yield from within(any_of(pending.result, self.told.next()), pending.due_at - self._calls.now)
        pending.result.set(result)

    def applied(self, index: int, data: bytes, result: Result) -> None:
        """A command took effect here."""
        if not self._open:
            return
        try:
            envelope = decode_envelope(data)
        except RefusedError:
            return
        pending = self._open.get((envelope.origin, envelope.boot, envelope.number))
        if pending is not None:
            pending.index = index
            pending.result.set(result)
