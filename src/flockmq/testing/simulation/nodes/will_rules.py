"""The rules of wills: each reaches its log once, unless its client said goodbye, or came back within the delay.

```
 client:  CONNACK ... lost, taken over --> due      DISCONNECT, nothing goes wrong --> void         (MQTT packets)
 the log: CLAIM with a will --> DETACH, ORPHAN, a claim, the end of the session: due at a time     (statements)
                           `--> DETACH of a client that said goodbye; a claim within the delay: void
 logs of messages, in the end: due --> once       void --> never       not due yet --> not yet
```
| rule | broken when |
| --- | --- |
| will once | a will is in logs twice |
| will kept | a connection ended without a goodbye, or the time of the will came, and the will is in no log |
| will void | a goodbye while nothing goes wrong, or its DETACH was applied before FIRING: the will is in a log |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.machine.session_bodies import (
    SAME_EPOCH,
    AbandonStatement,
    ClaimStatement,
    DetachStatement,
    EndStatement,
    FiringStatement,
    RevokeStatement,
)
from flockmq.durable.machine.session_wills import read_will
from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.testing.simulation.nodes.session_machines import Step
    from flockmq.testing.simulation.nodes.world import NodesWorld

OPEN: Final = 0
TAKEN: Final = 1
"""FIRING names it."""
VOID: Final = 2
DOUBTFUL: Final = 3
"""Its node may have published it past the log of sessions."""
NEVER_MS: Final = -1


class LoggedWill:
    """A will as statements tell its story."""

    def __init__(self, payload: bytes, delay_s: int) -> None:
        self.payload = payload
        self.delay_s = delay_s
        self.state = OPEN
        self.due_ms = NEVER_MS
        self.why = ""


class WillRules:
    """Clients report here what they were promised; statements come from ``session_machines``."""

    def __init__(self, cluster: NodesWorld) -> None:
        self._cluster = cluster
        self.is_watched = False
        self._given: set[bytes] = set()
        self._due: set[bytes] = set()
        self._void: set[bytes] = set()
        self._logged: dict[tuple[bytes, int], LoggedWill] = {}
        """By client and epoch."""
        self._same: dict[tuple[bytes, int], int] = {}
        """(Client, epoch) -> the epoch under which its node made sure of the same connection."""
        self._made_sure: set[tuple[bytes, int]] = set()
        """(Client, epoch) of such claims."""

    # What clients say.

    def given(self, payload: bytes) -> None:
        """A CONNECT with this will was sent."""
        self._given.add(payload)

    def ended(self, payload: bytes, said_goodbye: bool, is_delayed: bool) -> None:
        """A connection that had its CONNACK is over. Whether a delayed will is due is told by the log alone."""
        if said_goodbye or not is_delayed:
            (self._void if said_goodbye else self._due).add(payload)

    # What the log says.

    def applied(self, group: int, step: Step) -> None:  # noqa: ARG002
        """A statement is applied; see ``StepRule``."""
        statement = step.statement
        if isinstance(statement, DetachStatement | EndStatement) and statement.voids_will:
            epoch = self._same.get((statement.client, statement.epoch), statement.epoch)
            self._settle(statement.client, epoch, VOID, "its client said goodbye")
        elif isinstance(statement, RevokeStatement):
            self._settle(statement.client, statement.epoch, DOUBTFUL, "revoked")
        elif isinstance(statement, AbandonStatement):
            known = step.before.get(statement.client)
            is_same = known is not None and (statement.client, known.epoch) in self._made_sure
            if known is not None and known.is_connected and known.nonce in statement.nonces and not is_same:
                self._settle(statement.client, known.epoch, DOUBTFUL, "abandoned")
        elif isinstance(statement, FiringStatement):
            for key in statement.wills:
                will = self._logged.get(key)
                if will is not None and 0 <= will.due_ms <= step.clock_ms:
                    self._settle(*key, TAKEN, "taken")
        record = step.granted()
        if record is not None and isinstance(statement, ClaimStatement):
            self._claimed(statement, record, step)
        self._look_for_losses(step)

    def _open(self, client: bytes, epoch: int) -> LoggedWill | None:
        will = self._logged.get((client, epoch))
        return will if will is not None and will.state == OPEN else None

    def _settle(self, client: bytes, epoch: int, state: int, why: str) -> None:
        will = self._open(client, epoch)
        if will is not None:
            will.state = state
            will.why = why

    def _claimed(self, claim: ClaimStatement, record: SessionRecord, step: Step) -> None:
        known = step.before.get(claim.client)
        will = None if known is None else self._open(claim.client, known.epoch)
        is_same = bool(claim.flags & SAME_EPOCH)
        if will is not None and known is not None and is_same:
            del self._logged[claim.client, known.epoch]
            self._same[claim.client, known.epoch] = record.epoch
            will.due_ms = NEVER_MS
            self._logged[claim.client, record.epoch] = will
        elif will is not None and not 0 <= will.due_ms <= step.clock_ms:
            if record.had_session and will.delay_s:
                will.state = VOID
                will.why = "its client came back within the delay"
            else:
                will.due_ms = step.clock_ms
        if is_same:
            self._made_sure.add((claim.client, record.epoch))
        if claim.will and not is_same:
            stored = read_will(claim.will)
            self._logged[claim.client, record.epoch] = LoggedWill(stored.payload, stored.delay_s)

    def _look_for_losses(self, step: Step) -> None:
        """Connections and sessions that the statement has ended."""
        for client, known in step.before.items():
            will = self._open(client, known.epoch)
            if will is None:
                continue
            record = step.table.records.get(client)
            if record is None or record.epoch != known.epoch:
                if not 0 <= will.due_ms <= step.clock_ms:
                    will.due_ms = step.clock_ms
            elif known.is_connected and not record.is_connected:
                will.due_ms = step.clock_ms + 1_000 * min(will.delay_s, record.expiry_s)

    # In the end.

    def waiting(self) -> str:
        """Which wills are still on their way; empty when all that are due are published."""
        for process in self._cluster.processes():
            for group, machine in process.durable.machines.by_group.items():
                wills = machine.sessions.wills
                if wills.runs or wills.due(machine.clock_ms, 1):
                    return f"wills of group {group} at node {process.number} are due"
        return ""

    def check(self) -> None:
        """All logs against all wills."""
        places = self._cluster.archive.places
        found = {payload for payload in self._given if payload in places}
        twice = sorted(payload for payload in found if len(places[payload]) > 1)
        if twice:
            raise Violation("will once", f"{len(twice)} wills are in a log twice, such as {twice[:3]}")
        lost = sorted(self._due - found)
        if lost:
            raise Violation("will kept", f"{len(lost)} wills are in no log, such as {lost[:3]}")
        void = sorted(self._void & found)
        if void and not self._cluster.plan.faults:
            raise Violation("will void", f"clients said goodbye, and their wills are in a log, such as {void[:3]}")
        self._check_logged(found)
        self._cluster.count("wills due", len(self._due))
        self._cluster.count("wills void", len(self._void))

    def _check_logged(self, found: set[bytes]) -> None:
        for (client, epoch), will in self._logged.items():
            name = f"{will.payload!r} of {client!r}, epoch {epoch}"
            if will.state == VOID and will.payload in found:
                raise Violation("will void", f"{name} is in a log: {will.why}")
            if will.state == TAKEN and will.payload not in found:
                raise Violation("will kept", f"{name} was taken and is in no log")
            if will.state == OPEN and will.payload in found:
                raise Violation("will void", f"{name} is in a log, and was never taken")
            self._cluster.count(("wills open", "wills taken", "wills voided", "wills in doubt")[will.state])
