"""Records of a turn become one batch per group, and everybody hears of it what he wants to hear."""

from __future__ import annotations

import random

import pytest

from flockmq.errors import FlockError
from flockmq.log.batch import BatchBuilder, note_of
from flockmq.raft.appends import BATCH_BYTES, OPEN_BATCHES_MAX, Appends, OpenBatch, Outcome
from flockmq.raft.host import RaftHost
from flockmq.raft.messages import ForwardReply
from flockmq.raft.senders import COMMITTED, FENCED, REFUSED, REPLAN, RUNS_KEPT, TAKEN, UNKNOWN, run_of
from flockmq.raft.settings import RaftSettings

GROUP = 7


class Listener:
    """Both a waiter and a follower."""

    def __init__(self) -> None:
        self.settled_as: list[tuple[int, int]] = []
        self.heard_as: list[int] = []
        self.fences: list[int] = []
        self.left = b""

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:
        self.settled_as.append((count, outcome.kind))

    def heard(self, batch: OpenBatch, outcome: Outcome) -> None:
        self.heard_as.append(outcome.kind)

    def fenced(self, batch: OpenBatch, data: bytes, position: int) -> bytes:
        self.fences.append(position)
        return self.left


class Adding:
    """Appends whose leader is the test."""

    def __init__(self, give_up_ms: int = 1_000) -> None:
        self.host = RaftHost(1, 5, RaftSettings(), random.Random(1), 0)
        self.host.elsewhere[GROUP] = (2,)
        self.scheduled = 0
        self.room: list[int] = []
        self.appends = Appends(self.host, self._schedule, self.room.append, give_up_ms)
        self.attempt = 0

    def _schedule(self) -> None:
        self.scheduled += 1

    def add(self, count: int = 1, size: int = 1, plan: int = 0) -> Listener:
        listener = Listener()
        batch = self.appends.open_batch(GROUP, size)
        batch.plan = plan
        for _ in range(count):
            batch.builder.add(b"t", b"c", 0, 0, bytes(size))
        batch.waiting[listener] = count
        batch.listener = listener
        return listener

    def turn(self) -> None:
        self.appends.submit()
        forwarder = self.host.forwarders.get(GROUP)
        if forwarder is not None and not forwarder.leader and self.host.elsewhere:
            forwarder.set_leader(2, 1)
        self.host.take_turn()
        self.appends.settle()

    def reply(self, sequence: int, outcome: int, value: int = 0) -> None:
        """To the first attempt."""
        self.reply_to(sequence, outcome, value, sequence)

    def reply_to(self, attempt: int, outcome: int, value: int, sequence: int) -> None:
        reply = ForwardReply(GROUP, 2, 1, 1, 5, sequence, attempt, outcome, value)
        self.host.forwarders[GROUP].on_reply(reply)
        self.appends.settle()


def test_records_of_a_turn_share_a_batch() -> None:
    adding = Adding()
    first = adding.appends.open_batch(GROUP)
    assert adding.appends.open_batch(GROUP) is first
    assert adding.scheduled == 1
    adding.add()
    adding.turn()
    assert adding.appends.open_batch(GROUP) is not first


def test_a_batch_is_followed_by_another_before_it_gets_too_large() -> None:
    adding = Adding()
    adding.add(size=BATCH_BYTES // 2)
    first = adding.appends.open_batch(GROUP, 10)
    assert adding.appends.open_batch(GROUP, BATCH_BYTES // 2 + 1) is not first


def test_a_run_names_the_plan_of_its_batch() -> None:
    adding = Adding()
    adding.add(plan=44)
    adding.turn()
    run = run_of(adding.host.forwarders[GROUP].runs[0].batch)
    assert run is not None
    assert (run.sender, run.boot, run.sequence, run.plan) == (1, 5, 1, 44)


def test_waiters_hear_the_outcome_once_and_followers_everything() -> None:
    adding = Adding()
    listener = adding.add(3)
    adding.turn()
    adding.reply(1, TAKEN)
    assert listener.settled_as == []
    adding.host.tick(0)
    for now in range(0, 2_000, 50):
        adding.host.tick(now)
    adding.turn()
    adding.reply(1, COMMITTED, 9)
    assert listener.settled_as == [(3, UNKNOWN)]
    assert listener.heard_as == [TAKEN, UNKNOWN, COMMITTED]


def test_a_run_keeps_its_place_with_what_is_left_of_it() -> None:
    adding = Adding()
    first = adding.add(3)
    adding.turn()
    second = adding.add()
    adding.turn()
    forwarder = adding.host.forwarders[GROUP]
    builder = BatchBuilder()
    builder.add(b"t", b"c", 0, 0, b"left")
    first.left = builder.build(note=note_of(forwarder.runs[0].batch))
    adding.reply(1, FENCED, 2)
    assert (first.fences, first.heard_as) == ([2], [])
    assert [run.sequence for run in forwarder.runs] == [1, 2]
    assert forwarder.runs[0].batch == first.left
    assert forwarder.bytes == sum(len(run.batch) for run in forwarder.runs)
    assert adding.scheduled > 2, "it is sent again at once"
    first.left = b""
    adding.turn()
    adding.reply_to(3, FENCED, 0, sequence=1)
    assert first.settled_as == [(3, REFUSED)]
    assert [run.sequence for run in forwarder.runs] == [2]
    assert second.heard_as == []


@pytest.mark.parametrize("is_open", [False, True])
def test_a_record_that_must_go_and_the_end_of_its_time_come_together(is_open: bool) -> None:
    """``is_open``: an attempt of an earlier term has no answer."""
    adding = Adding()
    listener = adding.add()
    adding.turn()
    forwarder = adding.host.forwarders[GROUP]
    term = 1
    if is_open:
        term = 2
        forwarder.set_leader(3, term)
        forwarder.take_messages()
    forwarder.on_reply(ForwardReply(GROUP, 3, 1, term, 5, 1, term, FENCED, 0))
    for now in range(adding.host.clock.raw, adding.host.clock.raw + 2_000, 10):
        adding.host.tick(now)
    adding.appends.settle()
    assert listener.fences == [0]
    assert listener.heard_as == [REFUSED], "nothing is left of it"
    assert forwarder.runs == []
    adding.turn()


def test_late_words_of_an_earlier_leader_mean_nothing_for_a_run_that_gets_other_records() -> None:
    adding = Adding()
    listener = adding.add()
    adding.turn()
    forwarder = adding.host.forwarders[GROUP]
    forwarder.set_leader(4, 4)
    [again] = forwarder.take_messages()
    forwarder.on_reply(ForwardReply(GROUP, 4, 1, 4, 5, 1, again.attempt, FENCED, 0))
    forwarder.on_reply(ForwardReply(GROUP, 2, 1, 1, 5, 1, again.attempt - 1, TAKEN, 0))
    adding.appends.settle()
    assert (listener.fences, listener.heard_as) == ([0], [REFUSED])


def test_what_was_acknowledged_in_another_batch_is_never_given_up() -> None:
    adding = Adding()
    adding.host.elsewhere = {}
    plain = adding.add()
    adding.turn()
    kept = adding.add()
    adding.appends.open_batch(GROUP).is_promised = True
    adding.turn()
    behind = adding.add()
    adding.appends.open_batch(GROUP).is_promised = True
    for now in range(adding.host.clock.raw, adding.host.clock.raw + 2_000, 10):
        adding.host.tick(now)
    adding.appends.settle()
    assert plain.heard_as == [REFUSED]
    assert kept.heard_as == [REPLAN], "given back, to be put in again"
    assert behind.heard_as == []
    adding.turn()
    for now in range(adding.host.clock.raw, adding.host.clock.raw + 2_000, 10):
        adding.host.tick(now)
    adding.appends.settle()
    assert behind.heard_as == [UNKNOWN], "and seen through"


def test_for_waiters_another_plan_is_a_refusal() -> None:
    adding = Adding()
    listener = adding.add()
    adding.turn()
    adding.reply(1, REPLAN, 30)
    assert (listener.settled_as, listener.heard_as) == ([(1, REFUSED)], [REPLAN])


def test_a_full_group_says_so_and_when_it_is_no_more() -> None:
    adding = Adding()
    for _ in range(RUNS_KEPT):
        adding.add()
        adding.turn()
    for _ in range(OPEN_BATCHES_MAX):
        assert adding.appends.has_room(GROUP)
        adding.add(size=BATCH_BYTES)
        adding.turn()
    assert not adding.appends.has_room(GROUP)
    adding.turn()
    assert adding.room == []
    before = adding.scheduled
    for sequence in (1, 2):
        adding.reply(sequence, COMMITTED)
    assert adding.scheduled > before
    adding.turn()
    assert adding.room == [GROUP]
    assert adding.appends.has_room(GROUP)


def test_what_is_behind_a_run_that_nobody_was_there_for_is_refused_with_it() -> None:
    adding = Adding()
    adding.host.elsewhere.clear()
    listeners = []
    for _ in range(RUNS_KEPT + 1):
        listeners.append(adding.add())
        adding.turn()
    for now in range(0, 1_200, 50):
        adding.host.tick(now)
    adding.turn()
    assert {tuple(listener.settled_as) for listener in listeners} == {((1, REFUSED),)}
    adding.host.elsewhere[GROUP] = (2,)
    last = adding.add()
    adding.turn()
    assert last.settled_as == []


def test_a_group_that_is_no_more() -> None:
    adding = Adding()
    sent = adding.add()
    adding.turn()
    waiting = adding.add()
    adding.appends.forget(GROUP)
    assert (sent.settled_as, waiting.settled_as) == ([(1, UNKNOWN)], [(1, REFUSED)])
    assert adding.host.forwarders == {}
    adding.turn()


def test_when_it_stops_everybody_is_told() -> None:
    adding = Adding()
    sent = adding.add()
    adding.turn()
    waiting = adding.add()
    adding.appends.stop()
    assert (sent.heard_as, waiting.heard_as) == ([UNKNOWN], [REFUSED])
    assert adding.appends.is_stopped()
    with pytest.raises(FlockError):
        adding.appends.open_batch(GROUP)
