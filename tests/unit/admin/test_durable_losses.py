"""Which replica goes on when most of a partition is lost."""

from __future__ import annotations

import pytest

from flockmq.admin import durable_model as model
from flockmq.admin.durable_losses import accept_loss, heir
from flockmq.admin.durable_port import FOLLOWING, ReplicaStatus
from flockmq.admin.errors import ApiError
from flockmq.cluster.commands import AcceptLoss, CreateTopic
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import MemoryDurable


def told(node: int, end: int = 0, *, is_lost: bool = False, last_term: int = 1, last: int = 0) -> ReplicaStatus:
    return ReplicaStatus(node, FOLLOWING, 0, 7, 0, end, 0, is_lost=is_lost, last_term=last_term, last=last)


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
