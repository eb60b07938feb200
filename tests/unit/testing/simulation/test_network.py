"""The simulated network: what arrives, when, in which order, and what a cut does."""

from __future__ import annotations

import random

from flockmq.testing.simulation.events import EventQueue
from flockmq.testing.simulation.network import HELD_MAX, Conditions, Network


class Wire:
    """A network whose arrivals are written down."""

    def __init__(self, conditions: Conditions | None = None, seed: int = 1) -> None:
        self.queue = EventQueue()
        self.arrived: list[tuple[int, int, bytes]] = []
        self.network = Network(self.queue, random.Random(seed), lambda *frame: self.arrived.append(frame))
        if conditions is not None:
            self.network.conditions = conditions

    def send_many(self, count: int) -> list[bytes]:
        frames = [b"%d" % number for number in range(count)]
        for frame in frames:
            self.network.send(1, 2, frame)
        self.queue.run_until(self.queue.now + 10_000_000)
        return frames


def test_calm_keeps_order_and_loses_nothing() -> None:
    wire = Wire()
    frames = wire.send_many(100)
    assert [frame for _, _, frame in wire.arrived] == frames
    assert wire.arrived[0][:2] == (1, 2)


def test_loss_duplication_and_reordering() -> None:
    assert 20 < len(set(_frames(Wire(Conditions(loss=0.5))))) < 80
    doubled = _frames(Wire(Conditions(duplicate=0.5)))
    assert 120 < len(doubled) < 180
    assert len(set(doubled)) == 100
    mixed = _frames(Wire(Conditions(reorder=1.0)))
    assert sorted(mixed) == sorted(b"%d" % number for number in range(100))
    assert mixed != [b"%d" % number for number in range(100)]


def test_a_late_frame_does_not_hold_up_those_behind_it() -> None:
    wire = Wire(Conditions(late=1.0))
    wire.network.send(1, 2, b"late")
    wire.network.conditions = Conditions()
    wire.network.send(1, 2, b"soon")
    wire.queue.run_until(10_000_000)
    assert [frame for _, _, frame in wire.arrived] == [b"soon", b"late"]


def test_a_cut_is_one_way_and_what_was_under_way_still_arrives() -> None:
    wire = Wire()
    wire.network.send(1, 2, b"before")
    wire.network.cut(1, 2, hold=False)
    wire.network.send(1, 2, b"lost")
    wire.network.send(2, 1, b"back")
    wire.queue.run_until(1_000_000)
    assert sorted(frame for _, _, frame in wire.arrived) == [b"back", b"before"]
    wire.network.heal()
    wire.network.send(1, 2, b"after")
    wire.queue.run_until(2_000_000)
    assert wire.arrived[-1] == (1, 2, b"after")
    assert len(wire.arrived) == 3


def test_a_holding_cut_resends_a_bounded_number_of_frames() -> None:
    wire = Wire()
    wire.network.cut(1, 2, hold=True)
    frames = wire.send_many(HELD_MAX + 10)
    assert wire.arrived == []
    wire.network.heal()
    wire.queue.run_until(wire.queue.now + 1_000_000)
    assert [frame for _, _, frame in wire.arrived] == frames[10:]


def test_the_same_seed_is_the_same_network() -> None:
    conditions = Conditions(loss=0.2, duplicate=0.2, reorder=0.5, late=0.1)
    assert _frames(Wire(conditions, seed=7)) == _frames(Wire(conditions, seed=7))
    assert _frames(Wire(conditions, seed=7)) != _frames(Wire(conditions, seed=8))


def _frames(wire: Wire) -> list[bytes]:
    wire.send_many(100)
    return [frame for _, _, frame in wire.arrived]
