"""Runs that nodes forward to a leader: once, in order, one outcome each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flockmq.log.batch import NOOP, BatchBuilder, control_batch
from flockmq.raft.messages import Forward, ForwardReply, Message
from flockmq.raft.ready import Proposal
from flockmq.raft.senders import (
    ADMITTED,
    ASK_LATER,
    BEHIND,
    COMMITTED,
    ELSEWHERE,
    FENCED,
    LATER,
    PLAN_AHEAD,
    REFUSED,
    REPLAN,
    RUNS_KEPT,
    STORED,
    TAKEN,
    UNKNOWN,
    RunId,
    Sender,
    SenderDesk,
    SenderTable,
    decode_table,
    run_note,
    run_of,
)
from raft_cluster import GROUP, SETTINGS, Cluster, Replica, batch, entry


def run(sequence: int, boot: int = 1, sender: int = 9, payload: bytes = b"x", plan: int = 0) -> bytes:
    builder = BatchBuilder()
    builder.add(b"t", b"c", 0, 0, payload)
    return builder.build(note=run_note(sender, boot, sequence, plan))


class Desk:
    """A desk at a leader, whose answers are collected."""

    def __init__(self, settings: object = SETTINGS) -> None:
        assert isinstance(settings, type(SETTINGS))
        self.cluster = Cluster(settings=settings)
        self.replica: Replica = self.cluster.elect(1)
        self.desk = SenderDesk(self.replica.node, SenderTable())
        self.answers: list[Message] = self.desk.follow_role()
        self.done = len(self.replica.applied)

    def forward(
        self, sequence: int, previous: int | None = None, boot: int = 1, attempt: int = 1, plan: int = 0
    ) -> None:
        before = sequence - 1 if previous is None else previous
        answer = self.desk.accept(Forward(GROUP, 9, 1, self.desk.term, before, attempt, run(sequence, boot, plan=plan)))
        if answer is not None:
            self.answers.append(answer)

    def settle(self) -> None:
        self.cluster.settle()
        self.answers += self.desk.applied(self.replica.applied[self.done :])
        self.done = len(self.replica.applied)
        self.answers += self.desk.follow_role()

    def said(self) -> list[tuple[int, int, int]]:
        answers, self.answers = self.answers, []
        found = []
        for answer in answers:
            assert isinstance(answer, ForwardReply)
            assert answer.receiver == 9
            found.append((answer.sequence, answer.outcome, answer.value))
        return found


def test_a_run_is_answered_with_its_offset_once_it_is_committed() -> None:
    desk = Desk()
    desk.forward(1)
    assert desk.said() == []
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0)]


def test_runs_are_appended_in_sequence_only() -> None:
    desk = Desk()
    desk.forward(2, previous=1)
    assert desk.said() == [(2, BEHIND, 0)]
    desk.forward(1)
    desk.forward(2)
    desk.forward(5, previous=4)
    assert desk.said() == [(5, BEHIND, 2)]
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0), (2, COMMITTED, 1)]


def test_a_repeat_gets_the_first_outcome() -> None:
    desk = Desk()
    desk.forward(1, attempt=1)
    desk.forward(1, attempt=2)
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0), (1, COMMITTED, 0)]
    desk.forward(1, attempt=3)
    assert desk.said() == [(1, COMMITTED, 0)]
    assert len(desk.replica.payloads) == 1


def test_a_run_that_its_sender_left_out_is_not_appended_late() -> None:
    desk = Desk()
    desk.forward(1)
    desk.forward(3, previous=1)
    desk.settle()
    desk.said()
    desk.forward(2)
    desk.settle()
    assert desk.said() == []
    assert len(desk.replica.payloads) == 2


def test_a_new_boot_starts_over_and_ends_the_one_before() -> None:
    desk = Desk()
    desk.forward(1)
    desk.forward(1, boot=2)
    desk.forward(2, boot=1)
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0), (1, COMMITTED, 1)]
    desk.forward(2, boot=1)
    assert desk.said() == []
    desk.forward(2, boot=2)
    desk.settle()
    assert desk.said() == [(2, COMMITTED, 2)]


def test_a_run_in_memory_is_told_early_and_again_when_committed() -> None:
    desk = Desk()
    desk.desk.rules.early[GROUP] = TAKEN
    desk.forward(1)
    assert desk.said() == [(1, TAKEN, 0)]
    desk.forward(1, attempt=2)
    assert desk.said() == [(1, TAKEN, 0)], "a repeat, as nobody knows whether the first answer arrived"
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0), (1, COMMITTED, 0)]


def test_a_run_on_the_leaders_disk_is_told_early() -> None:
    desk = Desk()
    desk.desk.rules.early[GROUP] = STORED
    desk.forward(1)
    assert (desk.said(), desk.desk.stored()) == ([], [])
    desk.cluster.settle()
    desk.answers += desk.desk.stored()
    assert desk.said() == [(1, STORED, 0)]
    assert desk.desk.stored() == []
    desk.forward(1, attempt=2)
    assert desk.said() == [(1, STORED, 0)]
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0), (1, COMMITTED, 0)]


def test_plans_older_than_a_topics_last_change_are_not_taken() -> None:
    desk = Desk()
    desk.desk.rules.known = 20
    desk.desk.rules.least[GROUP] = 11
    desk.forward(1, plan=10)
    assert desk.said() == [(1, REPLAN, 11)]
    desk.forward(1, plan=11)
    desk.forward(2, plan=20)
    desk.forward(3)
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0), (2, COMMITTED, 1), (3, COMMITTED, 2)]


def test_plans_that_the_leader_has_not_heard_of_wait() -> None:
    desk = Desk()
    desk.desk.rules.known = 20
    desk.forward(1, plan=21)
    assert desk.said() == [(1, LATER, PLAN_AHEAD)]
    desk.desk.rules.known = 21
    desk.forward(1, plan=21)
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0)]


def test_a_run_that_is_in_the_log_is_not_asked_for_its_plan_again() -> None:
    desk = Desk()
    desk.desk.rules.known = 20
    desk.forward(1, plan=10)
    desk.desk.rules.least[GROUP] = 20
    desk.forward(1, plan=10, attempt=2)
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0), (1, COMMITTED, 0)]


def test_a_follower_says_who_leads() -> None:
    desk = Desk()
    follower = SenderDesk(desk.cluster[2].node, SenderTable())
    answer = follower.accept(Forward(GROUP, 9, 2, 1, 0, 1, run(1)))
    assert isinstance(answer, ForwardReply)
    assert (answer.outcome, answer.value) == (ELSEWHERE, 1)


def test_a_leader_takes_only_what_is_meant_for_its_term() -> None:
    desk = Desk()
    term = desk.desk.term
    for meant in (0, term - 1, term + 1):
        answer = desk.desk.accept(Forward(GROUP, 9, 1, meant, 0, 1, run(1)))
        assert isinstance(answer, ForwardReply)
        assert (answer.outcome, answer.value, answer.term) == (ELSEWHERE, 1, term)
    desk.forward(1)
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0)]


def test_when_leadership_ends_the_outcome_is_unknown() -> None:
    desk = Desk()
    term = desk.replica.state.term
    desk.cluster.isolate(1)
    desk.forward(1)
    desk.cluster.run(2_500)
    desk.settle()
    answer = desk.answers[0]
    assert isinstance(answer, ForwardReply)
    assert answer.term == term
    assert desk.said() == [(1, UNKNOWN, 0)]


def test_the_next_leader_knows_what_its_own_log_holds() -> None:
    """Run 1 reached node 2, but was not committed when node 2 became leader."""
    desk = Desk()
    desk.cluster.lost = lambda message: type(message).__name__ in ("AppendReply", "HeartbeatReply")
    desk.forward(1)
    desk.cluster.settle()
    desk.replica.crash()
    desk.cluster.isolate(1)
    follower = desk.cluster[2]
    other = SenderDesk(follower.node, SenderTable())
    desk.cluster.lost = lambda message: type(message).__name__ == "AppendReply"
    desk.cluster.elect(2)
    other.follow_role()
    assert other.accept(Forward(GROUP, 9, 2, other.term, 0, 7, run(1))) is None
    assert follower.state.log.last_index == 3, "the first entries of both terms, and the run, once"
    desk.cluster.heal()
    desk.cluster.run(300)
    answers = other.applied(follower.applied)
    assert [(answer.outcome, answer.attempt) for answer in answers if isinstance(answer, ForwardReply)] == [
        (COMMITTED, 7)
    ]


def test_a_refusal_is_certain_only_when_the_leader_has_committed_in_its_term() -> None:
    desk = Desk(replace(SETTINGS, entry_bytes_max=10))
    commit = desk.replica.state.commit
    desk.replica.state.commit = desk.replica.state.term_start - 1
    desk.forward(1)
    assert desk.said() == [(1, LATER, 0)]
    desk.replica.state.commit = commit
    desk.forward(1)
    assert desk.said() == [(1, REFUSED, 0)]


def test_a_record_that_must_not_get_in_is_named_when_that_is_certain() -> None:
    desk = Desk()
    verdicts = [ASK_LATER, 3, 3, ADMITTED]
    desk.desk.rules.admits = lambda _group, _batch: verdicts.pop(0)
    desk.forward(1)
    commit = desk.replica.state.commit
    desk.replica.state.commit = desk.replica.state.term_start - 1
    desk.forward(1)
    assert desk.said() == [(1, LATER, 0), (1, LATER, 0)]
    desk.replica.state.commit = commit
    desk.forward(1)
    assert desk.said() == [(1, FENCED, 3)]
    desk.forward(1)
    desk.settle()
    assert desk.said() == [(1, COMMITTED, 0)]


def test_a_leader_that_has_too_much_under_way_says_later() -> None:
    desk = Desk(replace(SETTINGS, uncommitted_bytes_max=1))
    desk.cluster.isolate(1)
    desk.forward(1)
    desk.forward(2)
    assert desk.said() == [(2, LATER, 0)]


def test_other_batches_are_no_runs() -> None:
    assert run_of(batch(b"x")) is None
    assert run_of(control_batch(NOOP, b"")) is None
    assert Desk().desk.accept(Forward(GROUP, 9, 1, 1, 0, 1, batch(b"x"))) is None
    found = run_of(run(5, boot=6, sender=7))
    assert found is not None
    assert (found.sender, found.boot, found.sequence) == (7, 6, 5)


def test_the_table_is_made_of_applied_entries_alone() -> None:
    desk = Desk()
    for sequence in range(1, 6):
        desk.forward(sequence)
    desk.settle()
    desk.cluster.run(200)
    tables = []
    for replica in desk.cluster.replicas.values():
        table = SenderTable()
        for applied in replica.applied:
            table.apply(applied)
        tables.append(table.encode())
    assert tables == [desk.desk.table.encode()] * 3


def test_the_table_survives_a_checkpoint() -> None:
    table = SenderTable()
    for sequence in range(1, 600):
        table.note(RunId(9, 4, sequence), 10 * sequence)
    table.note(RunId(8, 2, 1), 5)
    table.apply(entry(1, 1))
    copy = decode_table(table.encode())
    assert copy.encode() == table.encode()
    assert copy.senders[9].last == 599
    assert copy.senders[9].offset_of(599) == 5_990
    assert copy.senders[9].offset_of(599 - RUNS_KEPT + 1) == 10 * (599 - RUNS_KEPT + 1)
    assert copy.senders[9].offset_of(1) == -1


@pytest.mark.parametrize("cut", [0, 3, 5, 20, -1])
def test_a_table_that_is_cut_off_is_refused(cut: int) -> None:
    table = SenderTable()
    table.note(RunId(9, 4, 1), 10)
    with pytest.raises(ValueError, match="A table of senders"):
        decode_table(table.encode()[:cut])
    with pytest.raises(ValueError, match="A table of senders"):
        decode_table(table.encode() + b"x")


def test_memory_per_sender_is_bounded() -> None:
    sender = Sender(1)
    for sequence in range(1, 10_000):
        sender.add(sequence, sequence)
    assert RUNS_KEPT <= len(sender.sequences) <= 2 * RUNS_KEPT
    assert isinstance(Desk().replica.node.propose(batch(b"x")), Proposal)
