"""The other side of runs: sending them until each has one outcome."""

from __future__ import annotations

import pytest

from flockmq.log.batch import BatchBuilder, note_of
from flockmq.raft.forwarder import (
    DOUBTS_MAX,
    FORWARD_BYTES_MAX,
    HOP_MS,
    HOPS_MAX,
    NEVER_TAKEN,
    PLAN_RETRY_MS,
    Forwarder,
)
from flockmq.raft.messages import Forward, ForwardReply
from flockmq.raft.senders import (
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
    run_of,
)

GROUP = 5


class Sending:
    """A forwarder whose leader is the test."""

    def __init__(self, count: int = 0) -> None:
        self.forwarder = Forwarder(GROUP, 1, 77, retry_ms=100, give_up_ms=1_000)
        self.forwarder.set_leader(2, 1)
        self.token = 0
        self.submit(count)

    def submit(self, count: int = 1) -> None:
        for _ in range(count):
            builder = BatchBuilder()
            builder.add(b"t", b"c", 0, 0, b"x")
            self.token += 1
            self.forwarder.submit(builder.build(note=self.forwarder.note()), self.token)

    def sent(self) -> list[tuple[int, int]]:
        """(sequence, previous) of what leaves now."""
        self.last: list[Forward] = self.forwarder.take_messages()
        return [(self.sequence(message), message.previous) for message in self.last]

    def sequence(self, message: Forward) -> int:
        run = run_of(message.batch)
        assert run is not None
        assert (run.sender, run.boot) == (1, 77)
        return run.sequence

    def reply(self, message: Forward, outcome: int, value: int = 0, term: int = 1, sender: int = 0) -> None:
        where = sender or message.receiver
        reply = ForwardReply(GROUP, where, 1, term, 77, self.sequence(message), message.attempt, outcome, value)
        self.forwarder.on_reply(reply)

    def outcomes(self) -> list[tuple[int, int, int]]:
        return [(outcome.token, outcome.kind, outcome.offset) for outcome in self.forwarder.take_outcomes()]


def test_runs_leave_in_order_each_naming_the_one_before() -> None:
    sending = Sending(3)
    assert sending.sent() == [(1, 0), (2, 1), (3, 2)]
    assert sending.sent() == []
    sending.submit()
    assert sending.sent() == [(4, 3)]


def test_each_run_gets_one_outcome() -> None:
    sending = Sending(2)
    sending.sent()
    first, second = sending.last
    sending.reply(second, COMMITTED, 20)
    sending.reply(first, COMMITTED, 10)
    sending.reply(first, COMMITTED, 10)
    assert sending.outcomes() == [(2, COMMITTED, 20), (1, COMMITTED, 10)]
    assert sending.forwarder.runs == []
    assert sending.forwarder.bytes == 0
    sending.submit()
    assert sending.sent() == [(3, 2)]


def test_without_a_leader_nothing_leaves() -> None:
    sending = Sending(1)
    sending.forwarder.set_leader(0, 0)
    assert sending.sent() == []


def test_a_new_leader_gets_everything_again() -> None:
    sending = Sending(2)
    sending.sent()
    sending.reply(sending.last[0], COMMITTED, 0)
    sending.forwarder.set_leader(3, 2)
    assert sending.sent() == [(2, 1)]
    assert sending.last[0].receiver == 3


def test_without_an_answer_it_is_tried_again() -> None:
    sending = Sending(2)
    sending.sent()
    sending.forwarder.tick(50)
    assert sending.sent() == []
    sending.forwarder.tick(100)
    assert sending.sent() == [(1, 0), (2, 1)]


@pytest.mark.parametrize("outcome", [BEHIND, ELSEWHERE])
def test_a_leader_that_lacks_runs_or_leads_no_more_starts_another_pass(outcome: int) -> None:
    sending = Sending(2)
    sending.sent()
    earlier = sending.last
    sending.reply(earlier[1], outcome, 3 if outcome == ELSEWHERE else 0)
    assert sending.sent() == [(1, 0), (2, 1)]
    assert sending.last[0].receiver == (3 if outcome == ELSEWHERE else 2)
    sending.reply(earlier[0], outcome, 0)
    assert sending.sent() == [], "an answer to the pass before starts none"


def test_who_does_not_know_a_leader_is_not_asked_again_at_once() -> None:
    sending = Sending(1)
    sending.sent()
    sending.reply(sending.last[0], ELSEWHERE, 0)
    assert sending.sent() == []


def test_nodes_that_send_runs_on_and_on_are_asked_at_a_limited_rate() -> None:
    sending = Sending(1)
    asked = 0
    for elapsed in range(0, 1_000, 50):
        sending.forwarder.tick(elapsed)
        for _ in range(10):
            if sending.sent():
                asked += 1
                message = sending.last[0]
                sending.reply(message, ELSEWHERE, 5 - message.receiver)
    assert asked == HOPS_MAX * 1_000 // HOP_MS


def test_a_refusal_is_an_outcome_and_the_next_run_closes_the_gap() -> None:
    sending = Sending(3)
    sending.sent()
    first, second, third = sending.last
    sending.reply(first, COMMITTED, 0)
    sending.reply(second, REFUSED)
    assert sending.outcomes() == [(1, COMMITTED, 0), (2, REFUSED, 0)]
    sending.reply(third, BEHIND, 1)
    assert sending.sent() == [(3, 1)]


@pytest.mark.parametrize(("term", "certain"), [(1, False), (2, False), (3, True), (4, True)])
def test_a_refusal_is_not_certain_while_a_leader_of_a_later_term_may_have_it(term: int, certain: bool) -> None:
    sending = Sending(1)
    sending.forwarder.set_leader(3, 3)
    sending.sent()
    other = sending.last[0]
    sending.forwarder.tick(100)
    sending.sent()
    sending.reply(sending.last[0] if term >= 3 else other, REFUSED, term=term)
    assert sending.outcomes() == ([(1, REFUSED, 0)] if certain else [])


def test_who_may_know_the_leader_is_asked_with_one_run_that_nobody_takes() -> None:
    sending = Sending(3)
    sending.forwarder.set_leader(4, 0)
    assert sending.sent() == [(1, 0)]
    [question] = sending.last
    assert question.term == 0
    assert sending.sent() == []
    sending.reply(question, ELSEWHERE, 3, term=7)
    assert sending.sent() == [(1, 0), (2, 1), (3, 2)]
    assert {(message.receiver, message.term) for message in sending.last} == {(3, 7)}
    sending.reply(sending.last[0], ELSEWHERE, 3, term=8)
    assert len(sending.sent()) == 3, "the same node, in another term"
    assert {(message.receiver, message.term) for message in sending.last} == {(3, 8)}


def test_who_was_only_asked_has_nothing() -> None:
    sending = Sending(2)
    sending.forwarder.set_leader(4, 0)
    sending.sent()
    sending.forwarder.tick(1_000)
    assert sending.outcomes() == [(1, REFUSED, NEVER_TAKEN), (2, REFUSED, NEVER_TAKEN)]


def test_a_leader_of_an_earlier_term_is_no_news() -> None:
    sending = Sending(1)
    sending.forwarder.set_leader(3, 5)
    sending.sent()
    sending.forwarder.set_leader(2, 4)
    assert (sending.forwarder.leader, sending.sent()) == (3, [])
    sending.forwarder.set_leader(2, 6)
    assert sending.sent() == [(1, 0)]


@pytest.mark.parametrize(("term", "certain"), [(3, False), (4, False), (5, True)])
def test_a_refusal_is_certain_only_from_a_later_term_than_one_that_lost_sight(term: int, certain: bool) -> None:
    sending = Sending(1)
    sending.sent()
    sending.reply(sending.last[0], UNKNOWN, term=4)
    sending.forwarder.set_leader(3, 2)
    sending.sent()
    sending.reply(sending.last[0], REFUSED, term=term)
    assert sending.outcomes() == ([(1, REFUSED, 0)] if certain else [])


def test_what_was_never_sent_is_refused_for_certain_with_all_behind_it() -> None:
    sending = Sending(1)
    sending.forwarder.set_leader(0, 0)
    sending.forwarder.tick(900)
    sending.submit(2)
    sending.forwarder.tick(1_000)
    assert sending.outcomes() == [(number, REFUSED, NEVER_TAKEN) for number in (1, 2, 3)], "2 must not overtake 1"
    assert (sending.forwarder.runs, sending.forwarder.bytes) == ([], 0)
    sending.forwarder.set_leader(2, 1)
    assert sending.sent() == []
    sending.submit()
    assert sending.sent() == [(4, 0)]


def test_what_was_sent_becomes_unknown_but_is_seen_through() -> None:
    sending = Sending(2)
    sending.sent()
    sending.forwarder.tick(1_000)
    assert sending.outcomes() == [(1, UNKNOWN, 0), (2, UNKNOWN, 0)]
    assert sending.sent() == [(1, 0), (2, 1)]
    for message in sending.last:
        sending.reply(message, COMMITTED, 0)
    assert sending.outcomes() == [(1, COMMITTED, 0), (2, COMMITTED, 0)], "late, and the last word"
    assert sending.forwarder.runs == []


def test_a_run_left_out_that_is_in_the_log_after_all_stops_nothing() -> None:
    """A leader that refused run 1, and one that has it, can't both be right; the sender goes by what the log has."""
    sending = Sending(2)
    sending.sent()
    sending.forwarder.tick(1_000)
    sending.outcomes()
    sending.sent()
    sending.reply(sending.last[0], REFUSED)
    assert sending.sent() == [(2, 0)]
    sending.reply(sending.last[0], BEHIND, 1)
    assert sending.sent() == [(2, 1)]


@pytest.mark.parametrize("early", [TAKEN, STORED])
def test_what_a_leader_says_early_is_reported_once_and_the_run_seen_through(early: int) -> None:
    sending = Sending(1)
    sending.sent()
    first = sending.last[0]
    sending.reply(first, early)
    sending.reply(first, early)
    outcomes = sending.forwarder.take_outcomes()
    assert [(outcome.kind, outcome.final) for outcome in outcomes] == [(early, False)]
    sending.forwarder.set_leader(3, 2)
    sending.sent()
    sending.reply(sending.last[0], COMMITTED, 4, term=2)
    assert sending.outcomes() == [(1, COMMITTED, 4)]
    sending.reply(first, early)
    assert sending.outcomes() == []


def test_a_run_with_an_old_plan_takes_all_later_ones_with_it() -> None:
    sending = Sending(4)
    sending.sent()
    first, second, third, fourth = sending.last
    sending.reply(third, BEHIND, 1)
    sending.reply(second, REPLAN, 30)
    assert sending.outcomes() == [(2, REPLAN, 30), (3, REPLAN, 30), (4, REPLAN, 30)]
    sending.reply(first, COMMITTED, 7)
    sending.reply(fourth, REPLAN, 30)
    assert sending.outcomes() == [(1, COMMITTED, 7)]
    assert (sending.forwarder.runs, sending.forwarder.bytes) == ([], 0)
    sending.submit()
    assert sending.sent() == [(5, 1)]


def test_a_run_with_a_record_that_must_not_get_in_waits_in_its_place_for_other_records() -> None:
    sending = Sending(3)
    sending.sent()
    first, second, third = sending.last
    sending.reply(first, COMMITTED, 7)
    sending.reply(third, BEHIND, 1)
    sending.reply(second, FENCED, 5)
    sending.reply(second, FENCED, 5)
    assert sending.outcomes() == [(1, COMMITTED, 7), (2, FENCED, 5)]
    sending.submit()
    sending.forwarder.tick(100)
    assert sending.sent() == [], "nothing overtakes it, and it does not go as it was"
    builder = BatchBuilder()
    builder.add(b"t", b"c", 0, 0, b"left")
    less = builder.build(note=note_of(second.batch))
    sending.forwarder.replace(2, less)
    assert sending.sent() == [(2, 1), (3, 2), (4, 3)]
    assert sending.last[0].batch == less
    sending.reply(second, FENCED, 5)
    sending.reply(second, REFUSED)
    assert sending.outcomes() == [], "that was about other records"
    sending.reply(sending.last[0], COMMITTED, 8)
    assert sending.outcomes() == [(2, COMMITTED, 8)]
    assert sending.forwarder.bytes == sum(len(run.batch) for run in sending.forwarder.runs)


def test_a_run_of_which_nothing_is_left_is_left_out() -> None:
    sending = Sending(2)
    sending.sent()
    sending.reply(sending.last[0], FENCED, 0)
    sending.forwarder.replace(1, b"")
    assert sending.sent() == [(2, 0)]
    sending.forwarder.replace(1, b"")
    assert [run.sequence for run in sending.forwarder.runs] == [2]


def test_a_fenced_run_that_is_given_back_with_an_earlier_one_is_only_given_back() -> None:
    sending = Sending(2)
    sending.sent()
    first, second = sending.last
    sending.reply(second, FENCED, 0)
    sending.reply(first, REPLAN, 30)
    assert sending.outcomes() == [(1, REPLAN, 30), (2, REPLAN, 30)]


def test_that_a_plan_is_old_is_no_outcome_from_a_leader_that_is_none_any_more() -> None:
    sending = Sending(2)
    sending.sent()
    earlier = sending.last
    sending.forwarder.set_leader(3, 2)
    sending.sent()
    sending.reply(earlier[0], REPLAN, 30, term=1)
    assert sending.outcomes() == []
    sending.reply(sending.last[0], UNKNOWN, term=2)
    sending.forwarder.set_leader(2, 3)
    sending.sent()
    sending.reply(sending.last[0], REPLAN, 30, term=3)
    assert sending.outcomes() == [(1, REPLAN, 30), (2, REPLAN, 30)]


def test_a_publisher_that_was_told_that_nobody_knows_does_not_come_back_with_another_plan() -> None:
    sending = Sending(2)
    sending.sent()
    sending.forwarder.tick(1_000)
    sending.outcomes()
    sending.reply(sending.last[0], REPLAN, 30)
    assert sending.outcomes() == [(1, REFUSED, 0), (2, REFUSED, 0)]


def test_a_plan_that_the_leader_has_not_heard_of_is_tried_again_soon() -> None:
    sending = Sending()
    sending.forwarder = Forwarder(GROUP, 1, 77, retry_ms=10_000, give_up_ms=60_000)
    sending.forwarder.set_leader(2, 1)
    sending.submit()
    sending.sent()
    sending.reply(sending.last[0], LATER, PLAN_AHEAD)
    sending.forwarder.tick(PLAN_RETRY_MS - 1)
    assert sending.sent() == []
    sending.forwarder.tick(PLAN_RETRY_MS)
    assert sending.sent() == [(1, 0)]


def test_time_that_passed_without_runs_counts_against_none() -> None:
    sending = Sending()
    sending.forwarder.set_time(50_000)
    sending.submit()
    sending.sent()
    sending.forwarder.tick(50_999)
    assert sending.outcomes() == []
    sending.forwarder.tick(51_000)
    assert sending.outcomes() == [(1, UNKNOWN, 0)]


def test_later_is_no_outcome() -> None:
    sending = Sending(1)
    sending.sent()
    sending.reply(sending.last[0], LATER)
    assert (sending.outcomes(), sending.sent()) == ([], [])
    sending.forwarder.tick(100)
    assert sending.sent() == [(1, 0)]


def test_answers_for_another_start_of_this_node_are_ignored() -> None:
    sending = Sending(1)
    sending.sent()
    message = sending.last[0]
    sending.forwarder.on_reply(ForwardReply(GROUP, 2, 1, 1, 76, 1, message.attempt, COMMITTED, 0))
    assert sending.outcomes() == []


def test_what_waits_is_bounded() -> None:
    sending = Sending(RUNS_KEPT)
    assert not sending.forwarder.has_room()
    sending = Sending(1)
    sending.forwarder.bytes = FORWARD_BYTES_MAX
    assert not sending.forwarder.has_room()


def test_a_log_that_lost_committed_runs_takes_those_that_are_still_to_come() -> None:
    """Somebody accepted that loss. At first it may only be late news."""
    sending = Sending(2)
    sending.sent()
    for message in list(sending.last):
        sending.reply(message, COMMITTED, 0)
    sending.outcomes()
    sending.forwarder.set_leader(3, 9)
    sending.submit()
    for _ in range(DOUBTS_MAX):
        assert sending.sent() == [(3, 2)]
        sending.reply(sending.last[0], BEHIND, 0, term=9)
    assert sending.sent() == [(3, 2)]
    sending.reply(sending.last[0], BEHIND, 0, term=9)
    assert sending.sent() == [(3, 0)]
    sending.reply(sending.last[0], COMMITTED, 0, term=9)
    assert sending.outcomes() == [(3, COMMITTED, 0)]
    sending.submit()
    assert sending.sent() == [(4, 3)]


def test_late_news_of_a_log_that_has_grown_since_costs_one_more_question() -> None:
    sending = Sending(2)
    sending.sent()
    first, second = sending.last
    sending.reply(first, COMMITTED, 0)
    sending.reply(second, BEHIND, 0)
    assert sending.sent() == [(2, 1)]
    sending.reply(sending.last[0], COMMITTED, 1)
    assert sending.outcomes() == [(1, COMMITTED, 0), (2, COMMITTED, 1)]


def test_a_leader_that_never_answers_is_told_from_one_that_is_slow() -> None:
    """It may be there and not know the group: started anew without its store, or stopped."""
    sending = Sending(1)
    sending.sent()
    sending.forwarder.tick(99)
    assert not sending.forwarder.is_unanswered()
    sending.forwarder.tick(100)
    assert sending.forwarder.is_unanswered()
    sending.forwarder.set_leader(3, 0)
    assert not sending.forwarder.is_unanswered()
    sending.sent()
    sending.reply(sending.last[0], ELSEWHERE, 2, term=4)
    assert (sending.forwarder.leader, sending.forwarder.term) == (2, 4)
    assert not sending.forwarder.is_unanswered()
    sending.sent()
    sending.reply(sending.last[0], TAKEN)
    sending.forwarder.tick(300)
    assert not sending.forwarder.is_unanswered(), "it has it, and its disk is slow"


def test_a_question_that_got_no_answer_is_asked_again_for_the_next_run() -> None:
    """The run that asked who leads was refused meanwhile: without this the next ones waited for ever."""
    sending = Sending()
    sending.forwarder.set_leader(3, 0)
    sending.submit()
    assert len(sending.sent()) == 1
    sending.forwarder.tick(1_000)
    assert [outcome for _, outcome, _ in sending.outcomes()] == [REFUSED]
    sending.submit()
    sending.sent()
    sending.forwarder.tick(1_100)
    sending.sent()
    assert sending.last
