"""Which replica goes on when most of a partition is lost."""

from __future__ import annotations

import pytest

from flockmq.admin import durable_model as model
from flockmq.admin.durable_losses import accept_loss, heir
from flockmq.admin.durable_views import is_lost
from flockmq.cluster.commands import AcceptLoss, CreateTopic
from flockmq.cluster.model import PartitionRecord
from flockmq.durable.replicas.status import FOLLOWING, ReplicaStatus
from flockmq.errors import ApiError
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import MemoryDurable


def told(
    node: int, end: int = 0, *, is_lost: bool = False, is_refilled: bool = False, last_term: int = 1, last: int = 0
) -> ReplicaStatus:
    return ReplicaStatus(
        node, FOLLOWING, 0, 7, 0, end, 0, is_lost=is_lost, last_term=last_term, last=last, is_refilled=is_refilled
    )


def test_the_heir_has_the_latest_log_whatever_it_has_applied() -> None:
    """The last entry may be acknowledged, and its leader gone before a follower heard of that."""
    assert heir([told(1, end=5, last=6), told(2, end=4, last=7)]) == 2


def test_a_later_term_counts_more_than_a_longer_log() -> None:
    assert heir([told(1, last_term=3, last=9), told(2, last_term=4, last=5)]) == 2


def test_an_heir_did_not_lose_its_store_if_any_did_not() -> None:
    assert heir([told(1, last_term=4, last=9, is_lost=True), told(2, last_term=3, last=5)]) == 2


async def test_an_heir_that_is_gone_is_withdrawn_when_others_have_a_leader() -> None:
    port = MemoryDurable(3)
    desk = make_desk(BrokerHarness(), durable=port)
    assert port.apply(CreateTopic("t")).ok
    [partition] = port.state().partitions()
    gone = next(node for node in partition.replicas if node != partition.preferred)
    assert port.apply(AcceptLoss(partition.group, gone)).ok
    asked = call(model.AcceptLossQuery(), group=str(partition.group))
    with pytest.raises(ApiError, match="Nothing is lost"):
        await accept_loss(desk, asked)
    port.silent.add(gone)
    await accept_loss(desk, asked)
    assert port.state().partition(partition.group).heir == 0


def test_a_replica_with_a_part_of_its_log_comes_before_an_empty_one_and_after_a_whole_one() -> None:
    cut = told(1, last=9, is_refilled=True)
    assert heir([cut, told(2, last=8)]) == 2
    assert heir([cut, told(2, last=10, is_lost=True)]) == 1


def test_replicas_that_lost_a_part_of_their_logs_can_not_elect_a_leader() -> None:
    partition = PartitionRecord(1, 0, (1, 2, 3), (1, 2, 3), (1, 2, 3), 1, (1, 2, 3))
    assert not is_lost(partition, [told(1, is_refilled=True), told(2), told(3)])
    assert is_lost(partition, [told(1, is_refilled=True), told(2), told(3, is_lost=True)])
    assert is_lost(PartitionRecord(1, 0, (1,), (1,), (1,), 1, (1,)), [told(1, is_refilled=True)])
