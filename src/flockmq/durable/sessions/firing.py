"""The leader of a shard publishes its due wills: exactly once into a log, at least once past logs.

```
 due --> FIRING (target, wills), committed --> the target's leader appends them as one run --> FIRED
            |                                        of the sender "shard", with the entry's index as its sequence:
            |                                        a run that another leader of the shard sent before is not appended
            |                                        again --> captured: a copy to all others from memory
            `-- no log keeps them (target 0) --> published from here, at least once --> FIRED
```
A shard sends its runs for one target one after the other, in order: a log that has a run has all earlier ones. A new
leader finds the runs without FIRED and sends them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, REFUSED, Reply
from flockmq.durable.machine.session_bodies import FiredStatement, FiringStatement, SessionStatement
from flockmq.durable.machine.session_wills import NO_LOG, WILL_BYTES_MAX, KeptWill, read_will
from flockmq.durable.publish.entering import key_of, user_properties
from flockmq.log.batch import BatchBuilder
from flockmq.log.columns import RETAIN
from flockmq.mqtt.namespaces import split_client_id
from flockmq.mqtt.run import make_run
from flockmq.node.delivering import route
from flockmq.node.publishing import keep, publish_message
from flockmq.peering.fields import U32, U64, Reader, large, sized
from flockmq.peering.kinds import WILLS_CALL
from flockmq.raft.senders import run_note
from flockmq.routing.durable import BY_CLIENT, MANY_GROUPS
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.machine.session_wills import SessionWills
    from flockmq.durable.publish.appending import Appending
    from flockmq.durable.sessions.serving import SessionShards
    from flockmq.durable.sessions.submitting import SessionLog
    from flockmq.mqtt.run import Run
    from flockmq.node.state import NodeState
    from flockmq.raft.entry import Entry
    from flockmq.tasks import Task

RUN_WILLS_MAX: Final = 200
RUN_BYTES_MAX: Final = 256 * 1_024
"""About how large a run may become."""
APPEND_MS: Final = 3_000
LOOK_MS: Final = 10
NO_NODE: Final = 1 << 63
"""Set in the number of a sender that is a shard, not a node."""
NO_BOOT: Final = 0
"""A shard never starts anew."""
_RECORD_BYTES_LEAST: Final = 23


class WillFiring:
    """See the module. A listener of ``Machines``."""

    def __init__(
        self,
        node: NodeState,
        calls: PartitionCalls,
        machines: Machines,
        log: SessionLog,
        shards: SessionShards,
        appending: Appending,
    ) -> None:
        self._node = node
        self._calls = calls
        self._engine = calls.engine
        self._machines = machines
        self._log = log
        self._shards = shards
        self._appending = appending
        self._taking: set[int] = set()
        """Shards whose due wills are being taken."""
        self._sending: set[tuple[int, int]] = set()
        """(shard, target) of runs that are on their way."""
        calls.serve_leader(WILLS_CALL, self._on_run)

    # When.

    def applied(self, group: int, entries: list[Entry]) -> None:  # noqa: ARG002
        """A shard has applied more entries: a will may be due."""
        if self._machines.by_group[group].sessions.wills.kept:
            self._look(group)

    def closed(self, group: int) -> None:
        """There is no replica of this group here any more."""

    def tick(self, now: int) -> None:  # noqa: ARG002
        """Look for wills whose time has come."""
        for group in self._log.groups():
            machine = self._machines.by_group.get(group)
            if machine is not None and machine.sessions.wills.kept:
                self._look(group)

    def _look(self, group: int) -> None:
        if not self._leads(group):
            return
        wills = self._wills(group)
        due_ms = wills.next_due_ms()
        if due_ms >= 0 and group not in self._taking and due_ms <= self._shards.clock_ms(group):
            self._taking.add(group)
            self._calls.tasks.start("wills that are due", self._take(group))
        for target in {target for target, _ in wills.runs}:
            if (group, target) not in self._sending:
                self._sending.add((group, target))
                self._calls.tasks.start("wills to be published", self._send(group, target))

    def _leads(self, group: int) -> bool:
        is_there = group in self._machines.by_group and group in self._log.groups()
        return is_there and self._engine.is_leader(group) and self._engine.knows_all(group)

    def _wills(self, group: int) -> SessionWills:
        return self._machines.by_group[group].sessions.wills

    # Taking.

    def _take(self, group: int) -> Task[None]:
        """Commit FIRING for due wills, until none is left; ``applied`` then publishes them."""
        try:
            while self._leads(group):
                due = self._wills(group).due(self._shards.clock_ms(group), RUN_WILLS_MAX)
                if not due or not (yield from self._shards.put(group, self._firing(due))):
                    return
        finally:
            self._taking.discard(group)

    def _firing(self, due: list[KeptWill]) -> list[SessionStatement]:
        """One statement for each target. Wills that are too many for a run wait for the next entry."""
        named: dict[int, list[tuple[bytes, int]]] = {}
        sizes: dict[int, int] = {}
        for known in due:
            target = self._target_of(known)
            size = sizes.get(target, 0)
            if not size or size + len(known.encoded) <= RUN_BYTES_MAX:
                sizes[target] = size + len(known.encoded)
                named.setdefault(target, []).append((known.client, known.epoch))
        return [FiringStatement(target, wills) for target, wills in named.items()]

    def _target_of(self, known: KeptWill) -> int:
        """The partition of a will: the same as for a message of its client."""
        will = known.will
        table = self._node.table
        plan = table.plan(will.topic)
        topic = plan.durable
        if topic is None and will.qos and (plan.captured is not None or self._node.now >= table.capture.lapses_at):
            topic = table.capture.topic
        if topic is None:
            return NO_LOG
        group = topic.group_of(will.topic)
        if group == MANY_GROUPS:
            own = key_of(topic, user_properties(will.properties))
            group = topic.group_of_key(own or (known.client if topic.key == BY_CLIENT else will.topic))
        return group

    # Publishing.

    def _send(self, group: int, target: int) -> Task[None]:
        """Publish the runs of a shard for one target, the oldest first; a later tick repeats runs that fail."""
        try:
            while self._leads(group):
                sequences = [sequence for known, sequence in self._wills(group).runs if known == target]
                if not sequences or not (yield from self._publish(group, target, min(sequences))):
                    return
        finally:
            self._sending.discard((group, target))

    def _publish(self, group: int, target: int, sequence: int) -> Task[bool]:
        taken = list(self._wills(group).runs[target, sequence])
        allowed = [known for known in taken if self._is_allowed(known)]
        if target != NO_LOG and not self._calls.layout.replicas_of(target):
            # The topic and its log are gone: choose the target of the wills again.
            return (yield from self._shards.put(group, self._firing(taken)))
        if target != NO_LOG and allowed:
            body = U64.pack(group) + U64.pack(sequence) + self._encode(target, allowed)
            reply = yield from self._calls.ask_leader(target, WILLS_CALL, body, APPEND_MS)
            if reply.code != OK:
                return False
        for known in allowed:
            self._deliver(known, target)
        return (yield from self._shards.put(group, [FiredStatement(target, sequence)]))

    def _is_allowed(self, known: KeptWill) -> bool:
        """Whether the client's rights, as this node knows them now, allow its will."""
        node = self._node
        identify = node.reviews.identify
        if node.gate_is_open or identify is None:
            return True
        namespace, client_id = split_client_id(known.client.decode())
        username = None if known.user is None else known.user.decode("utf-8", "replace")
        identity = identify(client_id, username, namespace, "")
        if identity is None or node.gate.may_publish(identity, known.will.topic):
            return True
        node.events.note(
            "will_revoked",
            {
                "client_id": known.client.decode(),
                "username": username,
                "topic": known.will.topic,
                "reason": "This client may not publish to it any more",
            },
        )
        return False

    def _deliver(self, known: KeptWill, target: int) -> None:
        """Publish past logs. Captured wills go to subscribers that do not read the log; durable wills go to none."""
        node = self._node
        now = node.now
        will = known.will
        node.stats.wills_published += 1
        client_id = known.client.decode()
        node.events.note("will_published", {"client_id": client_id, "topic": will.topic})
        if target == NO_LOG:
            publish_message(node, self._run_of(known), now, client_id)
        elif target in node.table.capture.groups:
            run = self._run_of(known)
            node.stats.captured += 1
            if run.retain:
                keep(node, run, now)
            route(node, node.table.plan(will.topic), run, None, now)

    def _run_of(self, known: KeptWill) -> Run:
        will = known.will
        expires_at = self._node.now + max(will.expiry_s * 1_000, 1) if will.expiry_s >= 0 else 0
        return make_run(will.version, will.qos, will.retain, will.topic, will.payload, will.properties, expires_at)

    # Runs, at the leader of their target.

    def _encode(self, target: int, wills: list[KeptWill]) -> bytes:
        parts = [U32.pack(len(wills))]
        for known in wills:
            will = known.will
            wall_ms = self._node.now + self._node.wall_offset_ms
            if will.retain:
                wall_ms = self._appending.after_retained(will.topic, wall_ms)
            expires_at = wall_ms + max(will.expiry_s * 1_000, 1) if will.expiry_s >= 0 else 0
            topic = self._node.table.plan(will.topic).durable
            own = None
            if topic is not None and target in topic.groups:
                own = key_of(topic, user_properties(will.properties))
            parts.append(sized(known.client) + U64.pack(wall_ms) + U64.pack(expires_at))
            parts.append(bytes((own is not None,)) + sized(own or b"") + large(known.encoded))
        return b"".join(parts)

    def _on_run(self, target: int, reader: Reader) -> Task[Reply]:
        """Append a run unless the log has it; answer when the run is committed."""
        sender = NO_NODE | reader.u64()
        sequence = reader.number()
        builder = BatchBuilder()
        for _ in range(reader.count(RUN_WILLS_MAX, _RECORD_BYTES_LEAST)):
            client = reader.sized()
            wall_ms = reader.number()
            expires_at = reader.number()
            has_key = reader.u8() != 0
            key = reader.sized()
            will = read_will(reader.large(2 * WILL_BYTES_MAX))
            builder.add(will.topic, client, wall_ms, will.qos | RETAIN if will.retain else will.qos, will.payload)
            user = user_properties(will.properties)
            builder.mark(key if has_key else None, 0, 0, expires_at, will.properties, user)
        reader.finish()
        if not builder.count or not sequence:
            return Reply(REFUSED)
        batch = builder.build(note=run_note(sender, NO_BOOT, sequence))
        until = self._calls.now + APPEND_MS
        while self._calls.now < until and self._engine.is_leader(target):
            if self._engine.append_once(target, sender, sequence, batch):
                return Reply(OK)
            yield Sleep(LOOK_MS)
        return Reply(LATER)
