"""What is committed, and when: Raft paper 5.3, 5.4.2 (figure 8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flockmq.raft.errors import SafetyError
from flockmq.raft.messages import Append, Message
from flockmq.raft.replication import commit_to
from raft_cluster import SETTINGS, Cluster


def test_5_3_a_majority_is_enough() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    cluster.isolate(4, 5)
    proposal = cluster.propose(b"a")
    cluster.settle()
    assert leader.state.commit == proposal.index


def test_5_3_less_than_a_majority_is_not() -> None:
    cluster = Cluster(5)
    leader = cluster.elect(1)
    cluster.isolate(1, 2)
    proposal = cluster.propose(b"a")
    cluster.settle()
    assert leader.state.commit == proposal.index - 1


def test_5_3_an_entry_that_only_a_minority_had_is_replaced() -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.isolate(1)
    cluster.propose(b"lost", node=1)
    cluster.settle()
    cluster.elect(2)
    cluster.propose(b"kept", node=2)
    cluster.heal()
    cluster.run(500)
    assert [replica.payloads for replica in cluster.replicas.values()] == [[b"kept"]] * 3


def figure_8() -> tuple[Cluster, int]:
    """Figure 8 up to (c): S1's entry of term 1 is on a majority, S1 leads in term 3, whose first entry is nowhere."""
    cluster = Cluster(5, settings=replace(SETTINGS, append_bytes_max=1))
    cluster.elect(1)
    cluster.isolate(1, 2)
    old = cluster.propose(b"old", node=1).index
    cluster.settle()  # (a) S1 and S2 have the entry
    cluster.heal()
    cluster.cut(1, 5)
    cluster.cut(2, 5)
    cluster.lost = lambda message: isinstance(message, Append) and message.sender in (1, 5)
    cluster.elect(5)  # (b) S5 leads in term 2 and has an entry of its own
    cluster.isolate(5)

    def lose(message: Message) -> bool:
        has_all = cluster[message.receiver].state.log.last_index >= old
        return isinstance(message, Append) and has_all

    cluster.lost = lose
    cluster.elect(1)  # (c)
    cluster.run(300)
    return cluster, old


def test_5_4_2_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    cluster, old = figure_8()
    assert [cluster[node].terms()[old - 1 : old] for node in range(1, 6)] == [[1], [1], [1], [1], [2]]
    assert cluster[1].state.commit < old


def test_5_4_2_such_an_entry_can_still_be_replaced() -> None:
    cluster, old = figure_8()
    cluster[1].crash()
    cluster.heal()
    cluster.isolate(3, 4, 5)
    cluster[3].crash()
    cluster[3].log.items = cluster[3].log.items[: old - 1]  # as in (d), where S3 has not yet got it
    cluster[4].crash()
    cluster[4].log.items = cluster[4].log.items[: old - 1]
    cluster[3].start()
    cluster[4].start()
    cluster.elect(5)
    assert cluster[3].terms()[old - 1] == 2


def test_5_4_2_it_is_committed_along_with_an_entry_of_the_own_term() -> None:
    cluster, old = figure_8()
    cluster.heal()
    cluster.run(500)  # (e)
    assert cluster[1].state.commit > old
    assert [replica.payloads for replica in cluster.replicas.values()] == [[b"old"]] * 5


def test_5_4_3_a_new_leader_has_every_committed_entry() -> None:
    cluster = Cluster(5)
    cluster.elect(1)
    cluster.isolate(4, 5)
    proposal = cluster.propose(b"a")
    cluster.settle()
    cluster.heal()
    cluster[1].crash()
    cluster.run(5_000)
    leader = cluster.leaders()[-1]
    assert leader.id in (2, 3), "4 and 5 lack the entry"
    assert leader.state.log.last_index > proposal.index


def test_8_a_new_leader_begins_its_term_with_an_entry_of_its_own() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    assert leader.state.term_start == leader.state.log.last_index
    assert leader.state.commit == leader.state.term_start


def test_a_commit_beyond_the_log_stops_the_replica() -> None:
    replica = Cluster()[1]
    with pytest.raises(SafetyError, match="entry 5 is committed, but the log ends at 0"):
        commit_to(replica.state, 5)
