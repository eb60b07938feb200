"""Machines: lives, pauses, and what happens to work that comes meanwhile."""

from __future__ import annotations

import random

from flockmq.testing.simulation.machine import Machine
from flockmq.testing.simulation.world import World


class Process:
    """Writes down what it does."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.ticks = 0

    def die(self, rng: random.Random) -> None:
        self.done.append("died")

    def note(self, what: str) -> None:
        self.done.append(what)


class Box(Machine[Process]):
    def boot(self) -> Process:
        return Process()

    def begin(self, process: Process) -> None:
        process.note("begun")

    def tick(self, process: Process) -> None:
        process.ticks += 1


def test_work_waits_for_the_end_of_a_pause_and_is_lost_with_its_life() -> None:
    world = World(1)
    box = Box(world, 1, random.Random(1), tick_ms=10)
    box.start()
    process = box.process
    assert process is not None
    world.run_for(100)
    assert 9 <= process.ticks <= 10
    box.pause(50)
    box.do(box.life, process.note, "later")
    world.run_for(40)
    assert process.done == ["begun"]
    assert process.ticks <= 10
    world.run_for(20)
    assert process.done == ["begun", "later"]
    life = box.life
    box.die(random.Random(1), power=True)
    box.do(life, process.note, "never")
    box.start()
    box.do(life, process.note, "of an earlier life")
    assert process.done == ["begun", "later", "died"]
    assert box.life == 2
    assert box.process is not process
