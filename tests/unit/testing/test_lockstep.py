"""Nodes moved by hand: what a turn, a step of time and a cut do."""

from __future__ import annotations

import pytest

from flockmq.testing.lockstep import Lockstep, Wires

Part = tuple[int, int, str]


class Echo:
    """Says again what it hears, to the next node, as often as it is told to."""

    def __init__(self, cluster: Echoes, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.running = True
        self.heard: list[str] = []
        self.ticks: list[int] = []
        self.say: list[str] = []

    def tick(self, now: int) -> None:
        self.ticks.append(now)

    def turn(self) -> bool:
        said, self.say = self.say, []
        self.cluster.flying += [(self.number, self.number % 3 + 1, word) for word in said]
        return bool(said)


class Echoes(Lockstep[Echo, Part]):
    def __init__(self) -> None:
        super().__init__(step_ms=20)
        self.nodes |= {number: Echo(self, number) for number in (1, 2, 3)}

    def deliver(self, node: Echo, part: Part) -> None:
        node.heard.append(part[2])
        if len(part[2]) > 1:
            node.say.append(part[2][1:])


class Restless(Echoes):
    def deliver(self, node: Echo, part: Part) -> None:
        node.say.append(part[2])


def test_parts_arrive_in_the_turn_in_which_they_are_sent_and_settle_goes_on_until_nothing_moves() -> None:
    cluster = Echoes()
    cluster[1].say = ["abc"]
    assert cluster.turn()
    assert cluster[2].heard == ["abc"]
    assert cluster[3].heard == []
    cluster.settle()
    assert [cluster[number].heard for number in (1, 2, 3)] == [["c"], ["abc"], ["bc"]]
    assert not cluster.turn()


def test_time_passes_in_steps_for_nodes_that_run() -> None:
    cluster = Echoes()
    cluster[3].running = False
    start = cluster.now
    cluster.run(60)
    assert cluster[1].ticks == [start + 20, start + 40, start + 60]
    assert cluster[3].ticks == []
    cluster.until(lambda: cluster.now >= start + 100)
    with pytest.raises(AssertionError, match="within 40 ms"):
        cluster.until(lambda: False, 40)


def test_cut_ways_and_nodes_that_stand_still_lose_parts() -> None:
    cluster = Echoes()
    cluster.cut(1, 2)
    cluster[1].say = ["a"]
    cluster[2].say = ["b"]
    cluster[3].running = False
    cluster.settle()
    assert [cluster[number].heard for number in (1, 2, 3)] == [[], [], []]
    cluster.heal()
    cluster.isolate(1)
    assert cluster.cuts == {(1, 2), (2, 1), (1, 3), (3, 1)}


def test_nodes_that_never_rest_are_noticed() -> None:
    cluster = Restless()
    cluster[1].say = ["a"]
    with pytest.raises(AssertionError, match="rest"):
        cluster.settle()
    with pytest.raises(AssertionError, match="get there"):
        cluster.settle_until(lambda: False)


def test_wires_keep_the_order_and_lose_what_is_under_way_when_they_are_cut() -> None:
    wires: Wires[str] = Wires()
    wires.send(1, 2, "lost")
    wires.connect(1, 2)
    wires.send(1, 2, "a")
    wires.send(1, 2, "b")
    assert wires.busy() == [(1, 2)]
    assert wires.take(1, 2) == "a"
    assert wires.cut(1, 2)
    assert not wires.cut(1, 2)
    assert (wires.parts, wires.lost) == (1, 2)
