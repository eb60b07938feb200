"""Records of a turn become one batch per group, and everybody hears of it what he wants to hear."""

from __future__ import annotations

import random

import pytest

from flockmq.errors import FlockError
from flockmq.raft.appends import BATCH_BYTES, OPEN_BATCHES_MAX, Appends, OpenBatch, Outcome
from flockmq.raft.host import RaftHost
from flockmq.raft.messages import ForwardReply
from flockmq.raft.senders import COMMITTED, REFUSED, REPLAN, RUNS_KEPT, TAKEN, UNKNOWN, run_of
from flockmq.raft.settings import RaftSettings

GROUP = 7


class Listener:
    """Both a waiter and a follower."""

    def __init__(self) -> None:
        self.settled_as: list[tuple[int, int]] = []
        self.heard_as: list[int] = []

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:
        self.settled_as.append((count, outcome.kind))

    def heard(self, batch: OpenBatch, outcome: Outcome) -> None:
        self.heard_as.append(outcome.kind)


class Adding:
    """Appends whose leader is the test."""

    def __init__(self, give_up_ms: int = 1_000) -> None:
        self.host = RaftHost(1, 5, RaftSettings(), random.Random(1), 0)
        self.host.elsewhere[GROUP] = (2,)
        self.scheduled = 0
        self.room: list[int] = []
        self.appends = Appends(self.host, self._schedule, give_up_ms)
        self.appends.on_room = self.room.append
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
        batch.follower = listener
        return listener

    def turn(self) -> None:
        self.appends.submit()
        self.host.take_turn()
        self.appends.settle()

    def reply(self, sequence: int, outcome: int, value: int = 0) -> None:
        self.host.forwarders[GROUP].on_reply(ForwardReply(GROUP, 2, 1, 1, 5, sequence, sequence, outcome, value))
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
