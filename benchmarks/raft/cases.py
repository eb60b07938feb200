"""What is measured: how fast consensus is, how long one message takes, what many groups and idle groups cost."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.raft.load import Load
from flockmq.testing.processes.calls import Status, ask_all, leaders, until
from flockmq.testing.processes.cluster import ProcessCluster

NODES = 3
GROUPS_FEW = 6
GROUPS_MANY = 300
GROUPS_IDLE = 1_000
WRITERS = 10
IN_FLIGHT = 100
START_S_MAX = 180.0

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and where."""

    seconds: float = 5.0
    warm_up_s: float = 2.0
    folder: str | None = None
    """Where the nodes keep their data: the disk of this folder is what is measured."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table."""

    name: str
    title: str
    measure: Callable[[Effort], Coroutine[Any, Any, Figures]]
    figure: str
    """The figure that counts."""
    target: str
    is_met: Callable[[dict[str, Figures]], bool | None]
    """Judged over the figures of all cases that ran; None when one is missing."""


@asynccontextmanager
async def running(groups: int, effort: Effort) -> AsyncIterator[tuple[ProcessCluster, dict[int, int]]]:
    """Three nodes, each leading a third of the groups."""
    wanted = {group: group % NODES + 1 for group in range(groups)}
    with (
        tempfile.TemporaryDirectory(dir=effort.folder) as folder,
        ProcessCluster(Path(folder), NODES, groups) as cluster,
    ):
        cluster.start_all()
        await until(cluster, lambda seen: leaders(seen, groups) == wanted, "leaders evenly spread", START_S_MAX)
        yield cluster, wanted


async def throughput(groups: int, writers: int, in_flight: int, effort: Effort) -> Figures:
    """Messages committed a second, and what they cost."""
    async with running(groups, effort) as (cluster, led):
        addresses = {node: cluster.address(node) for node in cluster.nodes}
        load = await Load.begin(addresses, led, writers, in_flight)
        await load.measure(effort.warm_up_s)
        before, client_before = await ask_all(cluster), time.process_time()
        entries_before = _entries(before)
        rate = await load.measure(effort.seconds)
        after, client_after = await ask_all(cluster), time.process_time()
        await load.end()
        cpu_s = sum(after[node]["cpu_s"] - before[node]["cpu_s"] for node in cluster.nodes)
        figures = {
            "rate": rate,
            "entries_rate": (_entries(after) - entries_before) / effort.seconds,
            "commits_rate": sum(after[node]["commits"] - before[node]["commits"] for node in cluster.nodes)
            / effort.seconds,
            "cores": cpu_s / effort.seconds,
            "cpu_us": cpu_s / effort.seconds / max(rate, 1.0) * 1e6,
            "generator_busy": (client_after - client_before) / effort.seconds,
            "lost": float(load.lost),
        }
        waits_ms = sorted(wait * 1e3 for lane in load.lanes for wait in lane.waits_s)
        if waits_ms:
            figures |= {f"p{share}_ms": waits_ms[len(waits_ms) * share // 100] for share in (10, 50, 99)}
        return figures


def _entries(statuses: dict[int, Status]) -> int:
    return sum(group["last"] for group in statuses[1]["groups"])


async def few_groups(effort: Effort) -> Figures:
    return await throughput(GROUPS_FEW, WRITERS, IN_FLIGHT, effort)


async def many_groups(effort: Effort) -> Figures:
    """As busy as the few: each group has its share of messages in flight."""
    return await throughput(GROUPS_MANY, WRITERS, IN_FLIGHT * GROUPS_MANY // WRITERS, effort)


async def thin_groups(effort: Effort) -> Figures:
    """The load of the few, spread over many: three messages a group, so that every entry is nearly empty."""
    return await throughput(GROUPS_MANY, WRITERS, IN_FLIGHT, effort)


async def one_message(effort: Effort) -> Figures:
    return await throughput(GROUPS_FEW, 1, 1, effort)


async def idle_groups(effort: Effort) -> Figures:
    """Processor time of all nodes while nobody writes."""
    async with running(GROUPS_IDLE, effort) as (cluster, _):
        await until(cluster, _all_quiet, "quiet groups", START_S_MAX)
        before, start = await ask_all(cluster), time.perf_counter()
        await asyncio.sleep(effort.seconds * 2)
        after, seconds = await ask_all(cluster), time.perf_counter() - start
        cpu_s = sum(after[node]["cpu_s"] - before[node]["cpu_s"] for node in cluster.nodes)
        return {"core_percent": cpu_s / seconds * 100}


def _all_quiet(statuses: dict[int, Status]) -> bool:
    return len(statuses) == NODES and all(group["quiet"] for one in statuses.values() for group in one["groups"])


async def disk_alone(effort: Effort) -> Figures:
    """What the disk takes for one durable write, without us: no acknowledgement can be faster than this."""
    return await asyncio.to_thread(_time_writes, effort)


def _time_writes(effort: Effort) -> Figures:
    block = os.urandom(4_096)
    blocks = 2_048
    waits_ms: list[float] = []
    with tempfile.TemporaryDirectory(dir=effort.folder) as folder:
        path = Path(folder) / "journal"
        with path.open("wb") as file:
            file.write(bytes(len(block) * blocks))
            file.flush()
            os.fsync(file.fileno())
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_DSYNC", os.O_SYNC))
        try:
            end = time.perf_counter() + effort.seconds / 2
            while time.perf_counter() < end:
                start = time.perf_counter()
                os.pwrite(descriptor, block, len(waits_ms) % blocks * len(block))
                waits_ms.append((time.perf_counter() - start) * 1e3)
        finally:
            os.close(descriptor)
    waits_ms.sort()
    return {f"p{share}_ms": waits_ms[len(waits_ms) * share // 100] for share in (10, 50, 99)}


def _at_least(case: str, figure: str, least: float) -> Callable[[dict[str, Figures]], bool | None]:
    return lambda found: found[case][figure] >= least if case in found else None


def _at_most(case: str, figure: str, most: float) -> Callable[[dict[str, Figures]], bool | None]:
    return lambda found: found[case][figure] <= most if case in found else None


def _not_judged(_: dict[str, Figures]) -> None:
    return None


def _half_as_fast(found: dict[str, Figures]) -> bool | None:
    if "few" not in found or "many" not in found:
        return None
    return found["many"]["rate"] >= found["few"]["rate"] / 2


CASES = (
    Case("disk", "one durable write of 4 KiB, the disk alone", disk_alone, "p50_ms", "-", _not_judged),
    Case(
        "few",
        f"{GROUPS_FEW} groups, {WRITERS} writers, {IN_FLIGHT} in flight each",
        few_groups,
        "rate",
        ">= 200,000/s",
        _at_least("few", "rate", 200_000),
    ),
    Case(
        "one",
        f"{GROUPS_FEW} groups, one message in flight",
        one_message,
        "p50_ms",
        "p50 <= 1 ms",
        _at_most("one", "p50_ms", 1.0),
    ),
    Case(
        "many",
        f"{GROUPS_MANY} groups, {WRITERS} writers, {IN_FLIGHT} in flight a group",
        many_groups,
        "rate",
        f">= half of {GROUPS_FEW} groups",
        _half_as_fast,
    ),
    Case(
        "thin",
        f"{GROUPS_MANY} groups, {WRITERS} writers, {IN_FLIGHT} in flight a writer",
        thin_groups,
        "rate",
        "-",
        _not_judged,
    ),
    Case(
        "idle",
        f"{GROUPS_IDLE:,} idle groups, processor time of all nodes",
        idle_groups,
        "core_percent",
        "< 5 % of a core",
        _at_most("idle", "core_percent", 5.0),
    ),
)
