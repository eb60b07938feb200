"""After all faults: the cluster works again, and its logs hold exactly what was promised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from faults.support.load import PADDING, Memory, writing
from flockmq.drivers.journal import open_disk
from flockmq.log.batch import DATA, BatchView
from flockmq.log.group import GroupLog
from flockmq.raft.senders import COMMITTED
from flockmq.testing.processes.calls import Status, leaders, until
from flockmq.testing.processes.cluster import ProcessCluster
from flockmq.testing.processes.protocol import read_outcome, record_frame
from flockmq.testing.processes.server import SMALL_STORE
from flockmq.wire.frames import LENGTH_BYTES

START_S_MAX = 30.0
HEAL_S_MAX = 60.0
READ_BYTES = 1 << 20


@asynccontextmanager
async def under_load(folder: Path, seed: int) -> AsyncIterator[tuple[ProcessCluster, Memory]]:
    """Three nodes under load; in the end everything works again and every promise was kept."""
    with ProcessCluster(folder, options=["--small"]) as cluster:
        cluster.start_all()
        async with writing(cluster, seed) as memory:
            assert await memory.more(500, START_S_MAX), "no load"
            yield cluster, memory
        await heal(cluster, memory)
        # All stand still before the first one dies: nobody is left to campaign and to write one more entry.
        for node in cluster.nodes:
            cluster.pause(node)
        for node in cluster.nodes:
            cluster.kill(node)
            assert cluster.said(node) == ""
        records = check_logs(cluster, memory)
    acknowledged = len(memory.committed)
    print(f"{len(memory.sent)} records sent, {acknowledged} acknowledged, {records} in the logs, {memory.reads} reads")


async def heal(cluster: ProcessCluster, memory: Memory) -> dict[int, Status]:
    """Start what is dead; wait until everything works and all replicas have everything."""
    for node in cluster.nodes:
        if not cluster.is_running(node):
            cluster.start(node)
    await until(cluster, lambda seen: _is_led(seen, cluster), "nodes and leaders", HEAL_S_MAX)
    for group in range(cluster.groups):
        await _write_one(cluster, memory, group)
    return await until(cluster, lambda seen: _is_level(seen, cluster), "replicas that are level", HEAL_S_MAX)


def _is_led(statuses: dict[int, Status], cluster: ProcessCluster) -> bool:
    return len(statuses) == len(cluster.nodes) and len(leaders(statuses, cluster.groups)) == cluster.groups


def _is_level(statuses: dict[int, Status], cluster: ProcessCluster) -> bool:
    if len(statuses) < len(cluster.nodes):
        return False
    for group in range(cluster.groups):
        states = [status["groups"][group] for status in statuses.values()]
        ends = {state[field] for state in states for field in ("last", "commit", "applied")}
        # Quiet: the leader has seen all replicas to be level, and nobody is about to add an entry.
        if len(ends) != 1 or not all(state["quiet"] and state["health"] != "damaged" for state in states):
            return False
    return True


async def _write_one(cluster: ProcessCluster, memory: Memory, group: int) -> None:
    """The group takes records again; the node that was asked sees to it that the record finds its leader."""
    payload = f"last.{group} 1 ".encode() + PADDING
    memory.sent[payload] = group
    reader, writer = await asyncio.open_connection(*cluster.address(group % len(cluster.nodes) + 1))
    try:
        async with asyncio.timeout(HEAL_S_MAX):
            writer.write(record_frame(group, 0, payload))
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
            _, what, offset = read_outcome(await reader.readexactly(length))
    finally:
        writer.close()
    assert what == COMMITTED
    memory.told(payload, what, offset)


def check_logs(cluster: ProcessCluster, memory: Memory) -> int:
    """Read what the dead nodes left on disk; how many records there are."""
    logs = {node: open_disk(cluster.data(node), SMALL_STORE)[0].groups for node in cluster.nodes}
    count = 0
    for group in range(cluster.groups):
        first, *others = [list(batches(logs[node][group])) for node in cluster.nodes]
        for other in others:
            assert other == first, f"replicas of group {group} differ: {shape(first)} and {shape(other)}"
        count += check_log(group, first, memory)
    return count


def check_log(group: int, found: list[bytes], memory: Memory) -> int:
    """Everything acknowledged is there, at its offset; nothing else but what may be; in order; offsets without gaps."""
    offset = 0
    places: dict[bytes, int] = {}
    latest: dict[bytes, int] = {}
    for batch in found:
        view = BatchView(batch)
        view.verify()
        assert view.base_offset == offset, f"group {group}: a batch starts at {view.base_offset}, not at {offset}"
        offset = view.next_offset
        if view.kind != DATA:
            continue
        for record in view.records():
            payload = record.payload
            assert memory.sent.get(payload) == group, f"group {group}: nobody sent {payload!r}"
            assert payload not in places, f"group {group}: {payload!r} is at {places[payload]} and {record.offset}"
            assert payload not in memory.refused, f"group {group}: {payload!r} was refused and is at {record.offset}"
            places[payload] = record.offset
            sender, number, _ = payload.split(b" ")
            assert latest.get(sender, -1) < int(number), f"group {group}: {payload!r} after {latest[sender]}"
            latest[sender] = int(number)
    for payload, told in memory.committed.items():
        if memory.sent[payload] == group:
            assert places.get(payload) == told, (
                f"group {group}: {payload!r} was acknowledged at {told}, lies at {places.get(payload)}"
            )
    return len(places)


def shape(found: list[bytes]) -> str:
    """The end of a log in a few words."""
    views = [BatchView(batch) for batch in found[-3:]]
    return f"{len(found)} entries, " + ", ".join(f"{one.index}@{one.term} of kind {one.kind}" for one in views)


def batches(log: GroupLog) -> Iterator[bytes]:
    """All entries of a log."""
    index = log.first_index()
    while index <= log.last_index():
        for batch in log.entries(index, log.last_index() + 1, READ_BYTES):
            yield batch
            index += 1
