"""Which QoS 2 packet ids of a client wait for their PUBREL, over all partitions: asked before a session goes on here.

```
 here: collect(client, epoch) ... flush --> one round for all clients of a turn --> every node that is alive
 there: fence the clients; messages of theirs that are on their way from there: their groups' logs are told first, and
        then the whole round is made again
        in all groups that it leads, and a quorum says so: wait until everything that is in the log now is applied
        groups that know ids: ADOPT them for the new owner, wait until that is applied as well
        answer: which groups these were, and the ids
 here: every group answered for? --> the ids, each with the groups that know it
             `-- not yet: again, until ``COLLECT_MS`` is over, then the ids are not known
```
What was answered for once need not be asked again: the fences stand. They are in memory, though, and a leader that was
not there has none: so groups that an older owner may still send something to have the new epoch in their logs.

A group that can have no leader, because a majority of its replicas is not alive, or that has had none for
``LEADERLESS_MS``, must not keep all clients of the cluster out: the answer says that it is missing, so does an event,
and the client can do all that does not depend on it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import OK, Reply
from flockmq.durable.machine.control_bodies import ADOPT, Statement, encode_statements
from flockmq.errors import RemoteProtocolError
from flockmq.peering.fields import U16, U32, U64, Reader, sized
from flockmq.peering.kinds import RELEASE_CALL, UNRELEASED_CALL
from flockmq.raft.speaking import is_followed, knows_all, near
from flockmq.raft.state import LEADER
from flockmq.tasks import Promise

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.fences import Fences
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.state.facts import Membership
    from flockmq.node.events import EventList
    from flockmq.raft.entry import Entry
    from flockmq.tasks import Task

COLLECT_MS: Final = 3_000
ANSWER_MS: Final = 1_000
"""How long a node waits for its groups before it answers without those that are not ready."""
TELL_MS: Final = 600
"""How long the leaders of groups that messages are on their way to may take to hear of a new epoch."""
TOLD_MAX: Final = 10_000
"""Clients and groups that were told so, remembered."""
RETRY_MS: Final = 200
LEADERLESS_MS: Final = 15_000
NOTE_MS: Final = 60_000
"""An event about missing groups at most so often."""
GAP_MS: Final = 20
"""Between two rounds: many clients that connect share one."""
CLIENTS_MAX: Final = 1_000
"""In one round."""
ROUNDS_MAX: Final = 64
GROUPS_MAX: Final = 1 << 20

Found = dict[int, list[int]]
"""Packet id -> groups that know it."""
Collected = Callable[[Found | None, list[int], int], None]
"""(what was found, groups that could not be asked, now); None: the ids are not known."""


class _Client:
    """A client whose ids are asked for."""

    def __init__(self, client: bytes, epoch: int, reply: Collected) -> None:
        self.client = client
        self.epoch = epoch
        self.reply = reply
        self.found: dict[int, list[int]] = {}
        """Group -> ids."""


class _Round:
    """Clients that are asked for together."""

    def __init__(self, clients: list[_Client], groups: list[int], due_at: int) -> None:
        self.clients = clients
        self.groups = groups
        """All that there were when it began: later ones can't know older ids."""
        self.due_at = due_at
        self.covered: set[int] = set()
        self.uncertain: set[int] = set()
        """Something of an older owner may still arrive there."""
        self.must_repeat = False
        """Some logs heard of the new epoch only now: they may know more than was answered."""
        self.out = 0
        self.retry_at = 0
        self.is_over = False


class _Job:
    """A round of another node (or of this one) that is being answered."""

    def __init__(self, clients: list[tuple[bytes, int]], due_at: int) -> None:
        self.clients = clients
        self.answer: Promise[Reply] = Promise()
        self.due_at = due_at
        self.covered: dict[int, None] = {}
        self.waiting: dict[int, tuple[int, int]] = {}
        """Group -> the entry that has to be applied first, and the term in which this node leads."""
        self.unconfirmed: set[int] = set()
        """Those of them whose quorum has not said yet that this node leads."""
        self.marks = 0
        self.has_marked = False
        self.telling = 0
        """Groups that are being told of the new epoch,"""
        self.told = 0
        """that have been,"""
        self.untold: dict[int, None] = {}
        """and that are not known to have been."""


class Collecting:
    """See the module. A listener of ``Machines``. ``members``: nodes to ask."""

    def __init__(
        self,
        calls: PartitionCalls,
        control: Control,
        machines: Machines,
        fences: Fences,
        events: EventList,
        members: Membership,
        under_way: Callable[[], dict[bytes, set[int]]] = dict,
    ) -> None:
        """``under_way``: groups that messages of this node are on their way to, by client."""
        self._calls = calls
        self._control = control
        self._machines = machines
        self._fences = fences
        self._events = events
        self._members = members
        self._under_way = under_way
        self._told: dict[tuple[bytes, int], int] = {}
        """(client, group) -> the epoch that the group's log was told of from here."""
        self._fresh: list[_Client] = []
        self._rounds: list[_Round] = []
        self._jobs: dict[_Job, None] = {}
        self._waiting: dict[int, dict[_Job, None]] = {}
        """By group: jobs that wait for it."""
        self._leaderless: dict[int, int] = {}
        """Groups that no node answered for, and since when."""
        self._note_at = 0
        self._round_at = 0
        calls.serve_replica(UNRELEASED_CALL, self._on_question)

    # Here.

    def collect(self, client: bytes, epoch: int, reply: Collected, now: int) -> None:
        """Find the ids of a client whose owner this node is from ``epoch`` on."""
        if len(self._fresh) >= CLIENTS_MAX * ROUNDS_MAX:
            reply(None, [], now)
            return
        self._fresh.append(_Client(client, epoch, reply))
        self._calls.engine.wake()

    def flush(self, now: int) -> None:
        """A turn ends: ask for all clients that it brought. Rounds cost every node a look at all its groups."""
        if not self._fresh or now < self._round_at:
            return
        self._round_at = now + GAP_MS
        while self._fresh and len(self._rounds) < ROUNDS_MAX:
            one = _Round(self._fresh[:CLIENTS_MAX], self._calls.layout.groups(), now + COLLECT_MS)
            del self._fresh[:CLIENTS_MAX]
            self._rounds.append(one)
            self._begin(one, now)

    def _begin(self, one: _Round, now: int) -> None:
        parts = [sized(client.client) + U64.pack(client.epoch) for client in one.clients]
        question = U32.pack(len(parts)) + b"".join(parts)
        nodes = self._members.alive()
        one.uncertain = set()
        one.out = len(nodes) + 1
        one.retry_at = now + RETRY_MS
        for node in nodes:
            answer = self._calls.ask_replica(node, UNRELEASED_CALL, question, ANSWER_MS + RETRY_MS)
            answer.then(partial(self._on_answer, one))
        self._answered(one)

    def _on_answer(self, one: _Round, reply: Reply) -> None:
        if reply.code == OK and not one.is_over:
            with suppress(RemoteProtocolError):  # as if it had said nothing: its groups are not answered for
                self._read_answer(one, Reader(reply.body))
        self._answered(one)

    def _read_answer(self, one: _Round, reader: Reader) -> None:
        count = reader.count(GROUPS_MAX, 4)
        covered: tuple[int, ...] = struct.unpack_from(f"<{count}I", reader.data, reader.skip(4 * count))
        for client in one.clients:
            for _ in range(reader.count(GROUPS_MAX, 10)):
                group = reader.u64()
                client.found[group] = [reader.u16() for _ in range(reader.u16())]
        one.covered.update(covered)
        one.must_repeat = bool(reader.u8()) or one.must_repeat
        for _ in range(reader.count(GROUPS_MAX, 8)):
            one.uncertain.add(reader.u64())

    def _answered(self, one: _Round) -> None:
        one.out -= 1
        if one.out or one.is_over:
            return
        if one.must_repeat:
            one.must_repeat = False
            one.covered = set()
            for client in one.clients:
                client.found = {}
            self._begin(one, self._calls.now)
            return
        for group in list(self._leaderless):
            if group in one.covered or not self._calls.layout.replicas_of(group):
                del self._leaderless[group]
        missing = [group for group in one.groups if group not in one.covered or group in one.uncertain]
        if missing and not self._can_do_without(missing):
            return  # again in a moment
        if missing and self._calls.now >= self._note_at:
            self._note_at = self._calls.now + NOTE_MS
            self._events.note("unreleased_not_known", {"groups": len(missing), "clients": len(one.clients)})
        self._end(one, missing, True)

    def _can_do_without(self, missing: list[int]) -> bool:
        alive = set(self._members.alive())
        now = self._calls.now
        can = True
        for group in missing:
            replicas = self._calls.layout.replicas_of(group)
            if len(alive.intersection(replicas)) * 2 > len(replicas):
                since = self._leaderless.setdefault(group, now)
                can = can and now - since >= LEADERLESS_MS
        return can

    def _end(self, one: _Round, missing: list[int], is_known: bool) -> None:
        one.is_over = True
        if one in self._rounds:
            self._rounds.remove(one)
        for client in one.clients:
            if not is_known:
                client.reply(None, [], self._calls.now)
                continue
            found: Found = {}
            for group in sorted(client.found):
                for packet_id in client.found[group]:
                    found.setdefault(packet_id, []).append(group)
            client.reply(found, missing, self._calls.now)

    # There.

    def _on_question(self, body: bytes) -> Task[Reply]:
        reader = Reader(body)
        clients: list[tuple[bytes, int]] = []
        for _ in range(reader.count(CLIENTS_MAX, 10)):
            client = reader.sized()
            clients.append((client, reader.number()))
        reader.finish()
        now = self._calls.now
        for client, epoch in clients:
            self._fences.note(client, epoch, now)
        job = _Job(clients, now + ANSWER_MS)
        self._jobs[job] = None
        to_tell = self._to_tell(clients)
        job.telling = len(to_tell)
        for group, statements in to_tell.items():
            told = self._calls.ask_leader(group, RELEASE_CALL, encode_statements(statements), TELL_MS)
            told.then(partial(self._on_told, job, group, statements))
        if not to_tell:
            self._wait_for_groups(job)
        return (yield from job.answer)

    def _to_tell(self, clients: list[tuple[bytes, int]]) -> dict[int, list[Statement]]:
        """Groups that messages of these clients are on their way to, and what their logs have to hear."""
        by_group: dict[int, list[Statement]] = {}
        under_way = self._under_way()
        for client, epoch in clients:
            for group in sorted(under_way.get(client, ())):
                if not self.is_told(client, group, epoch):
                    by_group.setdefault(group, []).append(Statement(ADOPT, client, epoch, []))
        return by_group

    def _on_told(self, job: _Job, group: int, statements: list[Statement], reply: Reply) -> None:
        job.telling -= 1
        if reply.code == OK:
            job.told += 1
            for statement in statements:
                self._told.pop((statement.client, group), None)
                self._told[(statement.client, group)] = statement.epoch
            while len(self._told) > TOLD_MAX:
                del self._told[next(iter(self._told))]
        else:
            job.untold[group] = None
        if not job.telling:
            self._wait_for_groups(job)

    def is_told(self, client: bytes, group: int, epoch: int) -> bool:
        """Whether the log of a group says that older epochs of a client count no more."""
        return self._told.get((client, group), 0) >= epoch

    def _wait_for_groups(self, job: _Job) -> None:
        """A leader that was cut off, and does not know of the next one, must not speak for its group.

        A group at work has its quorum asked. To wake all others for every client would cost too much: of a quiet one it
        is enough that its members were heard all the time, up to now: they wait long before they elect another leader.
        """
        engine = self._calls.engine
        host = engine.host
        nearby = near(host, self._calls.now)
        heard = {host.node_id, *nearby}
        for group, machine in self._machines.by_group.items():
            node = host.groups.get(group)
            if node is None or node.state.role != LEADER or group in host.broken:
                continue
            state = node.state
            if state.quiet and not state.configuration.has_quorum(heard):
                continue
            is_certain = state.quiet and is_followed(state, nearby)
            if is_certain and machine.applied >= state.log.last_index and knows_all(state):
                job.covered[group] = None
                continue
            job.waiting[group] = (state.log.last_index, state.term)
            self._waiting.setdefault(group, {})[job] = None
            if not is_certain:
                job.unconfirmed.add(group)
        for group in list(job.unconfirmed):
            engine.read(group, partial(self._on_confirmed, job, group), self._calls.now)
        self._look_at(job)

    def _on_confirmed(self, job: _Job, group: int, is_leader: bool) -> None:
        job.unconfirmed.discard(group)
        if group not in job.waiting:
            return
        if is_leader:
            self._cover(job, group)
        else:
            self._stop_waiting(job, group)
            self._look_at(job)

    def _cover(self, job: _Job, group: int) -> None:
        """Speak for a group, if all that was to be waited for is there."""
        target, term = job.waiting[group]
        if group in job.unconfirmed or self._machines.by_group[group].applied < target:
            return
        if self._leads(group, term):
            job.covered[group] = None
        self._stop_waiting(job, group)
        self._look_at(job)

    def applied(self, group: int, entries: list[Entry]) -> None:  # noqa: ARG002
        """A group has moved on."""
        waiting = self._waiting.get(group)
        if waiting is None:
            return
        for job in list(waiting):
            self._cover(job, group)

    def _leads(self, group: int, term: int) -> bool:
        engine = self._calls.engine
        return engine.is_leader(group) and engine.host.groups[group].state.term == term

    def _stop_waiting(self, job: _Job, group: int) -> None:
        job.waiting.pop(group, None)
        waiting = self._waiting.get(group)
        if waiting is not None:
            waiting.pop(job, None)
            if not waiting:
                del self._waiting[group]

    def closed(self, group: int) -> None:
        """A group was closed: no job can wait for it here."""
        for job in list(self._waiting.get(group, {})):
            self._stop_waiting(job, group)
            self._look_at(job)

    def _look_at(self, job: _Job) -> None:
        """Go on with a job as far as it is."""
        if job.waiting or job.telling or job not in self._jobs:
            return
        if not job.has_marked:
            job.has_marked = True
            self._adopt(job)
        if job.marks == 0:
            del self._jobs[job]
            job.answer.set(Reply(OK, self._encode(job)))

    def _adopt(self, job: _Job) -> None:
        """Let the logs of all groups that know ids name their owner now."""
        by_group: dict[int, list[Statement]] = {}
        for client, epoch in job.clients:
            for group in self._machines.by_client.get(client, ()):
                if group in job.covered:
                    by_group.setdefault(group, []).append(Statement(ADOPT, client, epoch, []))
        job.marks = len(by_group) + 1
        for group, statements in by_group.items():
            self._control.mark(group, statements, self._calls.now).then(partial(self._on_adopted, job, group))
        job.marks -= 1

    def _on_adopted(self, job: _Job, group: int, done: bool) -> None:
        job.marks -= 1
        if not done:
            job.covered.pop(group, None)
        self._look_at(job)

    def _encode(self, job: _Job) -> bytes:
        count = len(job.covered)
        parts = [U32.pack(count), struct.pack(f"<{count}I", *job.covered)]
        for client, epoch in job.clients:
            rows: list[bytes] = []
            for group in sorted(self._machines.by_client.get(client, ())):
                known = self._machines.by_group[group].unreleased(client)
                if group in job.covered and known is not None and known.epoch <= epoch:
                    ids = b"".join([U16.pack(packet_id) for packet_id in sorted(known.ids)])
                    rows.append(U64.pack(group) + U16.pack(len(known.ids)) + ids)
            parts.append(U32.pack(len(rows)))
            parts += rows
        parts.append(bytes((job.told > 0,)) + U32.pack(len(job.untold)))
        parts += [U64.pack(group) for group in job.untold]
        return b"".join(parts)

    def tick(self, now: int) -> None:
        """Ask again, or stop waiting."""
        for job in [job for job in self._jobs if job.due_at <= now]:
            for group in list(job.waiting):
                self._stop_waiting(job, group)
            self._look_at(job)
        for one in list(self._rounds):
            if one.due_at <= now:
                self._end(one, [], False)
            elif one.out == 0 and one.retry_at <= now:
                self._begin(one, now)
        self.flush(now)
