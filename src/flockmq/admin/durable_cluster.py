"""The operations on all partitions together: evening them out, and showing everything that the cluster agreed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.admin import durable_tenants_model as model
from flockmq.admin.durable_common import change, durable
from flockmq.admin.durable_views import leader_among, node_name
from flockmq.cluster.advice import MOVE, ReplicaAdvice, plan_advice
from flockmq.cluster.advice import REFUSED as NOT_DONE
from flockmq.cluster.commands import Moves, Rebalance, RefusedError
from flockmq.cluster.dump import dump
from flockmq.errors import REFUSED, ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flockmq.admin.desk import Desk
    from flockmq.admin.operations import Call, NoQuery
    from flockmq.cluster.advice import Advice, Step
    from flockmq.cluster.state import ClusterState
    from flockmq.durable.replicas.status import ReplicaStatus

MOVES_LISTED_MAX: Final = 100


async def start_rebalance(desk: Desk, call: Call[model.RebalanceQuery, None]) -> model.Rebalance:
    """Begin to move replicas and leaders."""
    value = await change(desk, Rebalance(call.query.moves_max))
    moves = value if isinstance(value, Moves) else None
    told = await _told(desk)
    return _progress(durable(desk).state(), told, moves)


async def apply_advice(desk: Desk, call: Call[model.AdviceQuery, Advice]) -> model.AdviceOutcome:
    """Put leaders and copies where an adviser that measured wants them."""
    port = durable(desk)
    try:
        plan = plan_advice(port.state(), call.body)
    except RefusedError as error:
        raise ApiError(REFUSED, str(error)) from None
    if not call.query.dry_run:
        for command in plan.commands:
            result = await port.command(command)
            if result.ok:
                continue
            for step in plan.steps:
                if step.group == command.group:
                    step.outcome, step.reason = NOT_DONE, result.error
    outcomes = [step.outcome for step in plan.steps]
    return model.AdviceOutcome(
        dry_run=call.query.dry_run,
        made_at=call.body.made_at,
        moves=outcomes.count(MOVE),
        refused=outcomes.count(NOT_DONE),
        steps=[_step_view(step) for step in plan.steps],
    )


def _step_view(step: Step) -> model.AdviceStep:
    entry = step.entry
    return model.AdviceStep(
        what="copy" if isinstance(entry, ReplicaAdvice) else "leader",
        namespace=entry.namespace,
        topic=entry.topic,
        shard=entry.shard,
        group=step.group,
        from_node=step.from_node,
        to_node=entry.to_node,
        outcome=step.outcome,
        reason=step.reason,
        why=entry.why,
    )


async def get_rebalance(desk: Desk, _call: Call[NoQuery, None]) -> model.Rebalance:
    """How much is left."""
    return _progress(durable(desk).state(), await _told(desk), None)


def _progress(state: ClusterState, told: dict[int, list[ReplicaStatus]], moves: Moves | None) -> model.Rebalance:
    moving: list[model.Move] = []
    moves_left = leaders_left = unknown = 0
    for topic in state.topics.values():
        for partition in topic.partitions:
            leader = leader_among(told.get(partition.group, ()))
            if not leader:
                unknown += 1
            elif partition.preferred and leader != partition.preferred:
                leaders_left += 1
            if not partition.is_moving:
                continue
            moves_left += 1
            if len(moving) < MOVES_LISTED_MAX:
                moving.append(
                    model.Move(
                        group=partition.group,
                        namespace=topic.namespace,
                        topic=topic.name,
                        shard=partition.shard,
                        replicas=[node_name(state.nodes, node) for node in partition.replicas],
                        target=[node_name(state.nodes, node) for node in partition.target],
                    )
                )
    return model.Rebalance(
        begun=moves.begun if moves is not None else 0,
        remaining=moves.remaining if moves is not None else None,
        moving=moving,
        moves_left=moves_left,
        leaders_left=leaders_left,
        unknown=unknown,
        settled=not (moves_left or leaders_left or unknown),
    )


async def get_dump(desk: Desk, _call: Call[NoQuery, None]) -> Mapping[str, object]:
    """Everything that the cluster agreed on, and the segments that replicas hold."""
    port = durable(desk)
    segments = await port.segments()
    return dump(port.state(), segments)


async def _told(desk: Desk) -> dict[int, list[ReplicaStatus]]:
    return await durable(desk).replicas(None)
