"""Which QoS 2 records a leader appends. (With owners that are replaced: ``test_releases``.)"""

from __future__ import annotations

from flockmq.durable.machine.control_bodies import ADOPT, FORGET, RELEASE, Statement
from flockmq.log.batch import BatchBuilder
from flockmq.raft.senders import ADMITTED
from partition_cluster import PartitionCluster


def batch(*records: tuple[bytes, int]) -> bytes:
    builder = BatchBuilder()
    for client, epoch in records:
        builder.add(b"t", client, 1, 2, b"x")
        builder.mark(packet_id=1 if epoch else 0, session_epoch=epoch)
    return builder.build()


def test_one_old_record_among_others_is_enough() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    leader.control.mark(1, [Statement(ADOPT, client, 7, []) for client in (b"a", b"c")], cluster.now)
    leader.control.mark(1, [Statement(ADOPT, b"c", 5, [])], cluster.now)
    for _ in range(2):
        assert leader.fences.admits(1, batch((b"a", 7), (b"c", 7), (b"b", 0))) == ADMITTED
        assert leader.fences.admits(1, batch((b"a", 8), (b"c", 6), (b"b", 0))) == 1
        cluster.run(500)
    assert leader.fences.refused == 2


def test_a_client_that_the_partition_does_not_know_publishes_nothing_there() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    assert leader.fences.admits(1, batch((b"c", 7))) == 0
    leader.control.mark(1, [Statement(RELEASE, b"c", 7, [1])], cluster.now)
    cluster.run(500)
    assert leader.fences.admits(1, batch((b"c", 7))) == 0
    leader.control.mark(1, [Statement(ADOPT, b"c", 7, [])], cluster.now)
    cluster.run(500)
    assert leader.fences.admits(1, batch((b"c", 7))) == ADMITTED
    leader.control.mark(1, [Statement(FORGET, b"c", 7, [])], cluster.now)
    cluster.run(500)
    assert leader.fences.admits(1, batch((b"c", 7))) == 0


def test_what_a_leader_puts_into_its_log_counts_before_it_is_applied() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    leader.control.mark(1, [Statement(ADOPT, b"c", 7, [])], cluster.now)
    assert leader.fences.admits(1, batch((b"c", 6))) == 0
    assert leader.fences.admits(1, batch((b"c", 7))) == ADMITTED
