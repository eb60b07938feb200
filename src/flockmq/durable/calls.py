"""Questions about partitions, from any node to the one that leads, or to one that is named.

```
 ask(group, kind, body, reply)    --> who leads? --> there: OK answer | ELSEWHERE, ask that one | LATER | REFUSED why
                                        ^------ again, until ``timeout_ms`` is over ------'
                                     a leader that does not know yet all that is committed says LATER
 gather(groups, kind, body, reply) -> one question per node for all groups that it seems to lead; who does not, or
                                     can't be sure that nobody else does by now (``raft/speaking.py``): again
 ask_node(node, kind, body, reply) -> that very node
```
A question to this node itself takes the same way without the network. Everything that waits is bounded.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U32, U64, Reader, large
from flockmq.raft.speaking import near, speaks_for
from flockmq.tasks import Promise

if TYPE_CHECKING:
    from flockmq.durable.state.layout import Layout
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Task

OK: Final = 0
ELSEWHERE: Final = 1
LATER: Final = 2
REFUSED: Final = 3
"""The answer is a sentence that says why."""
TIMED_OUT: Final = 4
"""Nobody answered in time; never sent."""

TIMEOUT_MS: Final = 3_000
ATTEMPT_MS: Final = 1_000
RETRY_MS: Final = 100
HOPS_MAX: Final = 4
"""Nodes that are asked in a row before waiting a moment."""
ASKS_MAX: Final = 20_000
ON_WIRE_MAX: Final = 400
HINTS_MAX: Final = 20_000
GROUPS_MAX: Final = 1_024
ANSWER_BYTES_MAX: Final = 512 * 1_024
_GROUP: Final = struct.Struct("<Q")

Replied = Callable[[int, bytes], None]
"""(code, body): OK, REFUSED or TIMED_OUT."""
Serve = Callable[[int, Reader, Replied], None]
"""(group, question, answer), at the group's leader."""
ServeEach = Callable[[int, Reader], bytes | None]
Gathered = Callable[[dict[int, bytes], list[int]], None]
"""Answers by group, and the groups without one."""


class _Ask:
    """A question on its way to a leader."""

    def __init__(self, group: int, kind: int, body: bytes, reply: Replied, due_at: int) -> None:
        self.group = group
        self.kind = kind
        self.body = body
        self.reply = reply
        self.due_at = due_at
        self.attempts = 0
        self.hops = 0
        self.retry_at = 0
        self.is_out = False


class _Gather:
    """One question about many groups."""

    def __init__(self, kind: int, body: bytes, reply: Gathered, due_at: int) -> None:
        self.kind = kind
        self.body = body
        self.reply = reply
        self.due_at = due_at
        self.found: dict[int, bytes] = {}
        self.open: dict[int, None] = {}
        self.attempts = 0
        self.out = 0
        self.retry_at = 0
        self.over = False


class PartitionCalls:
    """See the module."""

    def __init__(self, me: int, engine: RaftEngine, calls: Calls, layout: Layout) -> None:
        self.me = me
        self.engine = engine
        self.layout = layout
        self._calls = calls
        self._serves: dict[int, Serve] = {}
        self._serves_each: dict[int, ServeEach] = {}
        self._serves_node: dict[int, Callable[[bytes, Replied], None]] = {}
        self._hints: dict[int, int] = {}
        self._asks: dict[_Ask, None] = {}
        self._line: deque[_Ask] = deque()
        """Not begun: too many are on the wire."""
        self._on_wire = 0
        self._gathers: dict[_Gather, None] = {}

    @property
    def now(self) -> int:
        """The present."""
        return self._calls.tasks.now

    @now.setter
    def now(self, now: int) -> None:
        self._calls.tasks.now = now

    # Who answers.

    def serve(self, kind: int, handler: Serve) -> None:
        """Answer questions to the leader of a group."""
        self._serves[kind] = handler
        self._calls.serve_task(kind, partial(self._on_question, kind))

    def serve_each(self, kind: int, handler: ServeEach) -> None:
        """Answer, at once, a question about many groups, for each of those that this node leads; None: not now."""
        self._serves_each[kind] = handler
        self._calls.serve(kind, partial(self._on_groups_question, kind))

    def serve_node(self, kind: int, handler: Callable[[bytes, Replied], None]) -> None:
        """Answer questions to this very node."""
        self._serves_node[kind] = handler
        self._calls.serve_task(kind, partial(self._on_node_question, kind))

    def _on_question(self, kind: int, peer: int, body: bytes) -> Task[bytes | None]:  # noqa: ARG002
        answer: Promise[bytes | None] = Promise()
        reader = Reader(body)
        group = reader.u64()
        self._handle(kind, group, reader, partial(_send, answer.set))
        return (yield from answer)

    def _handle(self, kind: int, group: int, reader: Reader, answer: Replied) -> None:
        if not self.engine.is_leader(group):
            answer(ELSEWHERE, _GROUP.pack(self._leader_of(group)))
        elif not self.engine.knows_all(group):
            answer(LATER, b"")
        else:
            self._serves[kind](group, reader, answer)

    def _leader_of(self, group: int) -> int:
        leader = self.engine.leader_of(group)
        return 0 if leader == self.me else leader

    def _on_groups_question(self, kind: int, body: bytes) -> bytes:
        return self._speak(kind, body)

    def _speak(self, kind: int, body: bytes) -> bytes:
        reader = Reader(body)
        groups = [reader.u64() for _ in range(reader.count(GROUPS_MAX, 8))]
        rest = reader.large(len(body))
        parts: list[bytes] = []
        size = 0
        host = self.engine.host
        nearby = near(host, self.now)
        for group in groups:
            found = self._serves_each[kind](group, Reader(rest)) if speaks_for(host, group, nearby) else None
            if found is None:
                continue
            size += len(found) + 12
            if parts and size > ANSWER_BYTES_MAX:
                break  # the others are asked for again
            parts.append(_GROUP.pack(group) + large(found))
        return b"".join(parts)

    def _on_node_question(self, kind: int, peer: int, body: bytes) -> Task[bytes | None]:  # noqa: ARG002
        answer: Promise[bytes | None] = Promise()
        self._serves_node[kind](body, partial(_send, answer.set))
        return (yield from answer)

    # Who asks.

    def ask(self, group: int, kind: int, body: bytes, reply: Replied, now: int, timeout_ms: int = TIMEOUT_MS) -> None:
        """Ask the leader of a group; ``reply`` is called once, maybe before this returns."""
        self.now = now
        if len(self._asks) >= ASKS_MAX:
            reply(REFUSED, b"Too many questions wait for answers on this node; try again.")
            return
        ask = _Ask(group, kind, body, reply, now + timeout_ms)
        self._asks[ask] = None
        if self._on_wire >= ON_WIRE_MAX:
            self._line.append(ask)
        else:
            self._attempt(ask)

    def _attempt(self, ask: _Ask) -> None:
        target = self._target(ask.group, ask.attempts)
        ask.attempts += 1
        if target == 0:
            ask.retry_at = self.now + RETRY_MS
            return
        ask.is_out = True
        if target == self.me:
            try:
                self._handle(ask.kind, ask.group, Reader(ask.body), partial(self._on_answer, ask))
            except RemoteProtocolError as error:
                self._finish(ask, REFUSED, str(error).encode())
            return
        self._on_wire += 1
        question = _GROUP.pack(ask.group) + ask.body
        patience = min(ATTEMPT_MS, max(ask.due_at - self.now, 1))
        self._calls.ask(target, ask.kind, question, patience).then(partial(self._on_reply, ask))

    def _target(self, group: int, attempts: int) -> int:
        """Who seems to lead; when nobody is known, one replica after the other."""
        if self.engine.is_leader(group):
            return self.me
        known = self._hints.get(group, 0) or self._leader_of(group)
        if known and known != self.me and attempts % 3 < 2:
            return known
        others = [node for node in self.layout.replicas_of(group) if node != self.me]
        return others[attempts % len(others)] if others else 0

    def _on_reply(self, ask: _Ask, body: bytes | None) -> None:
        self._on_wire -= 1
        if body:
            self._on_answer(ask, body[0], body[1:])
        else:
            self._hints.pop(ask.group, None)
            self._on_answer(ask, LATER, b"")
        while self._line and self._on_wire < ON_WIRE_MAX:
            waiting = self._line.popleft()
            if waiting in self._asks:
                self._attempt(waiting)

    def _on_answer(self, ask: _Ask, code: int, body: bytes) -> None:
        ask.is_out = False
        if ask not in self._asks:
            return
        if code in (OK, REFUSED):
            self._finish(ask, code, body)
            return
        ask.retry_at = self.now + RETRY_MS
        if code == ELSEWHERE and len(body) == 8:
            leader: int = _GROUP.unpack(body)[0]
            self._hint(ask.group, leader)
            ask.hops += 1
            if leader and leader != self.me and ask.hops % HOPS_MAX:
                ask.attempts = 0
                self._attempt(ask)

    def _hint(self, group: int, leader: int) -> None:
        if leader and leader != self.me:
            if len(self._hints) >= HINTS_MAX:
                self._hints = {}
            self._hints[group] = leader
        else:
            self._hints.pop(group, None)

    def _finish(self, ask: _Ask, code: int, body: bytes) -> None:
        self._asks.pop(ask, None)
        ask.reply(code, body)

    def ask_node(
        self, node: int, kind: int, body: bytes, reply: Replied, now: int, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Ask one node; TIMED_OUT when it can't be asked, or says nothing."""
        self.now = now
        if node == self.me:
            try:
                self._serves_node[kind](body, reply)
            except RemoteProtocolError as error:
                reply(REFUSED, str(error).encode())
            return
        self._calls.ask(node, kind, body, timeout_ms).then(partial(_received, reply))

    # Many groups at once.

    def gather(
        self, groups: list[int], kind: int, body: bytes, reply: Gathered, now: int, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Ask the leaders of many groups; ``reply`` is called once, maybe before this returns."""
        self.now = now
        gather = _Gather(kind, body, reply, now + timeout_ms)
        gather.open = dict.fromkeys(groups)
        self._gathers[gather] = None
        self._begin_round(gather)

    def _begin_round(self, gather: _Gather) -> None:
        by_node: dict[int, list[int]] = {}
        for group in gather.open:
            target = self._target(group, gather.attempts)
            if target:
                by_node.setdefault(target, []).append(group)
        gather.attempts += 1
        gather.retry_at = self.now + RETRY_MS
        gather.out = 1  # this round, until all its questions are asked
        for node, chosen in by_node.items():
            for at in range(0, len(chosen), GROUPS_MAX):
                self._ask_round(gather, node, chosen[at : at + GROUPS_MAX])
        self._round_answered(gather)

    def _ask_round(self, gather: _Gather, node: int, groups: list[int]) -> None:
        gather.out += 1
        question = U32.pack(len(groups)) + b"".join([U64.pack(group) for group in groups]) + large(gather.body)
        replied = partial(self._on_round, gather)
        if node == self.me:
            replied(self._speak(gather.kind, question))
        else:
            self._calls.ask(node, gather.kind, question, ATTEMPT_MS).then(replied)

    def _on_round(self, gather: _Gather, body: bytes | None) -> None:
        if body is not None:
            try:
                reader = Reader(body)
                while reader.pos < reader.end:
                    group = reader.u64()
                    gather.found[group] = reader.large(len(body))
                    gather.open.pop(group, None)
            except RemoteProtocolError:
                pass  # what could be read counts
        self._round_answered(gather)

    def _round_answered(self, gather: _Gather) -> None:
        gather.out -= 1
        if gather.out == 0 and not gather.open:
            self._finish_gather(gather)

    def _finish_gather(self, gather: _Gather) -> None:
        if not gather.over:
            gather.over = True
            self._gathers.pop(gather, None)
            gather.reply(gather.found, list(gather.open))

    def tick(self, now: int) -> None:
        """Ask again, or stop asking."""
        self.now = now
        for ask in list(self._asks):
            if ask.due_at <= now:
                self._finish(ask, TIMED_OUT, b"")
            elif not ask.is_out and ask.attempts and ask.retry_at <= now:
                self._attempt(ask)
        for gather in list(self._gathers):
            if gather.due_at <= now:
                self._finish_gather(gather)
            elif gather.out == 0 and gather.retry_at <= now:
                self._begin_round(gather)


def _send(reply: Callable[[bytes | None], None], code: int, body: bytes) -> None:
    reply(bytes((code,)) + body)


def _received(reply: Replied, body: bytes | None) -> None:
    if body:
        reply(body[0], body[1:])
    else:
        reply(TIMED_OUT, b"")
