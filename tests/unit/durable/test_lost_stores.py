"""A node whose store was lost is a newcomer: what others acknowledged together with it stays."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import AcceptLoss, CreateTopic
from flockmq.testing.lockstep_nodes import NodesLockstep
from unit.durable.replicas.test_partitions import grown

LAST = 60


def with_records(cluster: NodesLockstep, away: int) -> None:
    """A topic on three nodes; one of them is away while records are acknowledged."""
    publisher = next(node.number for node in cluster.running() if node.number != away)
    cluster.until(lambda: len(cluster.voters(1)) == 3)
    cluster[away].kill()
    for number in range(LAST):
        assert cluster.append(publisher, 1, b"%d" % number) == number


def wipe(cluster: NodesLockstep, number: int) -> None:
    """Its store is gone, the copy of the cluster state and its id stay."""
    cluster[number].kill()
    cluster[number].disk.wipe()


def is_whole(cluster: NodesLockstep, number: int) -> bool:
    return cluster[number].payloads(1) == [b"%d" % one for one in range(LAST)]


@pytest.mark.parametrize(("first", "wiped", "away"), [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)])
def test_three_nodes_lose_nothing_with_one_store(first: int, wiped: int, away: int) -> None:
    """Node 1 minted the cluster: each of the three plays each part."""
    cluster = grown(3)
    assert cluster.submit(1, CreateTopic("t")).ok
    with_records(cluster, away)
    cluster[first].kill()
    wipe(cluster, wiped)
    cluster[wiped].start()
    cluster[away].start()
    cluster.run(10_000)
    assert cluster.leader(1) is None, "neither of the two has all that was acknowledged and knows it"
    cluster[first].start()
    cluster.until(lambda: all(is_whole(cluster, number) for number in (1, 2, 3)))
    assert cluster.append(away, 1, b"more") == LAST
    cluster.until(
        lambda: (
            all(cluster[number].engine.host.groups[group].state.health == 0 for number in (1, 2, 3) for group in (0, 1))
            and cluster.voters(0) == cluster.voters(1) == (1, 2, 3)
        )
    )


def test_five_nodes_lose_nothing_though_the_rest_of_the_cluster_decides() -> None:
    cluster = grown(5)
    assert cluster.submit(1, CreateTopic("t")).ok
    cluster.until(lambda: cluster.leader(1) is not None)
    leader = cluster.leader(1)
    assert leader is not None
    others = [node for node in cluster.voters(1) if node != leader.number]
    wiped, away = others
    with_records(cluster, away)
    leader.kill()
    wipe(cluster, wiped)
    cluster[away].start()
    cluster[wiped].start()
    cluster.until(lambda: cluster[wiped].meta.is_current and not cluster[wiped].partitions.pending)
    cluster.run(5_000)
    assert cluster.leader(1) is None
    leader.start()
    cluster.until(lambda: all(is_whole(cluster, number) for number in (leader.number, wiped, away)))


def test_the_state_knows_each_nodes_store_and_strikes_founders_that_lost_theirs() -> None:
    cluster = grown(3)
    assert cluster.submit(1, CreateTopic("t")).ok
    cluster.until(lambda: len(cluster.voters(1)) == 3)
    before = cluster[3].store.identity
    wipe(cluster, 3)
    cluster[3].start()
    after = cluster[3].store.identity
    assert after != before
    state = cluster[1].meta.state
    cluster.until(lambda: cluster[1].meta.state.nodes[3].store == after)
    assert cluster[1].meta.state.nodes[3].retired == (before,)
    assert state.partition(1).founders == (1, 2)
    assert state.partition(1).first == (1, 2, 3)


def test_a_topic_that_is_made_later_begins_on_the_new_store() -> None:
    cluster = grown(3)
    wipe(cluster, 3)
    cluster[3].start()
    cluster.until(lambda: cluster[1].meta.state.nodes[3].store == cluster[3].store.identity)
    assert cluster.submit(1, CreateTopic("t")).ok
    cluster.until(lambda: len(cluster.voters(1)) == 3)
    cluster.until(lambda: 1 in cluster[3].engine.replicas)
    assert cluster[3].engine.host.groups[1].state.health == 0
    assert cluster[1].meta.state.partition(1).founders == (1, 2, 3)


def test_a_partition_without_other_replicas_stays_down_until_its_loss_is_accepted() -> None:
    cluster = grown(3)
    assert cluster.submit(1, CreateTopic("t", replication_factor=1)).ok
    cluster.until(lambda: cluster.leader(1) is not None)
    leader = cluster.leader(1)
    assert leader is not None
    cluster.append(leader.number, 1, b"lost")
    wipe(cluster, leader.number)
    leader.start()
    cluster.until(lambda: 1 in leader.engine.replicas)
    cluster.run(20_000)
    assert cluster.leader(1) is None
    status = leader.partitions.status(1)
    assert status is not None
    assert status.health == "forgotten"
    other = 1 + leader.number % 3
    assert cluster.submit(other, AcceptLoss(1, leader.number)).ok
    cluster.until(lambda: cluster.leader(1) is leader)
    assert cluster.append(other, 1, b"new") == 0
    cluster.until(lambda: leader.meta.state.partition(1).heir == 0)
    leader.kill()
    leader.start()
    cluster.until(lambda: cluster.leader(1) is leader)
    assert leader.payloads(1) == [b"new"]


def test_of_three_replicas_with_two_lost_stores_the_third_goes_on_with_all_it_has() -> None:
    """Group 0 can still decide: it has a fourth and a fifth voter."""
    cluster = grown(5)
    assert cluster.submit(1, CreateTopic("t")).ok
    cluster.until(lambda: len(cluster.voters(1)) == 3)
    heir, *wiped = cluster.voters(1)
    for number in range(LAST):
        assert cluster.append(heir, 1, b"%d" % number) == number
    cluster.until(lambda: is_whole(cluster, heir))
    for number in wiped:
        wipe(cluster, number)
    cluster[heir].kill()
    for number in (*wiped, heir):
        cluster[number].start()
    cluster.until(lambda: all(1 in cluster[number].engine.replicas for number in wiped))
    cluster.run(10_000)
    assert cluster.leader(1) is None
    assert cluster.submit(heir, AcceptLoss(1, heir)).ok
    cluster.until(lambda: cluster.leader(1) is not None)
    cluster.until(lambda: all(is_whole(cluster, number) for number in (heir, *wiped)))
    cluster.until(lambda: set(cluster.voters(1)) == {heir, *wiped})
    assert cluster.append(wiped[0], 1, b"more") == LAST
    assert cluster[heir].meta.state.partition(1).heir == 0


def test_an_heir_that_still_knows_a_leader_goes_on_when_that_is_gone() -> None:
    cluster = grown(3)
    assert cluster.submit(1, CreateTopic("t", replication_factor=1)).ok
    cluster.until(lambda: cluster.leader(1) is not None)
    heir = cluster.leader(1)
    assert heir is not None
    wipe(cluster, heir.number)
    heir.start()
    cluster.until(lambda: 1 in heir.engine.replicas)
    other = 1 + heir.number % 3
    heir.engine.host.groups[1].state.leader = other  # that told it so, and is gone before it made it a voter
    assert cluster.submit(other, AcceptLoss(1, heir.number)).ok
    cluster.until(lambda: heir.meta.state.partition(1).heir == heir.number and not heir.partitions.pending)
    assert heir.engine.host.groups[1].state.leader == other
    heir.engine.host.groups[1].state.leader = 0
    cluster.until(lambda: cluster.leader(1) is heir)
