"""Where logs begin and end, and which offset was at a time: from leaders, from a quorum, and from all replicas."""

from __future__ import annotations

from flockmq.durable.logs.locating import LEADERS, QUORUM, REPLICAS, Located
from flockmq.log.starts import EARLIEST, LATEST, OFFSET, TIME, Start
from flockmq.tasks import Running
from partition_cluster import WALL_MS, PartitionCluster


def locate(
    cluster: PartitionCluster, number: int, start: Start, sure: int = LEADERS, groups: tuple[int, ...] = (1,)
) -> Running[dict[int, Located]]:
    node = cluster.nodes[number]
    node.calls.tasks.now = cluster.now
    return node.logs.locate(list(groups), start, sure)


def ask(cluster: PartitionCluster, number: int, sure: int = LEADERS, group: int = 1) -> list[int]:
    """Where a log ends: nothing before there is an answer, then the end, or -1."""
    told: list[int] = []

    def answered(found: dict[int, Located]) -> None:
        told.append(found[group].end if group in found else -1)

    locate(cluster, number, Start(LATEST), sure, (group,)).then(answered)
    return told


def test_any_node_learns_the_end() -> None:
    cluster = PartitionCluster(nodes=4, groups=2)
    cluster.fill(1, 20)
    for sure in (LEADERS, QUORUM):
        told = [ask(cluster, number, sure) for number in cluster.nodes]
        empty = ask(cluster, 4, sure, 2)
        cluster.run(1_000)
        assert told == [[20]] * 4
        assert empty == [0]


def test_a_leader_that_is_cut_off_is_not_believed() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 3)
    old = cluster.leader(1)
    cluster.lost = lambda sender, receiver: old.id in (sender, receiver)
    cluster.run(1_000)  # its lease is over
    told = ask(cluster, old.id, QUORUM)
    cluster.run(4_000)
    assert told == [-1], "its followers may have gone on without it"
    others = [number for number in cluster.nodes if number != old.id]
    answers = [ask(cluster, number, QUORUM) for number in others]
    cluster.run(1_000)
    assert answers == [[3], [3]]


def test_nobody_can_tell_without_a_quorum() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 3)
    leader = cluster.leader(1)
    for number in cluster.nodes:
        if number != leader.id:
            cluster.kill(number)
    cluster.run(1_000)
    told = ask(cluster, leader.id, QUORUM)
    cluster.run(4_000)
    assert told == [-1]


def test_starts_in_many_logs_at_once() -> None:
    cluster = PartitionCluster(nodes=4, groups=3)
    cluster.fill(1, 3)
    cluster.run(1_000)
    later = cluster.now - cluster.start + WALL_MS
    cluster.fill(1, 2)
    cluster.fill(3, 1)
    for start, offsets in (
        (Start(LATEST), {1: 5, 2: 0, 3: 1}),
        (Start(EARLIEST), {1: 0, 2: 0, 3: 0}),
        (Start(OFFSET, 4), {1: 4, 2: 0, 3: 1}),
        (Start(TIME, later), {1: 3, 2: 0, 3: 0}),
    ):
        told = locate(cluster, 4, start, groups=(1, 2, 3))
        cluster.run(1_000)
        assert {group: one.offset for group, one in told.value.items()} == offsets
        assert {group: (one.first, one.end) for group, one in told.value.items()} == {1: (0, 5), 2: (0, 0), 3: (0, 1)}


def test_of_all_replicas_the_oldest_answer_counts() -> None:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, 5)
    for number in (1, 2, 3):
        cluster.nodes[number].logs.caught_up.add(1)
    told = locate(cluster, 4, Start(EARLIEST), REPLICAS)
    cluster.run(200)
    assert (told.value[1].offset, told.value[1].end) == (0, 5)
    cluster.nodes[2].logs.caught_up.clear()
    told = locate(cluster, 4, Start(OFFSET, 0), REPLICAS)
    cluster.run(200)
    assert told.value == {}, "a replica that does not know yet may have an older beginning"
    told = locate(cluster, 4, Start(EARLIEST), REPLICAS)
    cluster.run(200)
    assert told.value[1].offset == 0, "where its own log begins it knows"
    told = locate(cluster, 4, Start(OFFSET, 3), REPLICAS)
    cluster.run(200)
    assert told.value[1].offset == 3


def leads(cluster: PartitionCluster) -> bool:
    return any(node.running and node.engine.is_leader(1) for node in cluster.nodes.values())


def test_a_new_leader_tells_the_end_only_when_it_knows_all_that_was_acknowledged() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    old = cluster.leader(1)
    cluster.fill(1, 3)
    sent = cluster.publish(old.id, 1, b"acknowledged")
    while not sent.outcomes:
        cluster.turn()
    cluster.flying = []  # nobody else hears that it is committed
    cluster.kill(old.id)
    while not leads(cluster):
        cluster.now += 50
        for number in cluster.alive():
            cluster.nodes[number].tick(cluster.now)
        for _ in range(4):
            if not leads(cluster):
                cluster.turn()
    new = cluster.leader(1)
    assert new.local.end(1) == 3, "it has the entry, and does not know yet that it is committed"
    told = ask(cluster, new.id)
    assert told == []
    cluster.run(500)
    assert told == [4]


def test_a_leader_that_stood_still_tells_nothing_before_it_heard_the_others() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 3)
    cluster.run(5_000)
    old = cluster.leader(1)
    assert ask(cluster, old.id) == [3]
    old.running = False  # it is stopped, not gone: nobody has told it anything
    cluster.run(5_000)
    cluster.publish(cluster.leader(1).id, 1, b"meanwhile")
    cluster.run(200)
    old.running = True
    assert old.engine.is_leader(1), "as far as it knows"
    told = ask(cluster, old.id)
    assert told == []
    old.tick(cluster.now)
    assert told == [], "its clock has jumped: it has heard nobody since"
    cluster.run(1_000)
    assert told == [4]


def test_a_leader_that_hears_one_member_again_tells_nothing_before_that_member_has_answered_for_the_group() -> None:
    cluster = PartitionCluster(nodes=3, groups=1)
    cluster.fill(1, 3)
    cluster.run(5_000)
    old = cluster.leader(1)
    assert ask(cluster, old.id) == [3]
    old.running = False  # it is stopped, not gone: nobody has told it anything
    cluster.run(5_000)
    new = cluster.leader(1)
    cluster.publish(new.id, 1, b"meanwhile")
    cluster.run(200)
    old.running = True
    cluster.lost = lambda one, other: {one, other} == {old.id, new.id}
    while all(peer.heard_raw < cluster.now for peer in old.engine.host.peers.values()):
        cluster.tick()
        cluster.turn()
    assert old.engine.is_leader(1), "as far as it knows"
    told = ask(cluster, old.id)
    assert told == []
    cluster.run(1_000)
    assert told == []
    assert not old.engine.is_leader(1)
    cluster.lost = lambda one, other: False
    cluster.run(1_000)
    assert told == [4]
