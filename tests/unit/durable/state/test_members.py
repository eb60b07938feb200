"""The leader of group 0 follows gossip: nodes, voters, moves, and what becomes of the dead."""

from __future__ import annotations

from functools import partial

from flockmq.cluster.commands import CreateTopic, SetSetting
from flockmq.cluster.model import ALIVE, DEAD
from flockmq.durable.state.members import MOVES_AT_ONCE
from flockmq.gossip.member import LEFT, Member
from flockmq.testing.lockstep_nodes import NodesLockstep


def has(cluster: NodesLockstep, node: int, voters: int) -> bool:
    return node in cluster[1].meta.state.nodes and len(cluster.voters()) == voters


def seated(cluster: NodesLockstep, *voters: int) -> None:
    cluster.until(lambda: cluster.voters() == voters)


def test_voters_grow_with_the_cluster_up_to_five() -> None:
    cluster = NodesLockstep(cores=7)
    cluster.found()
    seated(cluster, 1)
    for number, expected in ((2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (7, 5)):
        cluster[number].start()
        cluster.until(partial(has, cluster, number, expected))
    cluster.until(lambda: len({node.meta.state.encode() for node in cluster.running()}) == 1)
    without = [node for node in cluster.running() if node.number not in cluster.voters()]
    assert len(without) == 2
    assert cluster.submit(without[0].number, SetSetting("a", 1)).ok


def test_two_nodes_are_warned_of() -> None:
    cluster = NodesLockstep(cores=2)
    cluster.found(2)
    seated(cluster, 1, 2)
    leader = cluster.leader()
    assert leader is not None
    cluster.until(lambda: "third" in leader.members.warning)
    told = leader.engine.events
    cluster.until(lambda: bool(told))
    cluster.run(60_000)
    assert told == [("two_voters", {"message": leader.members.warning})]


def test_a_cluster_that_grows_past_two_nodes_at_once_hears_no_warning() -> None:
    cluster = NodesLockstep(cores=3)
    cluster.found(2)
    seated(cluster, 1, 2)
    cluster[3].start()
    seated(cluster, 1, 2, 3)
    cluster.run(30_000)
    assert all(not node.engine.events for node in cluster.running())


def test_edge_nodes_never_vote() -> None:
    cluster = NodesLockstep(cores=1, edges=2)
    cluster.found(2, 3)
    cluster.until(lambda: len(cluster[1].meta.state.nodes) == 3)
    cluster.run(5_000)
    assert cluster.voters() == (1,)
    assert not cluster[2].meta.has_replica


def test_the_dead_are_noted_and_the_living_again() -> None:
    cluster = NodesLockstep(cores=3)
    cluster.found(2, 3)
    seated(cluster, 1, 2, 3)
    cluster[3].kill()
    cluster.until(lambda: cluster[1].meta.state.nodes[3].state == DEAD)
    cluster[3].start()
    cluster.until(lambda: cluster[1].meta.state.nodes[3].state == ALIVE)
    assert cluster.voters() == (1, 2, 3)


def test_a_spare_node_takes_the_seat_of_a_dead_one() -> None:
    cluster = NodesLockstep(cores=4)
    cluster.found(2, 3, 4)
    cluster.until(lambda: len(cluster[1].meta.state.nodes) == 4 and len(cluster.voters()) == 3)
    dead = next(number for number in cluster.voters() if number != 1)
    spare = next(number for number in range(1, 5) if number not in cluster.voters())
    cluster[dead].kill()
    cluster.until(lambda: spare in cluster.voters() and dead not in cluster.voters())
    cluster[dead].start()
    cluster.until(lambda: cluster[1].meta.state.nodes[dead].state == ALIVE)
    # It hears no leader any more, asks, and gives its replica up; or it is needed and stays.
    cluster.until(lambda: cluster[dead].meta.has_replica == (dead in cluster.voters()))
    cluster.until(lambda: cluster[dead].meta.state.index == cluster[1].meta.state.index)
    assert cluster.submit(dead, SetSetting("a", 1)).ok


def test_a_topic_grows_with_the_nodes() -> None:
    cluster = NodesLockstep(cores=3)
    cluster.found()
    cluster.until(lambda: 1 in cluster[1].meta.state.nodes)
    assert cluster.submit(1, CreateTopic("t", shards=6)).ok
    cluster.until(lambda: all(cluster.leader(group) is not None for group in range(1, 7)))
    for group in range(1, 7):
        cluster.append(1, group, b"a")
    cluster[2].start()
    cluster[3].start()
    moving: list[int] = []

    def grown() -> bool:
        state = cluster[1].meta.state
        moving.append(len(state.moving()))
        return all(len(partition.replicas) == 3 for partition in state.partitions())

    cluster.until(grown, 120_000)
    assert max(moving) == MOVES_AT_ONCE
    cluster.until(lambda: all(cluster[3].payloads(group) == [b"a"] for group in range(1, 7)))
    leaders = [partition.preferred for partition in cluster[1].meta.state.partitions()]
    cluster.until(
        lambda: sorted(each.preferred for each in cluster[1].meta.state.partitions()) == [1, 1, 2, 2, 3, 3], 60_000
    )
    assert len(leaders) == 6


def test_what_a_lost_node_had_is_rebuilt_and_the_node_forgotten() -> None:
    cluster = NodesLockstep(cores=4)
    cluster.found(2, 3, 4)
    cluster.until(lambda: len(cluster[1].meta.state.nodes) == 4 and len(cluster.voters()) == 3)
    assert cluster.submit(1, CreateTopic("t", shards=4)).ok
    cluster.until(lambda: all(len(cluster.voters(group)) == 3 for group in range(1, 5)))
    for group in range(1, 5):
        cluster.append(1, group, b"a")
    cluster[4].kill()
    cluster.until(lambda: 4 not in cluster[1].meta.state.nodes, 120_000)
    for partition in cluster[1].meta.state.partitions():
        assert 4 not in partition.members()
        assert len(partition.replicas) == 3
    # It comes back with what it had, is told that nothing of that counts, and begins as a new node.
    cluster[4].start()
    cluster.until(lambda: 4 in cluster[1].meta.state.nodes)
    cluster.until(lambda: cluster[4].meta.is_current, 60_000)
    cluster.until(lambda: cluster[4].meta.has_replica == (4 in cluster.voters()), 60_000)
    for group in range(1, 5):
        assert cluster.append(4, group, b"b") == 1
    cluster.until(
        lambda: all(
            (4 in partition.members()) == (partition.group in cluster[4].store.groups)
            for partition in cluster[4].meta.state.partitions()
        )
    )


def test_a_minority_removes_nobody() -> None:
    cluster = NodesLockstep(cores=3)
    cluster.found(2, 3)
    seated(cluster, 1, 2, 3)
    cluster.isolate(1)
    cluster.run(90_000)
    assert set(cluster[1].meta.state.nodes) == {1, 2, 3}
    assert not cluster[1].meta.is_leader
    # The others have taken it for lost meanwhile. It is welcome again.
    assert set(cluster[2].meta.state.nodes) == {2, 3}
    cluster.heal()
    cluster.until(lambda: set(cluster[1].meta.state.nodes) == {1, 2, 3} and cluster.voters() == (1, 2, 3))
    cluster.until(lambda: len({node.meta.state.encode() for node in cluster.running()}) == 1)


def test_whoever_stopped_in_good_order_is_dead_but_not_gone() -> None:
    from flockmq.durable.state.members import seen_member

    assert seen_member(Member(1, 1, "n", "h", 1, 0, LEFT)).state == DEAD
