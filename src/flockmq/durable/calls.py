"""Questions about partitions, from any node to the one that leads, or to one that is named.

```
 ask_leader(group, kind, body) --> the node that seems to lead --> OK answer | ELSEWHERE: ask that one | LATER | REFUSED
                                      ^---- again after RETRY_MS, until ``timeout_ms`` is over ----'
                                   a leader that does not know yet all that is committed says LATER
 ask_leaders(groups, kind, body) -> one question per node for all groups that it seems to lead; groups of a node that
                                   does not lead them for certain (``raft/speaking.py``) are asked again
 ask_replica(node_id, kind, body) -> that very node
```
A question to this node itself takes the same way without the network. Everything that waits is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U32, U64, Reader, large
from flockmq.raft.speaking import speaking_for
from flockmq.tasks import Promise, Sleep, Task, promised, within

if TYPE_CHECKING:
    from flockmq.durable.state.layout import Layout
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine

OK: Final = 0
ELSEWHERE: Final = 1
LATER: Final = 2
REFUSED: Final = 3
"""The answer is a sentence that says why."""
TIMED_OUT: Final = 4
"""No answer came in time; never sent."""

TIMEOUT_MS: Final = 3_000
ATTEMPT_MS: Final = 1_000
RETRY_MS: Final = 100
HOPS_MAX: Final = 4
"""Nodes that are asked in a row before waiting a moment."""
ASKS_MAX: Final = 20_000
"""Questions to leaders that wait for their answer; each takes at most ``TASKS_PER_ASK`` tasks of this node."""
TASKS_PER_ASK: Final = 3
ON_WIRE_MAX: Final = 400
HINTS_MAX: Final = 20_000
GROUPS_MAX: Final = 1_024
ANSWER_BYTES_MAX: Final = 512 * 1_024


class Reply(NamedTuple):
    """What a question came to."""

    code: int
    """OK, REFUSED or TIMED_OUT; from a handler also LATER."""
    body: bytes = b""
    """The answer; for REFUSED a sentence that says why."""


class Gathered(NamedTuple):
    """What a question about many groups came to."""

    found: dict[int, bytes]
    """Answers by group."""
    missing: list[int]
    """Groups whose leader did not answer in time."""


ServeLeader = Callable[[int, Reader], Task[Reply] | Reply]
"""(group, question) at the group's leader."""
ServeReplica = Callable[[bytes], Task[Reply] | Reply]
"""(question) at the node that was asked."""
ServeEach = Callable[[int, Reader], bytes | None]
"""(group, question) at the group's leader, answered at once; None: not now."""


class PartitionCalls:
    """See the module."""

    def __init__(self, me: int, engine: RaftEngine, calls: Calls, layout: Layout) -> None:
        self.me = me
        self.engine = engine
        self.layout = layout
        self.tasks = calls.tasks
        self._calls = calls
        self._serves: dict[int, ServeLeader] = {}
        self._serves_each: dict[int, ServeEach] = {}
        self._serves_replica: dict[int, ServeReplica] = {}
        self._hints: dict[int, int] = {}
        """Group -> the node that was said to lead it."""
        self._asks = 0
        self._on_wire = 0
        self._line: dict[Promise[None], None] = {}
        """Questions that wait because too many are on the wire."""

    @property
    def now(self) -> int:
        """The present."""
        return self.tasks.now

    @now.setter
    def now(self, now: int) -> None:
        self.tasks.now = now

    # Answers.

    def serve_leader(self, kind: int, handler: ServeLeader) -> None:
        """Answer questions to the leader of a group."""
        self._serves[kind] = handler
        self._calls.serve_task(kind, partial(self._on_question, kind))

    def serve_each(self, kind: int, handler: ServeEach) -> None:
        """Answer, at once, a question about many groups, for each group that this node leads."""
        self._serves_each[kind] = handler
        self._calls.serve(kind, partial(self._speak, kind))

    def serve_replica(self, kind: int, handler: ServeReplica) -> None:
        """Answer questions to this very node."""
        self._serves_replica[kind] = handler
        self._calls.serve_task(kind, partial(self._on_replica_question, kind))

    def _on_question(self, kind: int, peer: int, body: bytes) -> Task[bytes]:  # noqa: ARG002
        reader = Reader(body)
        reply = yield from self._handle(kind, reader.u64(), reader)
        return bytes((reply.code,)) + reply.body

    def _on_replica_question(self, kind: int, peer: int, body: bytes) -> Task[bytes]:  # noqa: ARG002
        reply = yield from self._handle_here(kind, body)
        return bytes((reply.code,)) + reply.body

    def _handle(self, kind: int, group: int, reader: Reader) -> Task[Reply]:
        if not self.engine.is_leader(group):
            return Reply(ELSEWHERE, U64.pack(self._leader_of(group)))
        if not self.engine.knows_all(group):
            return Reply(LATER)
        return (yield from _told(self._serves[kind](group, reader)))

    def _handle_here(self, kind: int, body: bytes) -> Task[Reply]:
        return (yield from _told(self._serves_replica[kind](body)))

    def _leader_of(self, group: int) -> int:
        leader = self.engine.leader_of(group)
        return 0 if leader == self.me else leader

    def _speak(self, kind: int, body: bytes) -> bytes:
        reader = Reader(body)
        groups = [reader.u64() for _ in range(reader.count(GROUPS_MAX, 8))]
        rest = reader.large(len(body))
        parts: list[bytes] = []
        size = 0
        for group in speaking_for(self.engine.host, groups, self.now):
            found = self._serves_each[kind](group, Reader(rest))
            if found is None:
                continue
            size += len(found) + 12
            if parts and size > ANSWER_BYTES_MAX:
                break  # the others are asked for again
            parts.append(U64.pack(group) + large(found))
        return b"".join(parts)

    # Questions to one node.

    def ask_leader(self, group: int, kind: int, body: bytes, timeout_ms: int = TIMEOUT_MS) -> Promise[Reply]:
        """Ask the leader of a group."""
        if self._asks >= ASKS_MAX:
            return promised(Reply(REFUSED, b"Too many questions wait for answers on this node; try again."))
        self._asks += 1  # now: within a task the first step comes later
        question = self._ask_leader(group, kind, body, self.now + timeout_ms)
        return self.tasks.start(f"question {kind} to the leader of group {group}", question)

    def _ask_leader(self, group: int, kind: int, body: bytes, due_at: int) -> Task[Reply]:
        attempts = hops = 0
        try:
            while self.now < due_at:
                target = self._target(group, attempts)
                attempts += 1
                reply = yield from self._attempt(target, group, kind, body, due_at)
                if reply.code in (OK, REFUSED):
                    return reply
                if reply.code == ELSEWHERE and len(reply.body) == 8:
                    leader = self._hint(group, U64.unpack(reply.body)[0])
                    hops += 1
                    if leader and hops % HOPS_MAX:
                        attempts = 0
                        continue
                yield Sleep(max(min(RETRY_MS, due_at - self.now), 0))
        finally:
            self._asks -= 1
        return Reply(TIMED_OUT)

    def _target(self, group: int, attempts: int) -> int:
        """The node that seems to lead; when none is known, one replica after the other; 0: none can be asked."""
        if self.engine.is_leader(group):
            return self.me
        known = self._hints.get(group, 0) or self._leader_of(group)
        if known and known != self.me and attempts % 3 < 2:
            return known
        others = [node for node in self.layout.replicas_of(group) if node != self.me]
        return others[attempts % len(others)] if others else 0

    def _hint(self, group: int, leader: int) -> int:
        """Remember which node is said to lead; 0: none, or this one, which knows better."""
        if not leader or leader == self.me:
            self._hints.pop(group, None)
            return 0
        if len(self._hints) >= HINTS_MAX:
            self._hints = {}
        self._hints[group] = leader
        return leader

    def _attempt(self, target: int, group: int, kind: int, body: bytes, due_at: int) -> Task[Reply]:
        if target == self.me:
            return (yield from self._ask_here(self._handle(kind, group, Reader(body)), due_at - self.now))
        if not target or not (yield from self._room_on_wire(due_at)):
            return Reply(LATER)
        self._on_wire += 1
        patience = min(ATTEMPT_MS, max(due_at - self.now, 1))
        found = yield from self._calls.ask(target, kind, U64.pack(group) + body, patience)
        self._on_wire -= 1
        self._let_next_ask()
        if found:
            return Reply(found[0], found[1:])
        self._hints.pop(group, None)
        return Reply(LATER)

    def _ask_here(self, handler: Task[Reply], timeout_ms: int) -> Task[Reply]:
        try:
            found = yield from within(self.tasks.start("a question of this node to itself", handler), timeout_ms)
        except RemoteProtocolError as error:
            return Reply(REFUSED, str(error).encode())
        return found or Reply(TIMED_OUT)

    def _room_on_wire(self, due_at: int) -> Task[bool]:
        if self._on_wire < ON_WIRE_MAX:
            return True
        turn: Promise[None] = Promise()
        self._line[turn] = None
        yield from within(turn, due_at - self.now)
        self._line.pop(turn, None)
        return turn.is_set

    def _let_next_ask(self) -> None:
        if self._line and self._on_wire < ON_WIRE_MAX:
            turn = next(iter(self._line))
            del self._line[turn]
            turn.set(None)

    def ask_replica(self, node_id: int, kind: int, body: bytes, timeout_ms: int = TIMEOUT_MS) -> Promise[Reply]:
        """Ask one node; TIMED_OUT when it can't be asked, or says nothing."""
        return self.tasks.start(f"question {kind} to a node", self._ask_replica(node_id, kind, body, timeout_ms))

    def _ask_replica(self, node_id: int, kind: int, body: bytes, timeout_ms: int) -> Task[Reply]:
        if node_id == self.me:
            return (yield from self._ask_here(self._handle_here(kind, body), timeout_ms))
        found = yield from self._calls.ask(node_id, kind, body, timeout_ms)
        return Reply(found[0], found[1:]) if found else Reply(TIMED_OUT)

    # Questions to many nodes.

    def ask_leaders(self, groups: list[int], kind: int, body: bytes, timeout_ms: int = TIMEOUT_MS) -> Promise[Gathered]:
        """Ask the leaders of many groups."""
        question = self._ask_leaders(dict.fromkeys(groups), kind, body, self.now + timeout_ms)
        return self.tasks.start(f"question {kind} to many leaders", question)

    def _ask_leaders(self, left: dict[int, None], kind: int, body: bytes, due_at: int) -> Task[Gathered]:
        found: dict[int, bytes] = {}
        attempts = 0
        while left and self.now < due_at:
            for answer in self._ask_round(left, attempts, kind, body):
                told = yield from within(answer, due_at - self.now)
                found.update(_read_answers(told or b""))
            left = {group: None for group in left if group not in found}
            attempts += 1
            if left:
                yield Sleep(max(min(RETRY_MS, due_at - self.now), 0))
        return Gathered(found, list(left))

    def _ask_round(self, groups: dict[int, None], attempts: int, kind: int, body: bytes) -> list[Promise[bytes | None]]:
        by_node: dict[int, list[int]] = {}
        for group in groups:
            target = self._target(group, attempts)
            if target:
                by_node.setdefault(target, []).append(group)
        answers: list[Promise[bytes | None]] = []
        for node_id, chosen in by_node.items():
            for at in range(0, len(chosen), GROUPS_MAX):
                some = chosen[at : at + GROUPS_MAX]
                question = U32.pack(len(some)) + b"".join([U64.pack(group) for group in some]) + large(body)
                if node_id == self.me:
                    answers.append(promised(self._speak(kind, question)))
                else:
                    answers.append(self._calls.ask(node_id, kind, question, ATTEMPT_MS))
        return answers


def _told(reply: Task[Reply] | Reply) -> Task[Reply]:
    return reply if isinstance(reply, Reply) else (yield from reply)


def _read_answers(body: bytes) -> dict[int, bytes]:
    """Answers by group; what can't be read is left out."""
    found: dict[int, bytes] = {}
    try:
        reader = Reader(body)
        while reader.pos < reader.end:
            group = reader.u64()
            found[group] = reader.large(len(body))
    except RemoteProtocolError:
        pass
    return found
