"""Runs a load to its end, in this process or spread over several, and says what came of it.

```
            one process                                        several: flockmq.client.load.worker
 run() --> Engine --> turn ... turn                run() --> plan ----> worker: connects
              `--> progress                               <-- "ready"    (all of them first)
                                                          --> "go" ----> worker: turns, reports every 50 ms
                                                          <-- progress, --> "stop", --> "end", <-- last progress
```
The end is decided in one place, ``Judge``: publishers are stopped when their time is over, and the run ends when
all that is expected has arrived, or when nothing has moved for ``idle_s``.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from flockmq.client.load.engine import Engine, Progress
from flockmq.client.load.histogram import Histogram
from flockmq.client.load.outcome import Outcome, conclude
from flockmq.client.load.plan import Load, Target, expected
from flockmq.client.load.usage import cpu_seconds, memory_kb
from flockmq.client.load.workers import Workers
from flockmq.drivers.allocator import keep_buffers

Report = Callable[[float, int, int], None]
"""Called now and then with seconds since the start, messages sent and messages received."""

REPORT_INTERVAL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How to run it on this machine."""

    processes: int = 1
    cpus: tuple[int, ...] = ()
    """Processors for the generator processes; empty leaves it to the system."""
    broker_pids: tuple[int, ...] = ()
    """Processes whose CPU time and memory are to be measured."""


class Judge:
    """Decides when publishing stops and when the run is over. Time is given, never read."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._moved: tuple[int, int, int] = (0, 0, 0)
        self._moved_ns = 0

    def stop_due(self, started_ns: int, now_ns: int) -> bool:
        """Whether the time for publishing is over."""
        return self._load.messages == 0 and now_ns - started_ns >= self._load.seconds * 1e9

    def over(self, shares: Sequence[Progress], now_ns: int) -> bool:
        """Whether everything arrived, or nothing moves any more."""
        load = self._load
        sent = [count for share in shares for count in share.sent.values()]
        received = sum(share.received for share in shares)
        completed = sum(share.completed for share in shares)
        moved = (sum(sent), received, completed)
        if moved != self._moved or not self._moved_ns:
            self._moved, self._moved_ns = moved, now_ns
        if load.publishers == 0:
            waited = now_ns - min(share.started_ns for share in shares)
            return received >= load.messages if load.messages else waited >= load.seconds * 1e9
        if all(share.all_sent for share in shares) and (load.qos == 0 or completed >= sum(sent)):
            by_publisher: dict[int, int] = {}
            for share in shares:
                by_publisher.update(share.sent)
            if received >= expected(load, [by_publisher.get(index, 0) for index in range(load.publishers)]):
                return True
        return now_ns - self._moved_ns > load.idle_s * 1e9


def run(target: Target, load: Load, setting: Setting | None = None, report: Report | None = None) -> Outcome:
    """Make the load and measure it."""
    setting = setting or Setting()
    pids = setting.broker_pids
    if setting.processes > 1 or setting.cpus:
        with Workers(target, load, max(1, setting.processes), setting.cpus) as workers:
            before = cpu_seconds(pids)
            shares, latency = _drive_workers(workers, load, report)
    else:
        keep_buffers()
        engine = Engine(target, load)
        try:
            engine.open()
            before = cpu_seconds(pids)
            shares, latency = _drive(engine, load, report)
        finally:
            engine.close()
    after = cpu_seconds(pids)
    used = after - before if before is not None and after is not None else None
    return conclude(load, shares, latency, broker_cpu_s=used, broker_memory_kb=memory_kb(pids))


def _drive(engine: Engine, load: Load, report: Report | None) -> tuple[list[Progress], Histogram]:
    """Run an engine in this process."""
    judge = Judge(load)
    gc.collect()
    gc.disable()
    try:
        engine.start()
        started = looked = time.monotonic_ns()
        stopped = False
        while True:
            engine.turn()
            now = time.monotonic_ns()
            if not stopped and judge.stop_due(started, now):
                engine.stop()
                stopped = True
            if now - looked > REPORT_INTERVAL_S * 1e9:  # adding up all links is work
                looked = now
                progress = engine.measure()
                if report is not None:
                    report((now - started) / 1e9, sum(progress.sent.values()), progress.received)
                if judge.over([progress], now):
                    return [progress], engine.latency
    finally:
        gc.enable()


def _drive_workers(workers: Workers, load: Load, report: Report | None) -> tuple[list[Progress], Histogram]:
    """Run engines in other processes."""
    judge = Judge(load)
    workers.start()
    started = time.monotonic_ns()
    stopped = False
    while True:
        shares = workers.wait(REPORT_INTERVAL_S)
        now = time.monotonic_ns()
        if not stopped and judge.stop_due(started, now):
            workers.stop()
            stopped = True
        if report is not None:
            sent = sum(sum(share.sent.values()) for share in shares)
            report((now - started) / 1e9, sent, sum(share.received for share in shares))
        if all(share.started_ns for share in shares) and judge.over(shares, now):
            return workers.end()
