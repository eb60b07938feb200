"""Cluster state and durable topics as the admin API asks for them, from whichever nodes can answer.

```
 API --> DurableView --> Meta.submit        commands, decided by group 0
                    |--> Statuses, Cursors  leaders and replicas: statuses, positions
                    |--> SinkView           batches of sinks, staged and committed
                    |--> GroupView          consumer groups: members, lag, dead letters
                    |--> LogView            records, offsets, long polls
                    |--> SessionRecordsView records of persistent sessions
                    `--> Appending          publishing, answered after commit
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from flockmq.admin.durable_port import Message, MetaStatus
from flockmq.cluster.filters import namespace_prefix
from flockmq.drivers.clock import now_ms
from flockmq.durable.cursors.cursors import DONE, NAMES_MAX
from flockmq.durable.replicas.status import FOLLOWING, LEARNING
from flockmq.durable.state.group0 import GROUP
from flockmq.errors import NoLeader, NotReady, OutcomeUnknown, Refused, TryAgain
from flockmq.node.publishing import WHY_NAMESPACE_FULL
from flockmq.peering.kinds import DECIDERS, SEGMENTS
from flockmq.server.durable_groups import GroupView
from flockmq.server.durable_log_view import LogView
from flockmq.server.durable_reports import Deciders, Reports
from flockmq.server.durable_runs import runs_of
from flockmq.server.durable_sessions import SessionRecordsView
from flockmq.server.durable_sinks import SinkView

if TYPE_CHECKING:
    from flockmq.admin.metrics import Number
    from flockmq.cluster.commands import Command, Result
    from flockmq.cluster.dump import SegmentReport
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.state import ClusterState
    from flockmq.durable.publish.answers import Place
    from flockmq.durable.replicas.status import ReplicaStatus
    from flockmq.server.cluster import ClusterService

GROUPS_PER_QUESTION: Final = 1_024
FIGURES_MS: Final = 500
"""How long counted figures are good for: a scrape reads them one by one."""
WHY_UNKNOWN: Final = "No node could say in time whether the records were stored; look before publishing them again."


class DurableView(LogView, SinkView, SessionRecordsView):
    """See the module; a ``DurablePort``."""

    def __init__(self, service: ClusterService) -> None:
        super().__init__(service)
        self.groups = GroupView(service)
        self._figures: dict[str, Number] = {}
        self._figures_at = 0
        self._reports = Reports(self._node)
        service.node.calls.serve(SEGMENTS, self._reports.segments)
        service.node.calls.serve(DECIDERS, self._reports.deciders)

    # --- what is known here ---

    def state(self) -> ClusterState:
        """See ``DurablePort``."""
        return self._node.meta.state

    def is_current(self) -> bool:
        """See ``DurablePort``."""
        return self._service.is_current()

    def figures(self) -> dict[str, Number]:
        """See ``DurablePort``."""
        now = now_ms()
        if now - self._figures_at >= FIGURES_MS or not self._figures:
            self._figures = self._count()
            self._figures_at = now
        return self._figures

    def _count(self) -> dict[str, Number]:
        node = self._node
        engine = node.engine
        state = node.meta.state
        groups = [group for group in engine.replicas if group != GROUP]
        machines = node.machines.by_group
        led = [machines[group].sinks for group in groups if group in machines and engine.is_leader(group)]
        broken = sum(1 for group in groups if group in engine.host.broken or not engine.leader_of(group))
        return {
            "cluster_state_index": state.index,
            "cluster_state_leader": int(node.meta.is_leader),
            "topics": state.user_topic_count(),
            "partitions": len(state.places),
            "partitions_led": sum(1 for group in groups if engine.is_leader(group)),
            "partition_replicas": len(groups),
            "partition_replicas_unhealthy": broken,
            "replicas_stopped": len(engine.replicas) if engine.stopped else len(engine.host.broken),
            "partitions_moving": len(state.moving()),
            "log_damaged_batches": node.scrubbing.mending.damaged_batches(),
            "log_damaged_batches_found": node.scrubbing.mending.found,
            "log_repaired_batches": node.scrubbing.mending.repaired,
            "log_scrubbed_bytes": node.scrubbing.bytes,
            "log_differing_blocks": sum(node.scrubbing.digests.differing(group)[0] for group in engine.replicas),
            "sink_staged_bytes": sum(sinks.bytes for sinks in led),
            "sink_commits": sum(len(sinks.committing) for sinks in led),
            **self._sessions_logged(),
            "capture_filters": len(node.broker.node.table.capture),
            "capture_lease": int(node.session_room.leases.is_held(now_ms())),
            "capture_leases": node.session_room.leases.count_held(now_ms()),
            "capture_bytes": self._capture_bytes(),
            "session_gap_records": node.delivery.readers.gone,
            "session_claims": node.session_room.claims.count,
            **node.session_room.claims.waits.figures("session_claim_seconds"),
        }

    def ends(self) -> dict[int, int]:
        """See ``DurablePort``."""
        node = self._node
        engine = node.engine
        led = [group for group in engine.replicas if group != GROUP and engine.is_leader(group)]
        return {group: max(node.local.end(group), 0) for group in led}

    # --- what others are asked ---

    async def command(self, command: Command) -> Result:
        """See ``DurablePort``."""
        node = self._working()
        try:
            result: Result = await self._await(node.meta.submit(command))
        except TryAgain:
            raise OutcomeUnknown(
                "No node said in time whether the change was made; see what is there before you make it again."
            ) from None
        if result.ok:
            with suppress(TryAgain):  # the change is made, whichever nodes know of it
                await self._await(node.barrier.wait(node.meta.state.index, now_ms()))
        return result

    async def meta(self) -> MetaStatus:
        """See ``DurablePort``."""
        node = self._working()
        found = await self.deciders()
        return MetaStatus(found.leader, found.voters, found.learners, node.meta.state.index)

    async def deciders(self) -> Deciders:
        """The nodes that decide, from the replica of group 0 here, or from another node that knows a leader."""
        here = self._reports.deciders_here()
        if here is not None:
            return here
        found = Deciders(0, (), ())
        heads = self._node.meta.facts.heads()
        for peer in [peer for peer, head in heads.items() if head.has_replica]:
            body = await self._call(peer, DECIDERS, b"")
            found = (Reports.read_deciders(body) if body else None) or found
            if found.leader:
                break
        return found

    async def replicas(self, groups: Sequence[int] | None) -> dict[int, list[ReplicaStatus]]:
        """See ``DurablePort``."""
        state = self._working().meta.state
        wanted = list(state.places) if groups is None else [group for group in groups if group in state.places]
        asked = _by_node(state, wanted)
        statuses = self._working().statuses
        answers = await asyncio.gather(*(self._await(statuses.ask(member, some)) for member, some in asked))
        found: dict[int, list[ReplicaStatus]] = {group: [] for group in wanted}
        learners = {(group, node) for group in wanted for node in _learners(state, group)}
        for (member, _), told in zip(asked, answers, strict=True):
            for one in told or ():
                if one.role == FOLLOWING and (one.group, member) in learners:
                    one.role = LEARNING
                if one.group in found:
                    found[one.group].append(one)
        return found

    async def scrub(self, groups: Sequence[int]) -> tuple[int, list[int]]:
        """See ``DurablePort``."""
        scrubbing = self._working().scrubbing
        state = self._working().meta.state
        asked = _by_node(state, [group for group in groups if group in state.places])
        answers = await asyncio.gather(*(self._await(scrubbing.ask_scrub(member, some)) for member, some in asked))
        silent = [member for (member, _), count in zip(asked, answers, strict=True) if count < 0]
        return sum(count for count in answers if count > 0), silent

    async def segments(self) -> list[SegmentReport]:
        """See ``DurablePort``."""
        me = self._service.node.node_id
        peers = [me, *self._service.links.connected()]
        found = await asyncio.gather(*(self._segments_of(peer, me) for peer in peers))
        return [report for reports in found for report in reports]

    async def _segments_of(self, peer: int, me: int) -> list[SegmentReport]:
        """All segments of a node, a bounded number at a time."""
        found: list[SegmentReport] = []
        after = 0
        while True:
            question = Reports.ask_segments(after)
            body = self._reports.segments(question) if peer == me else await self._call(peer, SEGMENTS, question)
            page = Reports.read_segments(body) if body else []
            if not page or page[-1].group <= after:
                return found
            found += page
            after = page[-1].group

    # --- publishing ---

    async def publish(
        self, topic: TopicRecord, client: bytes, messages: Sequence[Message]
    ) -> list[tuple[int, int] | str]:
        """See ``DurablePort``."""
        node = self._working()
        found = node.broker.node.table.topics.topics.get(f"{topic.namespace}/{topic.name}".encode())
        if found is None:
            raise NotReady("This node is only about to hear of the topic; try again in a moment.")
        now = now_ms()
        name = namespace_prefix(topic.namespace) + client if client else b""
        runs = runs_of(messages, now)
        answers = [
            self._future(lambda done, run=run: node.appending.publish(found, run, name, done, now))  # type: ignore[misc]
            for run in runs
        ]
        self._service.runner.runner.flush_soon()
        places: list[Place | str] = []
        try:
            outcomes = await asyncio.gather(*answers)
        except TryAgain:
            raise OutcomeUnknown(WHY_UNKNOWN) from None
        for outcome in outcomes:
            if outcome is None:
                raise OutcomeUnknown(WHY_UNKNOWN)
            places += outcome
        if WHY_NAMESPACE_FULL in places:
            raise Refused(WHY_NAMESPACE_FULL)  # of one topic, at one moment: it is so for all of them
        return places

    # --- cursors ---

    async def positions(self, wanted: Sequence[tuple[str, int]]) -> list[int | None]:
        """See ``DurablePort``."""
        cursors = self._working().cursors
        names: dict[int, list[bytes]] = {}
        for name, group in wanted:
            names.setdefault(group, []).append(name.encode())
        same: dict[tuple[bytes, ...], list[int]] = {}
        for group, some in names.items():
            for at in range(0, len(some), NAMES_MAX):
                same.setdefault(tuple(some[at : at + NAMES_MAX]), []).append(group)
        asked = [self._await(cursors.positions(groups, list(some))) for some, groups in same.items()]
        answers = await asyncio.gather(*asked)
        # Groups whose leaders did not answer are missing there: their cursors may stand anywhere.
        found = {(one.name.decode(), one.group): one.offset for positions in answers for one in positions.found}
        return [found.get(one) for one in wanted]

    async def commit(self, cursor: str, group: int, offset: int, *, is_reset: bool = False) -> None:
        """See ``DurablePort``."""
        cursors = self._working().cursors
        name = cursor.encode()
        move = cursors.reset if is_reset else cursors.commit
        moved = await self._await(move(group, name, offset))
        if moved.code != DONE:
            raise NoLeader(moved.reason)


def _learners(state: ClusterState, group: int) -> list[int]:
    """The node that is on the way to become a replica."""
    if group not in state.places:
        return []  # deleted while nodes were asked
    partition = state.partition(group)
    return [node for node in partition.members() if node not in partition.replicas]


def _by_node(state: ClusterState, groups: list[int]) -> list[tuple[int, list[int]]]:
    """What to ask which node for, so many groups at a time."""
    by_node: dict[int, list[int]] = {}
    for group in groups:
        for member in state.partition(group).members():
            by_node.setdefault(member, []).append(group)
    return [
        (member, some[at : at + GROUPS_PER_QUESTION])
        for member, some in by_node.items()
        for at in range(0, len(some), GROUPS_PER_QUESTION)
    ]
