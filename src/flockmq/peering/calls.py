"""Questions to another node, and their answers: small ones, such as those in the table of ``kinds``.

```
 ask(peer, kind, body) --> QUESTION number kind body --> serve(kind) there: body in, body out, now or later
   a promise of body <---- ANSWER number body <---------'
   ... of None: the link broke, the peer died, the peer refused, or no answer came within ``timeout_ms``
```
At most ``OPEN_MAX`` questions wait for their answer. An answer goes back over the link that its question came by, or
not at all: a node that started again meanwhile must not take it for the answer to a question of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.peering.channels import CALLS
from flockmq.tasks import TASKS_MAX, Promise, Task, Tasks, promised

if TYPE_CHECKING:
    from flockmq.peering.ports import Outbox

QUESTION: Final = 1
ANSWER: Final = 2
REFUSAL: Final = 3
"""A refusal: the peer does not serve this kind, or could not read the question."""

TIMEOUT_MS: Final = 2_000
OPEN_MAX: Final = 1_024
ANSWERS_MAX: Final = TASKS_MAX // 4
"""With this many tasks the node refuses questions that need a task, to keep room for its own flows."""
BODY_BYTES_MAX: Final = 1 << 20
_HEAD: Final = struct.Struct("<BQH")
_BOOT_SHIFT: Final = 20
_BOOT_MASK: Final = (1 << 42) - 1

Serve = Callable[[bytes], bytes]
ServeTask = Callable[[int, bytes], Task[bytes | None]]
"""(peer, question) -> a task that returns the answer, or None to refuse."""


class _Open:
    """A question that waits for its answer."""

    def __init__(self, peer: int, kind: int, due_at: int) -> None:
        self.peer = peer
        self.kind = kind
        self.due_at = due_at
        self.answer: Promise[bytes | None] = Promise()


class Calls:
    """One node's questions and answers; a component of the node. ``tasks`` runs the answers that take time."""

    def __init__(self, outbox: Outbox, tasks: Tasks | None = None, boot: int = 0) -> None:
        self.tasks = Tasks() if tasks is None else tasks
        self._outbox = outbox
        self._number = (boot & _BOOT_MASK) << _BOOT_SHIFT
        """The number of the last question. Numbers of earlier starts of this node do not come again."""
        self._open: dict[int, _Open] = {}
        self._served: dict[int, Serve] = {}
        self._served_tasks: dict[int, ServeTask] = {}
        self._linked: dict[int, int] = {}
        """Peers that can be asked -> the number of the link to each."""
        self._links = 0

    @property
    def now(self) -> int:
        """The present."""
        return self.tasks.now

    def serve(self, kind: int, answer: Serve) -> None:
        """Answer questions of a kind. ``answer`` must be quick, and raise RemoteProtocolError for unreadable bodies."""
        self._served[kind] = answer

    def serve_task(self, kind: int, answer: ServeTask) -> None:
        """Answer questions of a kind with the result of a task. The asking node has its own timeout."""
        self._served_tasks[kind] = answer

    def ask(self, peer: int, kind: int, body: bytes, timeout_ms: int = TIMEOUT_MS) -> Promise[bytes | None]:
        """Ask a peer: a promise of its answer, or of None."""
        if peer not in self._linked or len(self._open) >= OPEN_MAX:
            return promised(None)
        self._number += 1
        waiting = self._open[self._number] = _Open(peer, kind, self.now + timeout_ms)
        self._outbox.send(peer, CALLS, _HEAD.pack(QUESTION, self._number, kind) + body)
        return waiting.answer

    def peer_up(self, peer: int, now: int) -> None:  # noqa: ARG002
        """The peer can be asked."""
        self._links += 1
        self._linked[peer] = self._links

    def peer_down(self, peer: int, now: int) -> None:
        """The link is lost: every open question to the peer gets None."""
        self.tasks.now = now
        self._linked.pop(peer, None)
        self._give_up([number for number, one in self._open.items() if one.peer == peer])

    def peer_dead(self, peer: int, now: int) -> None:
        """As when the link is lost."""
        self.peer_down(peer, now)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """A question or an answer."""
        self.tasks.now = now
        if len(body) < _HEAD.size or len(body) > BODY_BYTES_MAX:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, f"A question between nodes has {len(body)} bytes")
        what, number, kind = _HEAD.unpack_from(body)
        rest = body[_HEAD.size :]
        if what == QUESTION:
            self._answer(peer, number, kind, rest)
            return
        waiting = self._open.get(number)
        if waiting is not None and waiting.peer == peer and waiting.kind == kind:
            del self._open[number]
            waiting.answer.set(rest if what == ANSWER else None)

    def _answer(self, peer: int, number: int, kind: int, body: bytes) -> None:
        handler = self._served_tasks.get(kind)
        served = self._served.get(kind)
        found: bytes | None = None
        try:
            if handler is not None and len(self.tasks) < ANSWERS_MAX:
                answer = handler(peer, body)
                self.tasks.start(f"answer to question {kind}", self._answered_later(peer, number, kind, answer))
                return
            if served is not None:
                found = served(body)
        except FlockError:
            found = None
        self._reply(peer, number, kind, found)

    def _answered_later(self, peer: int, number: int, kind: int, answer: Task[bytes | None]) -> Task[None]:
        link = self._linked.get(peer)
        try:
            found = yield from answer
        except FlockError:
            found = None
        if self._linked.get(peer) == link:
            self._reply(peer, number, kind, found)

    def _reply(self, peer: int, number: int, kind: int, found: bytes | None) -> None:
        if found is None or len(found) > BODY_BYTES_MAX - _HEAD.size:
            self._outbox.send(peer, CALLS, _HEAD.pack(REFUSAL, number, kind))
        else:
            self._outbox.send(peer, CALLS, _HEAD.pack(ANSWER, number, kind) + found)

    def tick(self, now: int) -> None:
        """Time passes: end questions that are past their timeout, let tasks go on."""
        self.tasks.now = now
        self._give_up([number for number, one in self._open.items() if one.due_at <= now])
        self.tasks.tick(now)

    def _give_up(self, numbers: list[int]) -> None:
        failure: Exception | None = None
        for waiting in [self._open.pop(number) for number in numbers]:
            try:
                waiting.answer.set(None)
            except Exception as error:  # a bug of one caller; the other callers must get their answers
                failure = failure or error
        if failure is not None:
            raise failure

    def flush(self, now: int) -> None:
        """Questions and answers are sent at once; nothing waits for the end of a turn."""
