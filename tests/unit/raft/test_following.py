"""The follower's side of replication: Raft paper 5.3 and figure 2."""

from __future__ import annotations

import pytest

from flockmq.log.batch import BatchView
from flockmq.raft.entry import Entry
from flockmq.raft.errors import SafetyError
from flockmq.raft.messages import Append, AppendReply, Heartbeat, HeartbeatReply
from flockmq.raft.state import FORGOTTEN, HardState
from raft_cluster import GROUP, Replica, entry, said, with_log


def append(term: int, prev_index: int, prev_term: int, entries: list[Entry], commit: int = 0) -> Append:
    return Append(GROUP, 2, 1, term, prev_index, prev_term, entries, commit, prev_index + len(entries), 7)


def answer(replica: Replica) -> AppendReply:
    messages = said(replica)
    assert len(messages) == 1
    assert isinstance(messages[0], AppendReply)
    return messages[0]


@pytest.mark.parametrize(
    ("log", "prev", "entries", "expected"),
    [
        # The leader's log is that of figure 7 in the paper: terms 1 1 1 4 4 5 5 6 6 6; followers a to f.
        pytest.param([1, 1, 1, 4, 4, 5, 5, 6, 6], (10, 6), [], None, id="figure 7 a"),
        pytest.param([1, 1, 1, 4], (10, 6), [], None, id="figure 7 b"),
        pytest.param(
            [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6], (10, 6), [8], [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 8], id="figure 7 c"
        ),
        pytest.param(
            [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7], (10, 6), [8], [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 8], id="figure 7 d"
        ),
        pytest.param([1, 1, 1, 4, 4, 4, 4], (10, 6), [], None, id="figure 7 e"),
        pytest.param([1, 1, 1, 4, 4, 4, 4], (5, 4), [5, 5], [1, 1, 1, 4, 4, 5, 5], id="figure 7 e, later"),
        pytest.param([1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3], (3, 1), [4, 4], [1, 1, 1, 4, 4], id="figure 7 f"),
    ],
)
def test_5_3_entries_follow_on_an_entry_that_agrees(
    log: list[int], prev: tuple[int, int], entries: list[int], expected: list[int] | None
) -> None:
    replica = with_log(*log)
    fresh = [entry(prev[0] + 1 + position, term) for position, term in enumerate(entries)]
    replica.node.step(append(8, *prev, fresh))
    reply = answer(replica)
    if expected is None:
        assert not reply.ok
        assert replica.terms() == log
    else:
        assert reply.ok
        assert reply.index == prev[0] + len(entries)
        assert replica.terms() == expected
        assert [BatchView(item).term for item in replica.log.items] == expected


def test_5_3_entries_that_are_there_are_not_removed() -> None:
    """An append that was late must not cut off what came after it (paper, figure 2, AppendEntries 3)."""
    replica = with_log(1, 1, 1, 1)
    replica.node.step(append(1, 0, 0, [entry(1, 1), entry(2, 1)]))
    assert answer(replica).index == 2
    assert replica.terms() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("log", "prev", "hint"),
    [
        ([1, 1, 1], (9, 1), (3, 1)),
        ([1, 1, 2, 2, 2], (5, 1), (2, 1)),
        ([1, 3, 3, 3], (4, 2), (1, 1)),
        ([2, 2, 2], (3, 1), (0, 0)),
        ([], (4, 1), (0, 0)),
    ],
)
def test_5_3_a_refusal_says_where_the_logs_may_agree(
    log: list[int], prev: tuple[int, int], hint: tuple[int, int]
) -> None:
    replica = with_log(*log)
    replica.node.step(append(8, *prev, []))
    reply = answer(replica)
    assert (reply.ok, reply.index) == (False, prev[0])
    assert (reply.hint_index, reply.hint_term) == hint


@pytest.mark.parametrize(
    ("commit", "entries", "expected"), [(0, 1, 0), (3, 0, 1), (3, 1, 2), (3, 2, 3), (2, 2, 2), (9, 1, 2)]
)
def test_5_3_a_follower_commits_no_more_than_it_knows_to_match(commit: int, entries: int, expected: int) -> None:
    replica = with_log(1, 1, 1)
    replica.node.step(append(1, 1, 1, [entry(2 + position, 1) for position in range(entries)], commit))
    assert replica.state.commit == expected


def test_5_3_a_heartbeat_alone_commits_nothing() -> None:
    """It says nothing about the follower's log, which may differ from the leader's."""
    replica = with_log(1, 1, 1)
    replica.node.step(Heartbeat(GROUP, 2, 1, 2, 3, 3, 1, False))
    assert replica.state.commit == 0
    replica.node.step(append(2, 3, 1, []))
    replica.node.step(Heartbeat(GROUP, 2, 1, 2, 3, 3, 2, False))
    assert replica.state.commit == 3


def test_news_of_a_commit_is_heard_and_not_answered() -> None:
    replica = with_log(1, 1, 1)
    replica.node.step(append(2, 3, 1, []))
    said(replica)
    replica.node.step(Heartbeat(GROUP, 2, 1, 2, 3, 3, 2, False, True))
    assert replica.state.commit == 3
    assert said(replica) == []
    replica.node.step(Heartbeat(GROUP, 2, 1, 2, 3, 3, 2, False))
    assert [type(message) for message in said(replica)] == [HeartbeatReply]


def impaired(*terms: int) -> Replica:
    replica = with_log(*terms)
    replica.hard = HardState(1, 0, FORGOTTEN)
    replica.start()
    return replica


def test_an_impaired_replica_that_has_everything_acknowledges_it_with_each_heartbeat() -> None:
    """Only an acknowledgement says that a replica is impaired; the last one may be lost, and the leader has no other
    entry to send."""
    replica = impaired(1, 1)
    replica.node.step(append(2, 2, 1, [entry(3, 2)]))
    assert answer(replica).impaired
    replica.node.step(Heartbeat(GROUP, 2, 1, 2, 3, 3, 8, False))
    heartbeat, reply = said(replica)
    assert isinstance(heartbeat, HeartbeatReply)
    assert isinstance(reply, AppendReply)
    assert (reply.ok, reply.index, reply.lease_round, reply.impaired) == (True, 3, 8, True)


def test_an_impaired_replica_acknowledges_nothing_before_it_knows_where_the_logs_agree() -> None:
    replica = impaired(1, 1)
    replica.node.step(Heartbeat(GROUP, 2, 1, 2, 0, 2, 8, False))
    assert [type(message) for message in said(replica)] == [HeartbeatReply]


def test_an_impaired_replica_that_lacks_entries_waits_for_them() -> None:
    """Its leader may know more of a former life, and has to ask where the logs agree; this would be no answer."""
    replica = impaired(1, 1)
    replica.node.step(append(2, 2, 1, [entry(3, 2)]))
    said(replica)
    replica.node.step(Heartbeat(GROUP, 2, 1, 2, 0, 4, 8, False))
    assert [type(message) for message in said(replica)] == [HeartbeatReply]


def test_5_3_what_matched_an_earlier_leader_is_no_proof_for_the_next() -> None:
    replica = with_log(1, 1)
    replica.node.step(append(2, 2, 1, [entry(3, 2)]))
    said(replica)
    replica.node.step(Heartbeat(GROUP, 3, 1, 3, 3, 3, 1, False))
    assert replica.state.commit == 0


def test_5_3_an_acknowledgement_waits_for_the_disk() -> None:
    replica = with_log(1)
    replica.slow_disk = True
    replica.node.step(append(2, 1, 1, [entry(2, 2)]))
    assert said(replica) == []
    replica.sync()
    reply = answer(replica)
    assert (reply.ok, reply.index, reply.lease_round) == (True, 2, 7)


def test_5_3_an_acknowledgement_of_nothing_new_waits_for_the_term_to_be_durable() -> None:
    """A crash would take us back to the earlier term, free to follow its leader and to forget this one's entries."""
    replica = with_log(1)
    replica.slow_disk = True
    replica.node.step(append(2, 1, 1, []))
    assert said(replica) == []
    replica.node.step(Heartbeat(GROUP, 2, 1, 2, 0, 1, 8, False))
    heartbeat = said(replica)[0]
    assert isinstance(heartbeat, HeartbeatReply)
    assert (heartbeat.matched, heartbeat.durable) == (1, 0)
    replica.sync()
    assert answer(replica).index == 1


def test_5_3_one_answer_for_all_appends_of_a_turn() -> None:
    replica = with_log(1)
    for index in range(2, 6):
        replica.node.step(append(1, index - 1, 1, [entry(index, 1)]))
    assert answer(replica).index == 5


def test_5_3_entries_that_are_removed_and_come_back_are_not_durable_by_the_first_write() -> None:
    """Three leaders: the third brings back what the second made us forget, while no write has finished."""
    replica = with_log(1)
    replica.slow_disk = True
    replica.node.step(append(2, 1, 1, [entry(2, 2)]))
    said(replica)
    replica.node.step(Append(GROUP, 3, 1, 3, 1, 1, [entry(2, 3)], 0, 2, 0))
    said(replica)
    replica.node.step(append(4, 1, 1, [entry(2, 2), entry(3, 4)]))
    said(replica)
    first, *_ = replica.writes
    replica.node.persisted(first.number)
    assert replica.state.log.durable == 1
    assert said(replica) == []
    replica.sync()
    assert replica.state.log.durable == 3
    assert answer(replica).index == 3
    assert [BatchView(item).term for item in replica.log.items] == [1, 2, 4]


def test_5_4_committed_entries_are_never_replaced() -> None:
    replica = with_log(1, 1)
    replica.node.step(append(1, 2, 1, [], commit=2))
    said(replica)
    with pytest.raises(SafetyError, match="entry 2 is committed with term 1"):
        replica.node.step(append(3, 1, 1, [entry(2, 3)]))


def test_5_4_an_append_from_before_the_commit_index_is_acknowledged_up_to_it() -> None:
    replica = with_log(1, 1, 1)
    replica.node.step(append(1, 3, 1, [], commit=3))
    said(replica)
    replica.node.step(append(1, 0, 0, [entry(1, 1)]))
    reply = answer(replica)
    assert (reply.ok, reply.index) == (True, 3)


def test_5_2_two_leaders_in_one_term_stop_the_group() -> None:
    replica = with_log(1)
    replica.node.step(append(2, 1, 1, []))
    with pytest.raises(SafetyError, match="both lead in term 2"):
        replica.node.step(Append(GROUP, 3, 1, 2, 1, 1, [], 0, 1, 0))
