"""Replicas follow the cluster state: begun, moved, removed, and begun again as new."""

from __future__ import annotations

from flockmq.cluster.commands import CreateTopic, DeleteTopic, SetTarget
from flockmq.cluster.model import PartitionRecord
from flockmq.durable.replicas.partitions import lost_groups
from flockmq.testing.lockstep_nodes import NodesLockstep

SEATS = (0, 1, 2, 3, 3, 5)


def grown(cores: int, seed: int = 1) -> NodesLockstep:
    """Nodes that form a cluster, all known to its state."""
    cluster = NodesLockstep(seed, cores=cores)
    cluster.found(*range(2, cores + 1))
    cluster.until(lambda: len(cluster[1].meta.state.nodes) == cores and len(cluster.voters()) == SEATS[cores])
    return cluster


def record(cluster: NodesLockstep, group: int) -> PartitionRecord:
    leader = cluster.leader()
    assert leader is not None
    return leader.meta.state.partition(group)


def holders(cluster: NodesLockstep, group: int) -> tuple[int, ...]:
    return tuple([node.number for node in cluster.running() if group in node.engine.replicas])


def create(cluster: NodesLockstep, name: str = "t", shards: int = 1, factor: int = 3) -> None:
    assert cluster.submit(2, CreateTopic(name, shards=shards, replication_factor=factor)).ok


def test_founders_begin_a_partition_and_the_preferred_one_leads() -> None:
    cluster = grown(3)
    create(cluster, shards=6)
    cluster.until(lambda: all(len(cluster.voters(group)) == 3 for group in range(1, 7)))
    preferred = {group: record(cluster, group).preferred for group in range(1, 7)}
    assert sorted(preferred.values()) == [1, 1, 2, 2, 3, 3]
    cluster.until(lambda: all(cluster[node].engine.is_leader(group) for group, node in preferred.items()))
    assert cluster.append(3, 1, b"a") == 0
    assert cluster.append(2, 1, b"b") == 1
    cluster.until(lambda: all(node.payloads(1) == [b"a", b"b"] for node in cluster.running()))


def test_status_tells_how_a_replica_is() -> None:
    cluster = grown(3)
    create(cluster)
    cluster.until(lambda: cluster.leader(1) is not None)
    cluster.append(2, 1, b"a")
    leader = cluster.leader(1)
    assert leader is not None
    status = leader.partitions.status(1)
    assert status is not None
    assert (status.role, status.leader, status.replicas, status.first_offset, status.end_offset) == (
        "leader",
        leader.number,
        (1, 2, 3),
        0,
        1,
    )
    assert status.health == "sound"
    assert status.size_bytes > 0
    assert status.lag == 0
    assert leader.partitions.status(9) is None


def test_a_restart_opens_what_the_store_has() -> None:
    cluster = grown(3)
    create(cluster, shards=4)
    cluster.until(lambda: all(cluster.leader(group) is not None for group in range(1, 5)))
    cluster.append(1, 2, b"a")
    for node in cluster.running():
        node.kill()
    for number in (1, 2, 3):
        cluster[number].start()
    cluster.until(lambda: all(cluster.leader(group) is not None for group in range(1, 5)))
    assert cluster.append(3, 2, b"b") == 1
    cluster.until(lambda: all(node.payloads(2) == [b"a", b"b"] for node in cluster.running()))
    cluster.until(lambda: all(node.partitions.pending == 0 for node in cluster.running()))


def test_a_move_completes_and_loses_nothing() -> None:
    cluster = grown(5)
    create(cluster, factor=3)
    first = record(cluster, 1).replicas
    cluster.until(lambda: cluster.leader(1) is not None)
    sent = [str(number).encode() for number in range(40)]
    for payload in sent[:20]:
        cluster.append(1, 1, payload)
    stays = first[0]
    others = tuple([number for number in range(1, 6) if number not in first])
    target = (stays, *others)
    assert cluster.submit(1, SetTarget(1, target, others[0])).ok
    for payload in sent[20:]:
        cluster.append(2, 1, payload)
    cluster.until(lambda: set(record(cluster, 1).replicas) == set(target))
    cluster.until(lambda: holders(cluster, 1) == tuple(sorted(target)))
    cluster.until(lambda: all(cluster[number].payloads(1) == sent for number in target))
    cluster.until(lambda: cluster[others[0]].engine.is_leader(1))
    for number in first[1:]:
        assert 1 not in cluster[number].store.groups
        assert not cluster[number].durable.machines.by_group
    assert record(cluster, 1).founders == (stays,)
    assert all(not node.partitions.mover.active for node in cluster.running())


def test_a_move_to_entirely_other_nodes() -> None:
    cluster = grown(4)
    create(cluster, factor=2)
    cluster.until(lambda: cluster.leader(1) is not None)
    first = record(cluster, 1).replicas
    cluster.append(1, 1, b"a")
    target = tuple([number for number in range(1, 5) if number not in first])
    assert cluster.submit(1, SetTarget(1, target)).ok
    cluster.until(lambda: set(record(cluster, 1).replicas) == set(target))
    assert cluster.append(first[0], 1, b"b") == 1
    cluster.until(lambda: holders(cluster, 1) == tuple(sorted(target)))
    cluster.until(lambda: all(cluster[number].payloads(1) == [b"a", b"b"] for number in target))


def test_whoever_left_returns_as_new() -> None:
    cluster = grown(4)
    create(cluster, factor=3)
    cluster.until(lambda: cluster.leader(1) is not None)
    first = record(cluster, 1).replicas
    cluster.append(1, 1, b"a")
    leaver = first[0]
    other = next(number for number in range(1, 5) if number not in first)
    assert cluster.submit(1, SetTarget(1, (*first[1:], other))).ok
    cluster.until(lambda: leaver not in holders(cluster, 1))
    cluster[leaver].kill()
    cluster[leaver].start()
    cluster.append(other, 1, b"b")
    assert cluster.submit(other, SetTarget(1, first)).ok
    cluster.until(lambda: set(record(cluster, 1).replicas) == set(first))
    cluster.until(lambda: cluster[leaver].payloads(1) == [b"a", b"b"])
    status = cluster[leaver].partitions.status(1)
    assert status is not None
    assert status.health == "sound"


def test_a_target_that_is_taken_back_midway() -> None:
    cluster = grown(4)
    create(cluster, factor=3)
    cluster.until(lambda: cluster.leader(1) is not None)
    first = record(cluster, 1).replicas
    cluster.append(1, 1, b"a")
    other = next(number for number in range(1, 5) if number not in first)
    assert cluster.submit(1, SetTarget(1, (*first[:2], other))).ok
    cluster.run(300)
    assert cluster.submit(1, SetTarget(1, first)).ok
    cluster.until(lambda: cluster.voters(1) == tuple(sorted(first)))
    cluster.until(lambda: holders(cluster, 1) == tuple(sorted(first)), 120_000)
    cluster.append(1, 1, b"b")
    cluster.until(lambda: all(cluster[number].payloads(1) == [b"a", b"b"] for number in first))


def test_a_deleted_topic_is_removed_everywhere_also_by_who_was_away() -> None:
    cluster = grown(3)
    create(cluster, shards=2)
    cluster.until(lambda: cluster.leader(1) is not None and cluster.leader(2) is not None)
    cluster.append(1, 1, b"a")
    cluster[3].kill()
    assert cluster.submit(1, DeleteTopic("t")).ok
    cluster.until(lambda: not holders(cluster, 1) and not holders(cluster, 2))
    cluster[3].start()
    cluster.until(lambda: set(cluster[3].store.groups) == {0})


def test_a_store_that_lost_something_begins_nothing_anew() -> None:
    cluster = grown(3)
    cluster[3].kill()
    create(cluster)
    cluster.until(lambda: cluster.leader(1) is not None)
    cluster.append(1, 1, b"a")
    cluster[3].start()
    cluster[3].partitions.has_lost = True
    cluster.until(lambda: cluster[3].payloads(1) == [b"a"])
    # It is made a learner and then a voter again, so that it may vote.
    cluster.until(lambda: cluster[3].engine.host.groups[1].state.health == 0 and cluster.voters(1) == (1, 2, 3))


def test_what_is_made_after_a_start_can_not_have_been_lost() -> None:
    cluster = grown(3)
    for node in cluster.running():
        node.partitions.has_lost = True
    create(cluster)
    cluster.until(lambda: cluster.leader(1) is not None)
    assert cluster.append(1, 1, b"a") == 0


def test_a_journal_that_can_not_be_read_is_noticed() -> None:
    cluster = grown(3)
    create(cluster, shards=3)
    cluster.until(lambda: all(cluster.leader(group) is not None for group in (1, 2, 3)))
    node = cluster[3]
    assert not lost_groups(node.store)
    node.kill()
    journal = node.disk._files["journal-00000001"]
    middle = len(bytes(journal.data).rstrip(b"\0")) // 2
    start = middle - middle % 512
    for position in range(start, start + 4_096):
        journal.data[position] ^= 0xFF
        journal.durable[position] ^= 0xFF
    node.start()
    assert node.store.notes
    assert node.partitions.has_lost
    cluster.until(
        lambda: all(
            group in node.engine.replicas and node.engine.host.groups[group].state.health == 0 for group in (1, 2, 3)
        )
    )
    cluster.until(lambda: all(cluster.voters(group) == (1, 2, 3) for group in (0, 1, 2, 3)))


def test_nothing_is_begun_on_the_word_of_an_old_state() -> None:
    cluster = grown(3)
    create(cluster)
    cluster.until(lambda: cluster.leader(1) is not None)
    node = cluster[3]
    cluster.isolate(3)
    node.kill()
    node.start()
    cluster[1].append(1, b"so that the state is known as committed")
    # As if it had left the group, and its state, which is what it knew before its start, did not know that.
    assert not node.meta.is_current
    cluster.until(lambda: 1 in node.engine.replicas)
    node.meta.restore(cluster[1].meta.state_bytes())
    node.partitions._close(1)
    cluster.run(3_000)
    assert 1 not in node.engine.replicas
    assert node.partitions.pending == 1
    cluster.heal()
    cluster.until(lambda: 1 in node.engine.replicas)


def test_many_replicas_open_a_few_at_a_time(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("flockmq.durable.replicas.partitions.OPENS_MAX", 10)
    cluster = grown(1)
    create_result = cluster.submit(1, CreateTopic("many", shards=45, replication_factor=1))
    assert create_result.ok
    node = cluster[1]
    counts: list[int] = []
    while len(node.engine.replicas) < 46:
        before = len(node.engine.replicas)
        cluster.run(50)
        counts.append(len(node.engine.replicas) - before)
    assert max(counts) == 10
