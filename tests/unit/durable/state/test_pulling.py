"""When a node that is behind asks its peers for what it lacks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

from flockmq.cluster.commands import SetSetting, encode_envelope
from flockmq.durable.state.facts import Head
from flockmq.durable.state.ledger import Ledger
from flockmq.durable.state.pulling import LOOK_MS, PATIENCE_MS, Puller
from flockmq.tasks import Promise

if TYPE_CHECKING:
    from flockmq.durable.state.facts import Facts
    from flockmq.peering.calls import Calls


class Peers:
    """Both what gossip says of peers and the questions that they get."""

    def __init__(self) -> None:
        self.index = 0
        self.asked: list[int] = []
        self.now = 0
        self.ledger = Ledger()
        self.puller = Puller(
            self.ledger,
            cast("Calls", self),
            cast("Facts", self),
            random.Random(1),
            lambda index, data, result: None,
        )

    def heads(self) -> dict[int, Head]:
        return {2: Head(self.index, True)}

    def serve(self, kind: int, serve: object) -> None:
        pass

    def ask(self, peer: int, kind: int, body: bytes) -> Promise[bytes | None]:
        self.asked.append(self.now)
        return Promise()

    def look(self, ms: int, has_leader: bool) -> None:
        for _ in range(ms // LOOK_MS):
            self.now += LOOK_MS
            self.puller.tick(self.now, has_leader)

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
    peers.puller.tick(peers.now + 1, has_leader=False)
    assert (peers.asked, peers.puller.is_told) == ([], False)
    peers.puller.told()
    assert peers.puller.is_told
    peers.now += 2
    peers.puller.tick(peers.now, has_leader=False)
    assert (peers.asked, peers.puller.is_told) == ([peers.now], False)
