"""What must be durable before anybody hears of it. The cases that a section of the paper names are in other files."""

from __future__ import annotations

from dataclasses import replace

from flockmq.raft.messages import Append, AppendReply, VoteReply, VoteRequest
from flockmq.raft.persistence import has_writes
from raft_cluster import GROUP, SETTINGS, Cluster, entry, said, with_log


def append(term: int, index: int, prev_term: int = 1, sender: int = 2) -> Append:
    return Append(GROUP, sender, 1, term, index - 1, prev_term, [entry(index, term)], 0, index, 0)


def test_readies_are_numbered_only_when_there_is_something_to_write() -> None:
    replica = with_log(1)
    replica.slow_disk = True
    assert replica.node.take_ready().number == 0
    replica.node.step(append(1, 2))
    assert replica.node.take_ready().number == 1
    assert replica.node.take_ready().number == 0


def test_a_promise_without_writes_of_its_own_waits_for_those_under_way() -> None:
    replica = with_log(1)
    replica.slow_disk = True
    replica.node.step(append(1, 2))
    assert said(replica) == []
    replica.node.step(Append(GROUP, 2, 1, 1, 1, 1, [], 0, 2, 0))
    assert said(replica) == []
    replica.sync()
    assert [reply.index for reply in said(replica) if isinstance(reply, AppendReply)] == [2, 1]


def test_promises_of_an_earlier_term_are_dropped() -> None:
    replica = with_log(1)
    replica.slow_disk = True
    replica.state.loyal_until = 0
    replica.node.step(VoteRequest(GROUP, 2, 1, 5, 9, 5, False, False))
    assert said(replica) == []
    replica.node.step(VoteRequest(GROUP, 3, 1, 6, 9, 6, False, False))
    assert said(replica) == []
    replica.sync()
    replies = [message for message in said(replica) if isinstance(message, VoteReply)]
    assert [(reply.receiver, reply.term) for reply in replies] == [(3, 6)]


def test_many_entries_are_written_in_portions_and_acknowledged_when_all_are() -> None:
    cluster = Cluster(settings=replace(SETTINGS, write_bytes_max=1))
    replica = with_log(1, cluster=cluster)
    replica.slow_disk = True
    entries = [entry(index, 1) for index in (2, 3, 4)]
    replica.node.step(Append(GROUP, 2, 1, 1, 1, 1, entries, 0, 4, 0))
    assert said(replica) == []
    assert [len(ready.entries) for ready in replica.writes] == [1, 1, 1]
    replica.sync()
    assert [reply.index for reply in said(replica) if isinstance(reply, AppendReply)] == [4]


def test_writes_and_promises_wait_while_the_disk_has_no_room_but_talk_goes_on() -> None:
    cluster = Cluster()
    leader = cluster.elect(1)
    cluster.propose(b"a")
    leader.node.tick(cluster.now + 150)
    ready = leader.node.take_ready(may_write=False)
    assert (ready.number, ready.entries) == (0, [])
    assert {type(message).__name__ for message in ready.messages} == {"Append", "Heartbeat"}
    assert leader.node.has_ready()
    assert has_writes(leader.state)
    assert len(leader.node.take_ready().entries) == 1


def test_a_vote_waits_while_the_disk_has_no_room() -> None:
    replica = with_log(1)
    replica.state.loyal_until = 0
    replica.node.step(VoteRequest(GROUP, 2, 1, 5, 9, 5, False, False))
    assert replica.node.take_ready(may_write=False).messages == []
    ready = replica.node.take_ready()
    assert ready.messages == []
    replica.node.persisted(ready.number)
    assert len(replica.node.take_ready().messages) == 1


def test_entries_to_apply_come_in_portions() -> None:
    cluster = Cluster(1, settings=replace(SETTINGS, apply_bytes_max=1))
    cluster.run(100)
    leader = cluster[1]
    for number in range(5):
        cluster.propose(b"%d" % number)
    leader.take()
    assert len(leader.applied) == 1
    cluster.settle()
    assert leader.payloads == [b"0", b"1", b"2", b"3", b"4"]


def test_reports_about_readies_of_long_ago_change_nothing() -> None:
    replica = with_log(1)
    replica.node.persisted(0)
    replica.node.step(append(1, 2))
    replica.take()
    durable = replica.state.log.durable
    replica.node.persisted(1)
    assert replica.state.log.durable == durable == 2
