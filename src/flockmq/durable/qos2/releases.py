"""QoS 2 exactly once into the log: what a publisher has not released is in the log with its packet id, until it has.

```
 PUBLISH --> tag(session): the epoch for its record --> append --> note(session, group, ids) --> PUBREC
 PUBREL ---> release(session, ids) --> RELEASE in every group that knows them, committed --> PUBCOMP
 CONNECT, session not here --> wants, collect --> the ids of all partitions --> CONNACK
 session over, clean start --> FORGET, wherever ids of the client are
```
Which group each id went to is known here as long as the session is; another owner learns it by collecting
(``collecting.py``). An id that is not known here went to no partition: there is nothing to wait for. Unless a partition
could not be asked: then its ids are collected again and again, and until that works the session appends
nothing there, and ids that are not known here are not released.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, Reply
from flockmq.durable.machine.control_bodies import (
    ADOPT,
    COMMANDS_MAX,
    FORGET,
    RELEASE,
    Statement,
    encode_statements,
    read_statements,
)
from flockmq.durable.publish.answers import Unsettled
from flockmq.durable.publish.unsettled import settle_late
from flockmq.durable.qos2.forgetting import Forgetting
from flockmq.peering.fields import Reader
from flockmq.peering.kinds import RELEASE_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.qos2.collecting import Collecting, Found
    from flockmq.durable.state.facts import Membership
    from flockmq.session.session import Session
    from flockmq.tasks import Task

RELEASE_MS: Final = 10_000
"""How long a PUBCOMP may take."""

WAITING_MAX: Final = 1_000
"""Releases of a client that wait for groups which could not be asked."""
UNSURE_MS: Final = 1_000
UNSURE_MAX: Final = 100
"""Clients for which groups are asked again in one tick."""
SWEEP: Final = 20
"""Sessions looked at in one tick, whether they are still here."""

Released = Callable[[bool], None]
"""True: committed, answer with PUBCOMP. False: that is not known, close the connection."""


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
        self.doubtful: dict[int, Unsettled] = {}
        """Ids of messages that were on their way when the session came back, and may or may not arrive, as
        ``Session.unsettled`` has them."""

    def set_in_doubt(self, is_in_doubt: bool) -> None:
        """Whether only the logs can say what the doubtful ids mean."""
        for unsettled in self.doubtful.values():
            unsettled.is_in_doubt = is_in_doubt

    def has_doubts(self) -> bool:
        """Whether some of those have no outcome yet."""
        known = (self.session.unsettled if self.session is not None else None) or {}
        self.doubtful = {one: unsettled for one, unsettled in self.doubtful.items() if known.get(one) is unsettled}
        return bool(self.doubtful)


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
        members: Membership,
        sessions: dict[str, Session] | None = None,
    ) -> None:
        """``sessions``: those of this node; what sessions that moved away had is forgotten by and by."""
        self._calls = calls
        self._control = control
        self._collecting = collecting
        self._held: dict[str, _Held] = {}
        self._open: dict[int, list[tuple[Statement, _Release | None]]] = {}
        self._unsure: dict[str, int] = {}
        """Clients with groups that could not be asked, and when to ask them again."""
        self._forgetting = Forgetting(calls, control, machines, members)
        self._sessions = sessions
        self._sweep: list[str] = []
        calls.serve_leader(RELEASE_CALL, self._on_release)

    # Publishing.

    def may_append(self, session: Session, group: int) -> bool:
        """Whether QoS 2 messages of a session may go to a group: not while it is not known what is there already, nor
        while earlier ones are on their way that may have to come again, and would come behind these.

        False: close the connection; whether a message is in the log can't be told.
        """
        held = self._of(session)
        return held is None or (group not in held.missing and not held.has_doubts())

    def tag(self, session: Session) -> int:
        """The session epoch for a record with a packet id."""
        return self._hold(session).epoch

    def _hold(self, session: Session) -> _Held:
        held = self._of(session)
        if held is None:
            client_id = session.client_id
            epoch = max(session.epoch, 1)
            self._void(client_id, self._take_ended(client_id), epoch)
            held = self._held[client_id] = _Held(epoch, session)
        return held

    def _take_ended(self, client_id: str) -> _Held | None:
        """What a session of this client that is over had in logs, if that is still to be forgotten."""
        held = self._held.get(client_id)
        if held is None or held.session is None or not held.session.is_over:
            return None
        del self._held[client_id]
        return held

    def _void(self, client_id: str, held: _Held | None, epoch: int) -> None:
        """Have logs forget what a session had there; from ``epoch`` on ids count."""
        if held is not None:
            for group in sorted({group for groups in held.groups.values() for group in groups}):
                self._say(group, Statement(FORGET, client_id.encode(), epoch, []), None)

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

    def known(self, session: Session) -> set[int]:
        """See ``ReleasePort``."""
        held = self._of(session)
        return set() if held is None else set(held.groups)

    def _tidy(self, client_id: str, held: _Held) -> None:
        """Without ids the next one may have a newer epoch."""
        if held.groups or held.missing or self._held.get(client_id) is not held:
            return
        if not (held.doubtful if held.session is None else held.has_doubts()):
            del self._held[client_id]

    def release(self, session: Session, ids: list[int], reply: Released, now: int) -> bool:
        """The client releases ids. False: nothing to wait for, ``reply`` is not called. True: it will be, once."""
        held = self._of(session)
        if held is None:
            return False
        self._calls.now = now
        known = [packet_id for packet_id in ids if packet_id in held.groups]
        if held.missing and len(known) < len(ids):
            if len(held.waiting) >= WAITING_MAX:
                reply(False)
                return True
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
            self._ask(group)

    def flush(self, now: int) -> None:
        """A turn ends: tell the leaders."""
        self._calls.now = now
        for group in list(self._open):
            self._ask(group)

    def _ask(self, group: int) -> None:
        opened = self._open.pop(group)
        body = encode_statements([statement for statement, _ in opened])
        self._calls.ask_leader(group, RELEASE_CALL, body, RELEASE_MS).then(partial(_settle, opened))

    def _on_release(self, group: int, reader: Reader) -> Task[Reply]:
        statements = [one for one in read_statements(reader) if one.what in (RELEASE, FORGET, ADOPT)]
        is_done = yield from self._control.mark(group, statements, self._calls.now)
        return Reply(OK if is_done else LATER)

    # Sessions that go on here, or end.

    def wants(self) -> bool:
        """Whether ids have to be collected for a session that was not here."""
        return self._calls.layout.has_groups()

    def collect(self, client_id: str, epoch: int, reply: Callable[[set[int] | None, int], None], now: int) -> None:
        """Find the ids of a client; None: they are not known."""
        self._calls.now = now
        ended = self._take_ended(client_id)
        collected = partial(self._on_collected, client_id, epoch, {} if ended is None else ended.groups, reply)
        self._collecting.collect(client_id.encode(), epoch, collected, now)

    def _on_collected(
        self,
        client_id: str,
        epoch: int,
        void: Found,
        reply: Callable[[set[int] | None, int], None],
        found: Found | None,
        missing: list[int],
        now: int,
    ) -> None:
        if found is None:
            reply(None, now)
            return
        for packet_id in void:
            for group in found.pop(packet_id, []):  # of a session that is over
                self._say(group, Statement(RELEASE, client_id.encode(), epoch, [packet_id]), None)
        doubtful = self._free(client_id, epoch, found, bool(missing))
        held = _Held(epoch, None)
        held.groups = found
        held.doubtful = doubtful
        held.missing = set(missing)
        held.set_in_doubt(bool(missing))
        self._held[client_id] = held
        if missing:
            self._unsure[client_id] = now + UNSURE_MS
        self._tidy(client_id, held)
        reply(set(found), now)

    def _free(self, client_id: str, epoch: int, found: Found, is_missing: bool) -> dict[int, Unsettled]:
        """The session was here before: the logs say what its ids mean, whichever node owned it meanwhile. Returned
        are those of messages that may still arrive.

        What was on its way from here, or waited to be, and can't arrive any more gives its id back, for it comes again;
        so does what was released elsewhere, for its id may be another message's by now. That goes for ids of a log that
        can't be asked as well: nothing is appended there until it can (``may_append``), and then they are back.
        """
        session = None if self._sessions is None else self._sessions.get(client_id)
        if session is None:
            return {}
        session.home_epoch = epoch
        if session.received is None:
            return {}
        before = self._of(session)
        sent = {} if before is None else before.groups
        client = client_id.encode()
        unsettled = session.unsettled or {}
        for packet_id in sorted({*sent, *unsettled}):
            groups = sent.get(packet_id, ())
            if packet_id in found:
                unsettled.pop(packet_id, None)
                continue
            one = unsettled.get(packet_id)
            may_arrive = not all(self._collecting.is_told(client, group, epoch) for group in groups)
            was_in_doubt = isinstance(one, Unsettled) and one.is_in_doubt
            if one is None or not (may_arrive or (was_in_doubt and is_missing)):
                unsettled.pop(packet_id, None)
                session.received.discard(packet_id)
        return {packet_id: one for packet_id, one in unsettled.items() if isinstance(one, Unsettled)}

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
        if found is None or self._held.get(client_id) is not held:
            return
        session = held.session
        if session is None and self._sessions is not None:
            session = held.session = self._sessions.get(client_id)
        if session is None:  # it is here no more, or never was
            del self._held[client_id]
            return
        if session.received is None:
            session.received = set()
        for packet_id, groups in found.items():
            fresh = [group for group in groups if group in held.missing and group not in missing]
            if fresh:
                session.received.add(packet_id)
                held.groups.setdefault(packet_id, []).extend(fresh)
        held.missing.intersection_update(missing)
        for packet_id, unsettled in list(held.doubtful.items()):
            if packet_id in found or not held.missing:
                del held.doubtful[packet_id]
                settle_late(session, packet_id, unsettled, packet_id in found)
        if held.missing:
            return
        waiting = held.waiting
        held.waiting = []
        for ids, reply, _ in waiting:
            if not self.release(session, ids, reply, now):
                reply(True)
        self._tidy(client_id, held)

    def ended(self, session: Session) -> None:
        """A session is over: its ids mean nothing any more. Sessions whose end is not told are found by and by."""
        held = self._of(session)
        if held is not None:
            del self._held[session.client_id]
            self._void(session.client_id, held, max(held.epoch, session.epoch) + 1)

    def begins_anew(self, client_id: str, epoch: int, now: int) -> None:
        """A client starts clean: ids that an owner which died may have left are void."""
        self._forgetting.add(client_id.encode(), epoch, now)

    def tick(self, now: int) -> None:
        """Tell what has to be told again."""
        self._calls.now = now
        self._forgetting.tick(now)
        for client_id in list(islice(self._unsure, UNSURE_MAX)):
            if self._unsure[client_id] <= now:
                self._ask_again(client_id, now)
        self._sweep_some()

    def _sweep_some(self) -> None:
        sessions = self._sessions
        if sessions is None:
            return
        if not self._sweep:
            self._sweep = list(self._held)
        for _ in range(min(SWEEP, len(self._sweep))):
            client_id = self._sweep.pop()
            held = self._held.get(client_id)
            if held is None or held.session is None or sessions.get(client_id) is held.session:
                continue
            if held.session.is_over:
                self.ended(held.session)
            else:
                held.set_in_doubt(False)
                del self._held[client_id]  # it has moved, and its new owner collects


def _settle(opened: list[tuple[Statement, _Release | None]], reply: Reply) -> None:
    for statement, release in opened:
        if release is None:
            continue
        release.waits -= 1
        if reply.code != OK:
            release.failed = True
        else:
            for packet_id in statement.ids:
                release.held.groups.pop(packet_id, None)
        if release.waits == 0:
            release.reply(not release.failed)
