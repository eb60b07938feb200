"""The leader of a shard of ``$sessions``: takes statements, lets nodes follow its filters, ends sessions in time.

```
 statements of a node --> one SESSION batch --> applied --> a filter is new? each node that has a lease must know it
                                                   `--> results: epochs, records                 |
 a node asks with the version of its filters ----> confirmed; changes since, and a lease <-------'
 applied: a claim of another node --> DISPLACED to the former owner: it closes its client, or keeps what YIELD asks for
 every second: owners that died --> ORPHAN        sessions whose time is over --> EXPIRE
```
A lease is a promise of the leader: until the lease lapses, no new subscription counts before the node knows its filter.
A node counts its lease from its question, the leader from its answer, which is later. A new leader waits for the length
of one lease before it confirms a filter, because its predecessor may have granted leases that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import ALIVE, LEFT
from flockmq.durable.calls import LATER as ASK_LATER
from flockmq.durable.calls import OK, Reply
from flockmq.durable.machine import session_table
from flockmq.durable.machine.session_bodies import (
    CheckStatement,
    ClaimStatement,
    DetachStatement,
    EndStatement,
    ExpireStatement,
    OrphanStatement,
    SentStatement,
    SessionStatement,
    SubscribeStatement,
    TouchStatement,
    UnsubscribeStatement,
    UntouchStatement,
    encode_named,
    read_statements,
    session_body,
)
from flockmq.durable.sessions.submitting import (
    DONE,
    LATER,
    REFUSED_FULL,
    REFUSED_NAMESPACE,
    REFUSED_SAME_USER,
    REFUSED_USER,
    STATEMENTS_MAX,
    VOID,
    StatementResult,
    encode_results,
)
from flockmq.log.batch import SESSION
from flockmq.peering.fields import U32, U64, Reader, sized
from flockmq.peering.kinds import DISPLACED_CALL, LEASE_CALL, SESSION_CALL
from flockmq.tasks import Promise, Signal, within

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.machine.session_table import Displaced, SessionTable
    from flockmq.durable.sessions.membership import Membership
    from flockmq.durable.sessions.quotas import SessionQuotas
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.durable.state.meta import Meta
    from flockmq.gossip.swim import Swim
    from flockmq.raft.entry import Entry
    from flockmq.tasks import Task

LEASE_MS: Final = 2_000
POLL_MS: Final = 500
"""How long a question about filters waits for news; less than an attempt of a call may take."""
LOOK_MS: Final = 1_000
EXPIRED_MAX: Final = 1_000
"""Sessions that end in one batch."""
ORPHANS_MAX: Final = 1_000
"""Sessions that lose their node in one batch: all replicas apply it in one turn."""
DISPLACED_TOLD: Final = 1_000
"""Sessions in one message to a former owner."""
RESULTS_BYTES_MAX: Final = 900_000
RESULT_BYTES: Final = 5
"""Of a result without a record."""
FILTERS_BYTES_MAX: Final = 900_000
"""Changes in one answer; the rest follows with the next question."""
CHANGES: Final = 0
WHOLE: Final = 1
WHOLE_BEGIN: Final = 2
"""Kinds of answers about filters: changes; the last piece of the whole set; an earlier piece of the set."""
RESULTS: Final = {
    session_table.REFUSED_USER: REFUSED_USER,
    session_table.REFUSED_FULL: REFUSED_FULL,
    session_table.REFUSED_NAMESPACE: REFUSED_NAMESPACE,
    session_table.REFUSED_SAME_USER: REFUSED_SAME_USER,
}
"""Results of claims that a table refused."""


class _Lease:
    """The lease of one node: the version of filters that it knows, and when the lease lapses."""

    def __init__(self) -> None:
        self.version = 0
        self.until = 0


class _Term:
    """The time in which this node leads a shard, and the leases that it granted."""

    def __init__(self, term: int, since: int) -> None:
        self.term = term
        self.since = since
        self.leases: dict[int, _Lease] = {}
        self.news = Signal()
        """A node confirmed a version, or the filters have changed."""
        self.clock_ms = 0
        """Log time at ``since``; 0: not known yet."""


class SessionShards:
    """See the module. A listener of ``Machines``."""

    def __init__(
        self,
        calls: PartitionCalls,
        control: Control,
        machines: Machines,
        log: SessionLog,
        meta: Meta,
        swim: Swim,
        quotas: SessionQuotas,
        members: Membership,
    ) -> None:
        self._calls = calls
        self._engine = calls.engine
        self._control = control
        self._machines = machines
        self._log = log
        self._meta = meta
        self._swim = swim
        self._quotas = quotas
        self._members = members
        self._terms: dict[int, _Term] = {}
        self._look_at = 0
        self._orphaning: set[int] = set()
        """Shards whose sessions of lost nodes are being told of."""
        calls.serve_leader(SESSION_CALL, self._on_statements)
        calls.serve_leader(LEASE_CALL, self._on_lease)

    # Statements.

    def _on_statements(self, group: int, reader: Reader) -> Task[Reply]:
        node_id = reader.u64()
        statements = read_statements(reader)
        table = self._machines.by_group[group].sessions
        is_alone = self._members.is_alone()
        wanted = [statement for statement in statements if not is_needless(table, statement, is_alone)]
        yield from self._quotas.give_room(group, table, wanted)
        if group not in self._machines.by_group:  # the replica may have gone meanwhile
            return Reply(ASK_LATER)
        if not (yield from self.put(group, wanted) if wanted else self._confirmed(group)):
            return Reply(ASK_LATER)
        if any(isinstance(statement, SubscribeStatement) for statement in wanted):
            yield from self._until_known(group, table.filters_version)
        machine = self._machines.by_group.get(group)
        if machine is None or not self._engine.is_leader(group):
            return Reply(ASK_LATER)
        results = results_of(machine.sessions, statements, node_id)
        return Reply(OK, encode_results(machine.applied, self._meta.state.index, results))

    def _confirmed(self, group: int) -> Promise[bool]:
        """Whether a quorum says that this node leads."""
        confirmed: Promise[bool] = Promise()
        self._engine.read(group, confirmed.set, self._calls.now)
        return confirmed

    def put(self, group: int, statements: list[SessionStatement]) -> Promise[bool]:
        """Have statements applied, if this node leads."""
        return self._control.put(group, SESSION, session_body(self.clock_ms(group), statements), self._calls.now)

    def clock_ms(self, group: int) -> int:
        """Log time: the log's time when this node began to lead, plus the time passed here since. Never early."""
        term = self._term(group)
        if not term.clock_ms:
            term.clock_ms = self._machines.by_group[group].clock_ms or self._control.wall.at(self._calls.now)
        return max(term.clock_ms + self._calls.now - term.since, self._machines.by_group[group].clock_ms)

    def _until_known(self, group: int, version: int) -> Task[None]:
        """Wait until each node that has a lease knows the filters of a version."""
        while self._engine.is_leader(group) and not self._is_known(group, version):
            yield from within(self._term(group).news.next(), 50)

    def _is_known(self, group: int, version: int) -> bool:
        now = self._calls.now
        term = self._term(group)
        if term.term > 1 and now - term.since < LEASE_MS and len(self._meta.state.nodes) > 1:
            return False  # an earlier leader may have granted leases
        return all(lease.version >= version or lease.until <= now for lease in term.leases.values())

    def _term(self, group: int) -> _Term:
        term = self._engine.host.groups[group].state.term
        known = self._terms.get(group)
        if known is None or known.term != term:
            known = self._terms[group] = _Term(term, self._calls.now)
        return known

    # Filters.

    def _on_lease(self, group: int, reader: Reader) -> Task[Reply]:
        node_id = reader.u64()
        version = reader.number()
        after = reader.sized()
        machine = self._machines.by_group[group]
        term = self._term(group)
        lease = term.leases.setdefault(node_id, _Lease())
        if not after:
            lease.version = version
            term.news.fire()
        # A node without a lease needs one now.
        due_at = self._calls.now + (POLL_MS if lease.until > self._calls.now else 0)
        while not after and machine.sessions.filters_version <= version and self._calls.now < due_at:
            yield from within(term.news.next(), due_at - self._calls.now)
        if not (yield from self._confirmed(group)) or self._machines.by_group.get(group) is not machine:
            return Reply(ASK_LATER)
        if self._terms.get(group) is not term:
            return Reply(ASK_LATER)
        lease.until = self._calls.now + LEASE_MS
        return Reply(OK, U64.pack(machine.applied) + encode_filters(machine.sessions, version, after))

    # Time.

    def applied(self, group: int, entries: list[Entry]) -> None:  # noqa: ARG002
        """A shard has applied more entries: wake nodes that wait for filters, tell former owners of new ones."""
        term = self._terms.get(group)
        if term is not None:
            term.news.fire()
        machine = self._machines.by_group.get(group)
        displaced = machine.sessions.take_displaced() if machine is not None else []
        if displaced and self._engine.is_leader(group):
            self._tell_displaced(displaced)

    def _tell_displaced(self, displaced: list[Displaced]) -> None:
        by_owner: dict[int, list[bytes]] = {}
        for owner, client, epoch in displaced:
            by_owner.setdefault(owner, []).append(encode_named(client, epoch))
        for owner, named in by_owner.items():
            for at in range(0, len(named), DISPLACED_TOLD):
                self._calls.ask_replica(owner, DISPLACED_CALL, b"".join(named[at : at + DISPLACED_TOLD]))

    def closed(self, group: int) -> None:
        """There is no replica of this group here any more."""
        self._terms.pop(group, None)

    def tick(self, now: int) -> None:
        """Look for owners that are gone, and for sessions whose time is over."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_MS
        for group in self._log.groups():
            if self._engine.is_leader(group) and self._engine.knows_all(group) and group in self._machines.by_group:
                self._look(group)

    def _look(self, group: int) -> None:
        table = self._machines.by_group[group].sessions
        expired = table.expired(self.clock_ms(group), EXPIRED_MAX)
        if expired:
            self.put(group, [ExpireStatement(expired)])
        if group not in self._orphaning and table.orphans(*self._living()):
            self._orphaning.add(group)
            self._calls.tasks.start("sessions whose node is gone", self._orphan(group))

    def _orphan(self, group: int) -> Task[None]:
        """Say which sessions have lost their nodes, some at a time, until all have been told of."""
        try:
            while self._engine.is_leader(group) and group in self._machines.by_group:
                table = self._machines.by_group[group].sessions
                due = table.orphans(*self._living())
                if not due:
                    return
                owner, boot = due[0]
                named = table.orphaned(owner, boot, ORPHANS_MAX)
                if not (yield from self.put(group, [OrphanStatement(owner, boot, named)])):
                    return
        finally:
            self._orphaning.discard(group)

    def _living(self) -> tuple[set[int], dict[int, int]]:
        """Nodes that are there, also those that are leaving, and the boots that gossip has heard of."""
        boots = {member.node_id: member.boot for member in self._swim.members.values() if member.is_live}
        nodes = self._meta.state.nodes.values()
        alive = {node.id for node in nodes if node.state == ALIVE or (node.state == LEFT and node.id in boots)}
        return alive, boots


def is_needless(table: SessionTable, statement: SessionStatement, is_alone: bool) -> bool:
    """Whether a statement changes nothing: a question, or a client without a record that has nothing to keep.

    ``is_alone``: there is no other node that could have the client.
    """
    if isinstance(statement, CheckStatement):
        return True
    if isinstance(statement, ClaimStatement) and table.is_late(statement):
        return True
    if not is_alone or not isinstance(statement, ClaimStatement) or statement.expiry_s or statement.will:
        return False
    return statement.client not in table.records


def results_of(table: SessionTable, statements: list[SessionStatement], node_id: int) -> list[StatementResult]:
    """The results of a node's statements that were just applied."""
    results: list[StatementResult] = []
    size = 0
    for statement in statements:
        result = _result_of(table, statement, node_id)
        cost = len(result.record) + RESULT_BYTES
        if size + cost > RESULTS_BYTES_MAX and size > STATEMENTS_MAX * RESULT_BYTES:
            results.append(StatementResult(LATER))
            continue
        size += cost  # the first record finds room however large it is: later it would be as large
        results.append(result)
    return results


def _result_of(table: SessionTable, statement: SessionStatement, node_id: int) -> StatementResult:
    if isinstance(statement, ClaimStatement):
        return _claim_result(table, statement)
    if isinstance(statement, SubscribeStatement):
        record = table.current(statement.client, statement.epoch)
        if record is None:
            return StatementResult(VOID)
        is_stored = all(one.full_filter in record.subscriptions for one in statement.subscriptions)
        return StatementResult(DONE if is_stored else REFUSED_FULL)
    if isinstance(statement, TouchStatement):
        record = table.current(statement.client, statement.epoch)
        if record is None:
            return StatementResult(VOID)
        is_touched = all(group in record.touched for group in statement.groups)
        return StatementResult(DONE if is_touched else REFUSED_FULL)
    if isinstance(statement, SentStatement):
        record = table.current(statement.client, statement.epoch)
        if record is None:
            return StatementResult(VOID)
        return StatementResult(DONE if record.sent.stamp >= statement.change.stamp else REFUSED_FULL)
    if isinstance(statement, UnsubscribeStatement | DetachStatement | UntouchStatement):
        return StatementResult(DONE if table.current(statement.client, statement.epoch) else VOID)
    if isinstance(statement, EndStatement):
        return StatementResult(VOID if table.current(statement.client, statement.epoch) else DONE)
    if isinstance(statement, CheckStatement):
        found = table.differing(node_id, statement)
        return StatementResult(DONE, b"".join([encode_named(client, epoch) for client, epoch in found]))
    return StatementResult(DONE)


def _claim_result(table: SessionTable, claim: ClaimStatement) -> StatementResult:
    record = table.records.get(claim.client)
    if record is not None and record.nonce == claim.nonce:
        return StatementResult(DONE, record.encode())
    reason = table.refusals.get(claim.nonce)
    if reason is not None:
        return StatementResult(RESULTS[reason])
    if record is None and not claim.expiry_s and not claim.will:
        return StatementResult(DONE)  # the node was alone: nothing was written
    return StatementResult(VOID)  # a later claim won


def encode_filters(table: SessionTable, version: int, after: bytes) -> bytes:
    """The changes for a node with filters of ``version``; or the whole set from ``after`` on, in pieces."""
    changes = None if after or not version else table.changes_since(version)
    if changes is not None:
        parts = [bytes((is_added,)) + sized(topic_filter) for topic_filter, is_added in changes]
        if sum(map(len, parts)) <= FILTERS_BYTES_MAX:
            return bytes((CHANGES,)) + U64.pack(table.filters_version) + U32.pack(len(parts)) + b"".join(parts)
    parts = []
    size = 0
    kind = WHOLE
    for topic_filter in sorted(one for one in table.filters if one > after):
        if size > FILTERS_BYTES_MAX:
            kind = WHOLE_BEGIN
            break
        part = b"\1" + sized(topic_filter)
        size += len(part)
        parts.append(part)
    return bytes((kind,)) + U64.pack(table.filters_version) + U32.pack(len(parts)) + b"".join(parts)
