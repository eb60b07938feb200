"""Epochs that count no more, in memory. (With logs: ``test_releases``.)"""

from __future__ import annotations

import pytest

from flockmq.durable.machine import fences as fences_module
from flockmq.durable.machine.control_bodies import ADOPT, Statement
from flockmq.durable.machine.fences import KEPT_MS
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
    fences = cluster.leader(1).fences
    fences.note(b"c", 7, cluster.now)
    fences.note(b"c", 5, cluster.now)
    assert fences.admits(1, batch((b"a", 1), (b"c", 7), (b"b", 0))) == ADMITTED
    assert fences.admits(1, batch((b"a", 1), (b"c", 6), (b"b", 9))) == 1
    assert fences.refused == 1


def test_what_a_leader_puts_into_its_log_counts_before_it_is_applied() -> None:
    cluster = PartitionCluster(groups=1)
    leader = cluster.leader(1)
    leader.control.mark(1, [Statement(ADOPT, b"c", 7, [])], cluster.now)
    assert leader.fences.admits(1, batch((b"c", 6))) == 0
    assert leader.fences.admits(1, batch((b"c", 7))) == ADMITTED


def test_they_are_kept_for_a_while_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences_module, "FENCES_MAX", 3)
    cluster = PartitionCluster(groups=1)
    fences = cluster.leader(1).fences
    for number in range(5):
        fences.note(b"c%d" % number, 7, cluster.now)
    assert [fences.epoch_of(1, b"c%d" % number) for number in range(5)] == [0, 0, 7, 7, 7]
    fences.note(b"d", 9, cluster.now + KEPT_MS)
    assert [fences.epoch_of(1, client) for client in (b"c4", b"d")] == [0, 9]
