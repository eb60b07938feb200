"""When a node that is behind asks its peers for what it lacks."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from flockmq.cluster.commands import SetSetting, encode_envelope
from flockmq.durable.state.facts import Head
from flockmq.durable.state.ledger import Ledger
from flockmq.durable.state.pulling import LOOK_MS, PATIENCE_MS, Puller
from flockmq.tasks import Promise, Signal, Tasks

if TYPE_CHECKING:
    from flockmq.durable.state.facts import Facts
    from flockmq.durable.state.submitting import Submitting
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine


class Engine:
    """A replica of group 0 that hears its leader, or not."""

    def __init__(self) -> None:
        clock = SimpleNamespace(elapsed=0)
        self.state = SimpleNamespace(applied=1, role=0, quiet=False, clock=clock, loyal_until=100)
        self.replicas = {0: None}
        self.host = SimpleNamespace(broken=set(), groups={0: SimpleNamespace(state=self.state)})
        self.stopped = ""


class Peers:
    """Both what gossip says of peers and the questions that they get."""

    def __init__(self) -> None:
        self.index = 0
        self.asked: list[int] = []
        self.tasks = Tasks()
        self.ledger = Ledger()
        self.news = Signal()
        self.ahead: dict[int, None] = {}
        self.engine = Engine()
        self.puller = Puller(
            self.ledger,
            cast("RaftEngine", self.engine),
            cast("Calls", self),
            cast("Facts", self),
            random.Random(1),
            cast("Submitting", self),
        )
        self.tasks.repeat("pull", self.puller.pull, 0)

    @property
    def now(self) -> int:
        return self.tasks.now

    def heads(self) -> dict[int, Head]:
        return {2: Head(self.index, True)}

    def serve(self, kind: int, serve: object) -> None:
        pass

    def ask(self, peer: int, kind: int, body: bytes) -> Promise[bytes | None]:
        self.asked.append(self.now)
        return Promise()

    def look(self, ms: int, has_leader: bool) -> None:
        self.engine.state.clock.elapsed = 0 if has_leader else 100
        for now in range(self.now + LOOK_MS // 2, self.now + ms + 1, LOOK_MS // 2):
            self.tasks.tick(now)

    def feed(self) -> None:
        index = self.ledger.index + 1
        self.ledger.feed(index, encode_envelope(1, 1, index, 0, SetSetting("a", index)))


def test_who_hears_no_leader_asks_at_once() -> None:
    peers = Peers()
    peers.look(1_000, has_leader=False)
    assert peers.asked == []
    peers.index = 1
    peers.look(LOOK_MS, has_leader=False)
    assert peers.asked == [peers.now]


def test_who_hears_the_leader_asks_when_nothing_came_for_a_moment() -> None:
    peers = Peers()
    peers.index = 1
    peers.look(PATIENCE_MS, has_leader=True)
    assert peers.asked == []
    peers.look(PATIENCE_MS, has_leader=True)
    assert peers.asked


def test_who_is_behind_and_gets_on_does_not_ask() -> None:
    peers = Peers()
    peers.index = 100
    for _ in range(20):
        peers.look(LOOK_MS, has_leader=True)
        peers.feed()
    assert peers.asked == []


def test_who_is_told_that_a_peer_moved_on_looks_at_once() -> None:
    peers = Peers()
    peers.look(LOOK_MS, has_leader=False)
    peers.index = 1
    peers.tasks.tick(peers.now + 1)
    assert peers.asked == []
    peers.tasks.now += 1
    peers.news.fire()
    assert peers.asked == [peers.now]


def test_a_peer_that_said_it_is_ahead_is_asked_at_once() -> None:
    peers = Peers()
    peers.look(LOOK_MS, has_leader=True)
    peers.ahead = {3: None}
    peers.news.fire()
    assert peers.asked == [peers.now]
