"""QoS 2 exactly once into the log: each message is in the log with its packet id until its publisher releases the id.

```
 first PUBLISH into a partition --> open: TOUCH in the record, ADOPT in the partition, both committed
 PUBLISH --> tag(session): the epoch for its record --> append --> note(session, group, ids) --> PUBREC
 PUBREL ---> release(session, ids) --> RELEASE in every partition that knows them, committed --> PUBCOMP
 CONNECT --> collect: ADOPT in the partitions that the record touches --> their ids --> CONNACK --> attached
 all ids of a partition released, and idle, or the client is gone --> UNTOUCH, then FORGET
```
A partition takes QoS 2 records with an id only of clients that it knows, and of no older epoch (``machine/fences.py``).
So late records of a replaced owner never enter the log.

When a partition does not answer, only its own ids stay unknown. The node asks it again and again; until it answers, the
session appends nothing there, and the node releases no id that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.control_bodies import RELEASE, Statement
from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.publish.releasing import FULL, LOST, OPENED
from flockmq.durable.qos2.adopting import Adopted, Adopting
from flockmq.durable.qos2.held import Found, Held, Released
from flockmq.durable.qos2.telling import RELEASE_MS, Telling
from flockmq.durable.qos2.touching import Touching
from flockmq.durable.sessions.submitting import DONE, REFUSED_FULL
from flockmq.tasks import Sleep, promised, within

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.qos2.touching import RecordLog
    from flockmq.node.ports import Claimed
    from flockmq.session.session import Session
    from flockmq.tasks import Promise, Task

COLLECT_MS: Final = 2_000
"""How long a CONNACK waits for partitions; those that did not answer are asked again later."""
COLLECTED_MAX: Final = 10_000
"""Clients whose ids were collected, and whose session is not on this node yet."""
OPEN_MS: Final = 10_000
"""How long the first PUBLISH into a partition may wait for TOUCH and ADOPT."""
OPENS_MAX: Final = 20_000
"""Sessions that wait for TOUCH and ADOPT at a time."""
RETRY_MS: Final = 200
IDLE_MS: Final = 60_000
"""After this idle time, the record stops naming a partition without ids."""
WAITING_MAX: Final = 1_000
"""Releases of a client that wait for partitions which could not be asked."""
UNSURE_MS: Final = 1_000
UNSURE_MAX: Final = 100
"""Clients for which partitions are asked again in one tick."""
SWEEP: Final = 50
"""Sessions that one tick examines: are they still on this node, are they idle?"""


class _Release:
    """Ids that are being released."""

    def __init__(self, held: Held, reply: Released) -> None:
        self.held = held
        self.reply = reply
        self.waits = 0
        self.failed = False


class _Collected:
    """The answers of a record's partitions to the claim with this epoch."""

    def __init__(self, epoch: int, ids: Found, missing: list[int]) -> None:
        self.epoch = epoch
        self.ids = ids
        self.missing = missing


class Releases:
    """See the module."""

    def __init__(
        self,
        calls: PartitionCalls,
        control: Control,
        machines: Machines,
        log: RecordLog,
        sessions: dict[str, Session],
    ) -> None:
        """``sessions``: those of this node. Ids of sessions that moved away are forgotten at later ticks."""
        self._calls = calls
        self._sessions = sessions
        self._adopting = Adopting(calls, control, machines)
        self._telling = Telling(calls, control)
        self._touching = Touching(calls, log, self._telling, sessions)
        self._held: dict[str, Held] = {}
        self._collected: dict[str, _Collected] = {}
        self._unsure: dict[str, int] = {}
        """Clients with partitions that could not be asked, and when to ask them again."""
        self._opens = 0
        self._sweep: list[str] = []

    # Publishing.

    def is_open(self, session: Session, groups: list[int]) -> bool:
        """See ``ReleasePort``."""
        if not session.is_logged:
            return not session.is_unregistered
        held = self._of(session)
        return held is not None and all(group in held.open for group in groups)

    def open(self, session: Session, groups: list[int], reply: Callable[[int], None]) -> None:
        """See ``ReleasePort``."""
        if self._opens >= OPENS_MAX:
            reply(LOST)
            return
        self._opens += 1
        self._calls.tasks.start("partitions for QoS 2", self._touch(session, groups)).then(reply)

    def _touch(self, session: Session, groups: list[int]) -> Task[int]:
        try:
            if not session.is_logged:
                return (yield from self._until_registered(session))
            held = self._of(session)
            if held is None:
                held = self._held[session.client_id] = Held(session)
            closed = [group for group in groups if group not in held.open]
            epoch = session.record_epoch
            due_at = self._calls.now + OPEN_MS
            code = yield from self._touching.touch(session, closed, due_at)
            if code != DONE:
                self._tidy(held)
                return FULL if code == REFUSED_FULL else LOST
            while closed and self._calls.now < due_at and session.record_epoch == epoch:
                found = yield from self._adopt(session.client_id, epoch, session.began_epoch, closed, due_at)
                if self._of(session) is not held:
                    return LOST  # the session went elsewhere, or its client came again
                held.open.update(dict.fromkeys(found, self._calls.now))
                closed = [group for group in closed if group not in found]
                if closed:
                    yield Sleep(RETRY_MS)
            return LOST if closed else OPENED
        finally:
            self._opens -= 1

    def _until_registered(self, session: Session) -> Task[int]:
        """Wait until the log knows this session: before, another node may have the same client id and message."""
        due_at = self._calls.now + OPEN_MS
        while session.is_unregistered and self._calls.now < due_at and not session.is_over:
            yield Sleep(RETRY_MS)
        return LOST if session.is_unregistered or session.is_over else OPENED

    def _adopt(self, client_id: str, epoch: int, since: int, groups: list[int], due_at: int) -> Task[Found]:
        """Adopt a client in partitions; returns those that answered in time, each with the client's ids there."""
        client = client_id.encode()
        asked: list[tuple[int, Adopted]] = [
            (group, self._adopting.adopt(group, client, epoch, since)) for group in groups
        ]
        found: Found = {}
        for group, told in asked:
            ids = yield from within(told, max(due_at - self._calls.now, 0))
            if ids is not None:
                found[group] = ids
        return found

    def may_append(self, session: Session, group: int) -> bool:
        """Whether QoS 2 messages of a session may go to a partition: not while the ids there are unknown.

        False: close the connection, because the node can't tell whether a message is in the log.
        """
        held = self._of(session)
        return held is None or group not in held.missing

    def tag(self, session: Session) -> int:
        """The session epoch for a record with a packet id; 0: the session leaves none in logs."""
        return session.record_epoch if session.is_logged else 0

    def _of(self, session: Session) -> Held | None:
        """The ids of this session in logs, without those of an earlier session of its client."""
        held = self._held.get(session.client_id)
        return held if held is not None and held.session is session else None

    def note(self, session: Session, group: int, ids: list[int]) -> None:
        """Records with these ids were given to a partition."""
        held = self._of(session)
        if held is None:
            return
        if group in held.open:
            held.open[group] = self._calls.now
        for packet_id in ids:
            groups = held.ids.setdefault(packet_id, [])
            if group not in groups:
                groups.append(group)

    def drop(self, session: Session, ids: list[int]) -> None:
        """The records with these ids are certainly not in the log."""
        held = self._of(session)
        if held is not None:
            for packet_id in ids:
                held.ids.pop(packet_id, None)

    def fenced(self, session: Session, group: int) -> None:
        """A partition knows another owner, or none: open the partition again before the next QoS 2 message."""
        held = self._of(session)
        if held is not None:
            held.open.pop(group, None)

    # Releases.

    def release(self, session: Session, ids: list[int], reply: Released, now: int) -> bool:
        """The client releases ids. True: ``reply`` is called once, now or later. False: no log holds them."""
        held = self._of(session)
        if held is None:
            return False
        self._calls.now = now
        known = [packet_id for packet_id in ids if packet_id in held.ids]
        if held.missing and len(known) < len(ids):
            if len(held.waiting) >= WAITING_MAX:
                reply(False)
                return True
            held.waiting.append((ids, reply, now + RELEASE_MS))
            return True
        if not known:
            return False
        release = _Release(held, reply)
        by_group: dict[int, list[int]] = {}
        for packet_id in known:
            for group in held.ids[packet_id]:
                by_group.setdefault(group, []).append(packet_id)
        client = session.client_id.encode()
        release.waits = len(by_group)
        for group, chosen in by_group.items():
            told = self._telling.tell(group, Statement(RELEASE, client, session.record_epoch, chosen))
            told.then(partial(_was_released, release, chosen))
        return True

    def flush(self, now: int) -> None:
        """A turn ends: tell the leaders."""
        self._calls.now = now
        self._telling.flush()
        self._adopting.flush(now)

    # Sessions that continue on this node.

    def wants(self, claimed: Claimed) -> bool:
        """Whether a client with this record has to wait for ``collect``."""
        record = claimed.record
        return isinstance(record, SessionRecord) and record.had_session and bool(record.touched)

    def collect(self, client_id: str, claimed: Claimed) -> Promise[set[int]]:
        """Find the packet ids of a client, as far as logs can be asked now."""
        record = claimed.record
        if not isinstance(record, SessionRecord):
            return promised(set())
        return self._calls.tasks.start("QoS 2 ids of a client", self._collect(client_id, record))

    def _collect(self, client_id: str, record: SessionRecord) -> Task[set[int]]:
        due_at = self._calls.now + COLLECT_MS
        found = yield from self._adopt(client_id, record.epoch, record.began, list(record.touched), due_at)
        missing = [group for group in record.touched if group not in found]
        ids = _by_id(found)
        self._collected.pop(client_id, None)
        self._collected[client_id] = _Collected(record.epoch, ids, missing)
        while len(self._collected) > COLLECTED_MAX:
            del self._collected[next(iter(self._collected))]
        return set(ids)

    def attached(self, session: Session, record: SessionRecord) -> None:
        """A client has its session, by the claim of this record."""
        client_id = session.client_id
        now = self._calls.now
        collected = self._collected.pop(client_id, None)
        before = self._held.pop(client_id, None)
        session.began_epoch = record.began
        if not record.had_session:
            if record.touched:
                self._touching.untouch(client_id.encode(), record.epoch, list(record.touched), record.began)
            return
        held = Held(session)
        if collected is not None and collected.epoch == record.epoch:
            held.ids = collected.ids
            held.missing = dict.fromkeys(collected.missing)
        else:
            held.missing = dict.fromkeys(record.touched)
        held.open = {group: now for group in record.touched if group not in held.missing}
        if before is not None and before.session is session:
            _reconcile(before, held)
        if held.is_empty():
            return
        self._held[client_id] = held
        if held.missing:
            self._unsure[client_id] = now + UNSURE_MS

    def _ask_again(self, client_id: str, now: int) -> None:
        """Ask again the partitions that did not answer."""
        held = self._held.get(client_id)
        if held is None or not held.missing:
            del self._unsure[client_id]
            return
        self._unsure[client_id] = now + UNSURE_MS
        late = [one for one in held.waiting if one[2] <= now]
        held.waiting = [one for one in held.waiting if one[2] > now]
        for _, reply, _ in late:
            reply(False)
        client = client_id.encode()
        for group in list(held.missing):
            told = self._adopting.adopt(group, client, held.session.record_epoch, held.session.began_epoch)
            told.then(partial(self._was_found, held, group))

    def _was_found(self, held: Held, group: int, ids: list[int] | None) -> None:
        session = held.session
        if ids is None or self._of(session) is not held or group not in held.missing:
            return
        del held.missing[group]
        held.open[group] = self._calls.now
        if session.received is None:
            session.received = set()
        session.received.update(ids)
        for packet_id in ids:
            known = held.ids.setdefault(packet_id, [])
            if group not in known:
                known.append(group)
        if held.missing:
            return
        waiting = held.waiting
        held.waiting = []
        for chosen, reply, _ in waiting:
            if not self.release(session, chosen, reply, self._calls.now):
                reply(True)

    # Sessions that rest, or end.

    def detached(self, session: Session) -> None:
        """The connection is gone. UNTOUCH partitions without ids, so that the next owner need not ask them."""
        held = self._of(session)
        if held is not None:
            self._close(held, self._calls.now)

    def ended(self, session: Session) -> None:
        """A session has ended: its ids are void. A session that this node only forgets has no ``has_record``."""
        held = self._of(session)
        if held is None:
            return
        del self._held[session.client_id]
        if session.has_record:
            epoch = session.record_epoch
            self._touching.forget(session.client_id.encode(), epoch, held.partitions(), epoch + 1)

    def _close(self, held: Held, used_before: int) -> None:
        """UNTOUCH partitions that hold no ids."""
        idle = held.idle(used_before)
        if not idle:
            return
        for group in idle:
            del held.open[group]
        self._touching.untouch(held.session.client_id.encode(), held.session.record_epoch, idle, 0)
        self._tidy(held)

    def _tidy(self, held: Held) -> None:
        if held.is_empty() and self._of(held.session) is held:
            del self._held[held.session.client_id]

    def tick(self, now: int) -> None:
        """Ask partitions again that did not answer; examine some sessions, whether they are idle or gone."""
        self._calls.now = now
        for client_id in list(islice(self._unsure, UNSURE_MAX)):
            if self._unsure[client_id] <= now:
                self._ask_again(client_id, now)
        if not self._sweep:
            self._sweep = list(self._held)
        for _ in range(min(SWEEP, len(self._sweep))):
            client_id = self._sweep.pop()
            held = self._held.get(client_id)
            if held is None:
                continue
            if self._sessions.get(client_id) is held.session:
                self._close(held, now - IDLE_MS)
            else:
                del self._held[client_id]  # it has moved, and its new owner asks


def _by_id(found: Found) -> Found:
    """From partition -> ids to id -> partitions."""
    ids: Found = {}
    for group in sorted(found):
        for packet_id in found[group]:
            ids.setdefault(packet_id, []).append(group)
    return ids


def _reconcile(before: Held, held: Held) -> None:
    """The session stayed on this node: the ids in logs overrule the ids in its memory.

    Ids that no log has are free, unless their message is still on its way. Messages that are in a log have their
    outcome.
    """
    session = held.session
    unsettled = session.unsettled or {}
    for packet_id, groups in before.ids.items():
        if packet_id in held.ids:
            unsettled.pop(packet_id, None)
        elif packet_id in unsettled:
            held.ids[packet_id] = groups
        elif session.received is not None:
            session.received.discard(packet_id)


def _was_released(release: _Release, ids: list[int], is_done: bool) -> None:
    release.waits -= 1
    if not is_done:
        release.failed = True
    else:
        for packet_id in ids:
            release.held.ids.pop(packet_id, None)
    if release.waits == 0:
        release.reply(not release.failed)
