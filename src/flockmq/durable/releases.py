"""QoS 2 exactly once into the log: what a publisher has not released is in the log with its packet id, until it has.

```
 PUBLISH --> tag(session): the epoch for its record --> append --> note(session, group, ids) --> PUBREC
 PUBREL ---> release(session, ids) --> RELEASE in every group that knows them, committed --> PUBCOMP
 CONNECT, session not here --> wants, collect --> the ids of all partitions --> CONNACK
 session over, clean start --> FORGET, wherever ids of the client are
```
Which group each id went to is known here as long as the session is; another owner learns it by collecting
(``collecting.py``). An id that is not known here went to no partition: there is nothing to wait for. Unless a partition
could not be asked: then nobody can say, its ids are collected again and again, and until that works the session appends
nothing there, and ids that are not known here are not released.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from flockmq.durable.control_bodies import COMMANDS_MAX, FORGET, RELEASE, Statement, encode_statements, read_statements
from flockmq.durable.partition_calls import FORGET_CALL, LATER, OK, RELEASE_CALL
from flockmq.peering.fields import Reader

if TYPE_CHECKING:
    from flockmq.durable.collecting import Collecting, Found
    from flockmq.durable.control import Control
    from flockmq.durable.machines import Machines
    from flockmq.durable.partition_calls import PartitionCalls, Replied
    from flockmq.session.session import Session

RELEASE_MS: Final = 10_000
"""How long a PUBCOMP may take."""
FORGET_RETRY_MS: Final = 1_000
FORGET_ATTEMPTS: Final = 10
FORGETS_MAX: Final = 1_000
"""In one question; a hundred times as many may wait."""

UNSURE_MS: Final = 1_000
UNSURE_MAX: Final = 100
"""Clients for which groups are asked again in one tick."""
SWEEP: Final = 20
"""Sessions looked at in one tick, whether they are still here."""

Released = Callable[[bool], None]
"""True: committed, answer with PUBCOMP. False: nobody can say, close the connection."""


class _Held:
    """Packet ids of a session that are in logs."""

    def __init__(self, epoch: int, session: Session | None) -> None:
        self.epoch = epoch
        self.session = session
        """Whose they are; None until the session that they were collected for is there."""
        self.groups: dict[int, list[int]] = {}
        """Packet id -> groups that know it."""
        self.missing: set[int] = set()
        """Groups that could not be asked."""
        self.waiting: list[tuple[list[int], Released, int]] = []
        """(ids, reply, until when) that depend on them."""


class _Release:
    """Ids that are being released."""

    def __init__(self, held: _Held, ids: list[int], reply: Released) -> None:
        self.held = held
        self.ids = ids
        self.reply = reply
        self.waits = 0
        self.failed = False


class Releases:
    """See the module. Fulfils ``Collector`` of ``peering/claiming.py``. ``alive``: all nodes, this one among them."""

    def __init__(
        self,
        calls: PartitionCalls,
        control: Control,
        machines: Machines,
        collecting: Collecting,
        alive: Callable[[], list[int]],
    ) -> None:
        self._calls = calls
        self._control = control
        self._machines = machines
        self._collecting = collecting
        self._alive = alive
        self._held: dict[str, _Held] = {}
        self._open: dict[int, list[tuple[Statement, _Release | None]]] = {}
        self._unsure: dict[str, int] = {}
        """Clients with groups that could not be asked, and when to ask them again."""
        self._forgets: dict[bytes, int] = {}
        """Clients whose earlier sessions are over, with the epoch from which on ids count."""
        self._again: list[tuple[int, int, bytes, int]] = []
        """(when, node, question, attempts left) of those that did not get through."""
        self.sessions: dict[str, Session] | None = None
        """The sessions of this node; what those that moved away had is forgotten by and by."""
        self._sweep: list[str] = []
        calls.serve(RELEASE_CALL, self._on_release)
        calls.serve_node(FORGET_CALL, self._on_forget)

    # Publishing.

    def may_append(self, session: Session, group: int) -> bool:
        """Whether QoS 2 messages of a session may go to a group: not while nobody knows what is there already.

        False: close the connection; whether a message is in the log can't be told.
        """
        held = self._of(session)
        return held is None or group not in held.missing

    def tag(self, session: Session) -> int:
        """The session epoch for a record with a packet id."""
        return self._hold(session).epoch

    def _hold(self, session: Session) -> _Held:
        held = self._of(session)
        if held is None:
            held = self._held[session.client_id] = _Held(max(session.epoch, 1), session)
        return held

    def _of(self, session: Session) -> _Held | None:
        """What this session has in logs; what an earlier one of its client had does not count."""
        held = self._held.get(session.client_id)
        if held is not None and held.session is None:
            held.session = session
        return held if held is not None and held.session is session else None

    def note(self, session: Session, group: int, ids: list[int]) -> None:
        """Records with these ids were given to a partition."""
        held = self._hold(session)
        for packet_id in ids:
            groups = held.groups.get(packet_id)
            if groups is None:
                held.groups[packet_id] = [group]
            elif group not in groups:
                groups.append(group)

    def drop(self, session: Session, ids: list[int]) -> None:
        """They are certainly not in the log."""
        held = self._of(session)
        if held is not None:
            for packet_id in ids:
                held.groups.pop(packet_id, None)
            self._tidy(session.client_id, held)

    def _tidy(self, client_id: str, held: _Held) -> None:
        """Without ids the next one may have a newer epoch."""
        if not held.groups and not held.missing and self._held.get(client_id) is held:
            del self._held[client_id]

    def release(self, session: Session, ids: list[int], reply: Released, now: int) -> bool:
        """The client releases ids. False: nothing to wait for, ``reply`` is not called. True: it will be, once."""
        held = self._of(session)
        if held is None:
            return False
        self._calls.now = now
        known = [packet_id for packet_id in ids if packet_id in held.groups]
        if held.missing and len(known) < len(ids):
            held.waiting.append((ids, reply, now + RELEASE_MS))
            return True
        if not known:
            return False
        release = _Release(held, known, partial(self._on_done, session.client_id, reply))
        by_group: dict[int, list[int]] = {}
        for packet_id in known:
            for group in held.groups[packet_id]:
                by_group.setdefault(group, []).append(packet_id)
        client = session.client_id.encode()
        release.waits = len(by_group)
        for group, chosen in by_group.items():
            self._say(group, Statement(RELEASE, client, held.epoch, chosen), release)
        return True

    def _on_done(self, client_id: str, reply: Released, done: bool) -> None:
        held = self._held.get(client_id)
        if held is not None:
            self._tidy(client_id, held)
        reply(done)

    def _say(self, group: int, statement: Statement, release: _Release | None) -> None:
        opened = self._open.get(group)
        if opened is None:
            opened = self._open[group] = []
            self._calls.engine.wake()
        opened.append((statement, release))
        if len(opened) >= COMMANDS_MAX:
            self._ask(group, self._calls.now)

    def flush(self, now: int) -> None:
        """A turn ends: tell the leaders."""
        for group in list(self._open):
            self._ask(group, now)

    def _ask(self, group: int, now: int) -> None:
        opened = self._open.pop(group)
        body = encode_statements([statement for statement, _ in opened])
        self._calls.ask(group, RELEASE_CALL, body, partial(_settle, opened), now, RELEASE_MS)

    def _on_release(self, group: int, reader: Reader, answer: Replied) -> None:
        statements = [one for one in read_statements(reader) if one.what in (RELEASE, FORGET)]
        self._control.mark(group, statements, partial(_marked, answer), self._calls.now)

    # Sessions that go on here, or end.

    def wants(self) -> bool:
        """Whether ids have to be collected for a session that was not here."""
        return self._calls.layout.has_groups()

    def collect(self, client_id: str, epoch: int, reply: Callable[[set[int] | None, int], None], now: int) -> None:
        """Find the ids of a client; None: nobody can say."""
        self._calls.now = now
        collected = partial(self._on_collected, client_id, epoch, reply)
        self._collecting.collect(client_id.encode(), epoch, collected, now)

    def _on_collected(
        self,
        client_id: str,
        epoch: int,
        reply: Callable[[set[int] | None, int], None],
        found: Found | None,
        missing: list[int],
        now: int,
    ) -> None:
        if found is None:
            reply(None, now)
            return
        held = _Held(epoch, None)
        held.groups = found
        held.missing = set(missing)
        self._held[client_id] = held
        if missing:
            self._unsure[client_id] = now + UNSURE_MS
        self._tidy(client_id, held)
        reply(set(found), now)

    def _ask_again(self, client_id: str, now: int) -> None:
        """Some groups could not be asked: they may be there again."""
        held = self._held.get(client_id)
        if held is None or not held.missing:
            del self._unsure[client_id]
            return
        self._unsure[client_id] = now + UNSURE_MS
        late = [one for one in held.waiting if one[2] <= now]
        held.waiting = [one for one in held.waiting if one[2] > now]
        for _, reply, _ in late:
            reply(False)
        collected = partial(self._on_collected_again, client_id, held)
        self._collecting.collect(client_id.encode(), held.epoch, collected, now)

    def _on_collected_again(
        self, client_id: str, held: _Held, found: Found | None, missing: list[int], now: int
    ) -> None:
        session = held.session
        if found is None or session is None or self._held.get(client_id) is not held:
            return
        if session.received is None:
            session.received = set()
        for packet_id, groups in found.items():
            fresh = [group for group in groups if group in held.missing and group not in missing]
            if fresh:
                session.received.add(packet_id)
                held.groups.setdefault(packet_id, []).extend(fresh)
        held.missing.intersection_update(missing)
        if held.missing:
            return
        waiting = held.waiting
        held.waiting = []
        for ids, reply, _ in waiting:
            if not self.release(session, ids, reply, now):
                reply(True)
        self._tidy(client_id, held)

    def ended(self, session: Session) -> None:
        """A session is over: its ids mean nothing any more."""
        held = self._of(session)
        if held is None:
            return
        del self._held[session.client_id]
        groups = {group for known in held.groups.values() for group in known}
        epoch = max(held.epoch, session.epoch) + 1
        for group in sorted(groups):
            self._say(group, Statement(FORGET, session.client_id.encode(), epoch, []), None)

    def begins_anew(self, client_id: str, epoch: int, now: int) -> None:
        """A client starts clean: ids that an owner which died may have left are void."""
        if self._calls.layout.has_groups() and len(self._forgets) < FORGETS_MAX * 100:
            self._calls.now = now
            self._forgets[client_id.encode()] = epoch

    def _send_forgets(self, now: int) -> None:
        items = list(self._forgets.items())
        self._forgets = {}
        for at in range(0, len(items), FORGETS_MAX):
            statements = [Statement(FORGET, client, epoch, []) for client, epoch in items[at : at + FORGETS_MAX]]
            body = encode_statements(statements)
            for node in self._alive():
                self._forget_at_node(node, body, FORGET_ATTEMPTS, now)

    def _forget_at_node(self, node: int, body: bytes, attempts: int, now: int) -> None:
        replied = partial(self._on_forgotten, node, body, attempts)
        self._calls.ask_node(node, FORGET_CALL, body, replied, now)

    def _on_forgotten(self, node: int, body: bytes, attempts: int, code: int, answer: bytes) -> None:  # noqa: ARG002
        if code != OK and attempts > 1 and node in self._alive():
            self._again.append((self._calls.now + FORGET_RETRY_MS, node, body, attempts - 1))

    def _on_forget(self, body: bytes, answer: Replied) -> None:
        """Forget these clients in all groups that this node leads; LATER when another one has to do a part of it."""
        statements = read_statements(Reader(body))
        by_group: dict[int, list[Statement]] = {}
        engine = self._calls.engine
        alive = set(self._alive())
        is_all = True
        for statement in statements:
            for group in self._machines.by_client.get(statement.client, ()):
                if engine.is_leader(group):
                    by_group.setdefault(group, []).append(Statement(FORGET, statement.client, statement.epoch, []))
                elif engine.leader_of(group) not in alive:
                    is_all = False
        for group, chosen in by_group.items():
            self._control.mark(group, chosen, _ignore, self._calls.now)
        answer(OK if is_all else LATER, b"")

    def tick(self, now: int) -> None:
        """Tell what has to be told again."""
        self._calls.now = now
        if self._forgets:
            self._send_forgets(now)
        for client_id in list(islice(self._unsure, UNSURE_MAX)):
            if self._unsure[client_id] <= now:
                self._ask_again(client_id, now)
        self._sweep_some()
        again = self._again
        if again and again[0][0] <= now:
            self._again = [one for one in again if one[0] > now]
            for due_at, node, body, attempts in again:
                if due_at <= now:
                    self._forget_at_node(node, body, attempts, now)

    def _sweep_some(self) -> None:
        sessions = self.sessions
        if sessions is None:
            return
        if not self._sweep:
            self._sweep = list(self._held)
        for _ in range(min(SWEEP, len(self._sweep))):
            client_id = self._sweep.pop()
            held = self._held.get(client_id)
            if held is not None and held.session is not None and sessions.get(client_id) is not held.session:
                del self._held[client_id]


def _marked(answer: Replied, done: bool) -> None:
    answer(OK if done else LATER, b"")


def _ignore(done: bool) -> None:
    """It is tried again when the client connects anew."""


def _settle(opened: list[tuple[Statement, _Release | None]], code: int, body: bytes) -> None:  # noqa: ARG001
    for statement, release in opened:
        if release is None:
            continue
        release.waits -= 1
        if code != OK:
            release.failed = True
        else:
            for packet_id in statement.ids:
                release.held.groups.pop(packet_id, None)
        if release.waits == 0:
            release.reply(not release.failed)
