"""What waiting costs as a generator task, against callbacks that do the same.

    python benchmarks/micro/tasks.py [--rounds 200000] [--json]

One round asks, hears the answer and sleeps: three steps of a flow such as `durable/state/confirming.py`. The callback
way keeps its state in fields, is called back with `functools.partial`, and compares its deadline at each tick. ``idle``
is the cost of a tick while 1,000 flows sleep.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import partial

from flockmq import tasks as scheduler
from flockmq.tasks import Promise, Sleep, Task, Tasks

IDLE = 1_000
PAUSE_MS = 500


class Wire:
    """Answers the question that is open."""

    def __init__(self) -> None:
        self.open: Promise[bytes] = Promise()
        self.reply: Callable[[bytes], None] | None = None

    def ask(self) -> Promise[bytes]:
        self.open = Promise()
        return self.open

    def ask_callback(self, reply: Callable[[bytes], None]) -> None:
        self.reply = reply


class CallbackFlow:
    """The flow with callbacks and a tick."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._is_open = False
        self._next_at = 0
        self._now = 0
        self.answers = 0

    def tick(self, now: int) -> None:
        self._now = now
        if self._is_open or now < self._next_at:
            return
        self._is_open = True
        self._wire.ask_callback(partial(self._answered, 7))

    def _answered(self, peer: int, body: bytes) -> None:
        self._is_open = False
        self._next_at = self._now + PAUSE_MS
        self.answers += len(body) + peer - peer


def task_flow(wire: Wire, counts: list[int]) -> Task[None]:
    """The flow as a task."""
    while True:
        body = yield from wire.ask()
        counts[0] += len(body)
        yield Sleep(PAUSE_MS)


def time_callbacks(rounds: int) -> float:
    wire = Wire()
    flow = CallbackFlow(wire)
    now = 0
    began = time.process_time()
    for _ in range(rounds):
        now += PAUSE_MS
        flow.tick(now)
        if wire.reply is not None:
            wire.reply(b"x")
    took = time.process_time() - began
    assert flow.answers == rounds
    return took / rounds * 1e9


def time_tasks(rounds: int) -> float:
    wire = Wire()
    tasks = Tasks()
    counts = [0]
    tasks.start("flow", task_flow(wire, counts))
    now = 0
    began = time.process_time()
    for _ in range(rounds):
        now += PAUSE_MS
        wire.open.set(b"x")
        tasks.tick(now)
    took = time.process_time() - began
    assert counts[0] == rounds
    return took / rounds * 1e9


def time_idle(rounds: int) -> tuple[float, float]:
    flows = [CallbackFlow(Wire()) for _ in range(IDLE)]
    for flow in flows:
        flow.tick(0)
    began = time.process_time()
    for now in range(rounds):
        for flow in flows:
            flow.tick(now)
    callbacks = (time.process_time() - began) / rounds
    tasks = Tasks()
    for _ in range(IDLE):
        wire = Wire()
        tasks.start("flow", task_flow(wire, [0]))
        wire.open.set(b"x")
    tasks._timers = [(1 << 40, order, number, task) for _, order, number, task in tasks._timers]
    began = time.process_time()
    for now in range(rounds):
        tasks.tick(now)
    return callbacks * 1e9, (time.process_time() - began) / rounds * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=200_000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    idle = time_idle(max(chosen.rounds // IDLE, 10))
    found = {
        "python": platform.python_version(),
        "scheduler": "plain" if scheduler.__file__.endswith(".py") else "compiled",
        "callbacks_ns_per_round": round(min(time_callbacks(chosen.rounds) for _ in range(5))),
        "tasks_ns_per_round": round(min(time_tasks(chosen.rounds) for _ in range(5))),
        "callbacks_ns_per_idle_tick": round(idle[0]),
        "tasks_ns_per_idle_tick": round(idle[1]),
    }
    if chosen.json:
        json.dump(found, sys.stdout, indent=1)
    else:
        print("\n".join(f"{name:28} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
