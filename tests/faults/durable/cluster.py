"""Three real nodes with a durable topic under load, on loopback or in network namespaces, and all that is done to them.

```
 under_load(cluster): topic --> publishers, subscribers --> (faults, in the block) --> heal --> all answered
                      --> read over HTTP --> stand still, die --> read the disks --> every rule of ``verify``
```
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from cluster.namespaces import inside
from faults.durable import verify
from faults.durable.clients import TOPIC, Publisher, Subscriber
from faults.durable.memory import Memory
from flockmq.admin.durable_model import LogRecord, Partition, TopicRequest
from flockmq.client.admin import AdminClient
from flockmq.client.calls import v1
from flockmq.client.topic_calls import BATCHES
from flockmq.errors import END_OFFSET, FlockError
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

SHARDS = 6
PUBLISHERS = 10
RATE = float(os.environ.get("FLOCKMQ_FAULTS_RATE", "1000"))
"""Messages a second of all publishers together; more makes reading them afterwards take longer."""
HEAL_S_MAX = 60.0
LEVEL_S_MAX = 30.0
CALM_S = 0.5
"""Until what was applied everywhere has also reached all disks: for an answer two of them are enough."""
LAG_MAX = 100
READ_BYTES = 4 << 20

T = TypeVar("T")


class Nodes:
    """The nodes and how to reach them."""

    def __init__(self, nodes: list[NodeProcess], hosts: list[str], namespaces: list[str]) -> None:
        """``namespaces``: of each node, empty on loopback."""
        self.nodes = nodes
        self.hosts = hosts
        self.namespaces = namespaces

    def at(self, number: int) -> AbstractContextManager[None]:
        """Sockets that are made in the block are on this node's machine."""
        return inside(self.namespaces[number]) if self.namespaces else nullcontext()

    def dial(self, number: int) -> socket.socket:
        """A connection to a node's MQTT port, from its own machine."""
        with self.at(number):
            found = socket.create_connection((self.hosts[number], self.nodes[number].mqtt_port), 1)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setblocking(False)
        return found

    def ask(self, number: int, question: Callable[[AdminClient], T]) -> T:
        """Ask a node's API, from its own machine."""
        with self.at(number):
            return question(self.nodes[number].admin(self.hosts[number]))

    def partitions(self, number: int) -> list[Partition]:
        """The partitions as a node sees them, by shard."""
        return sorted(self.ask(number, lambda api: api.topic_partitions(TOPIC)), key=lambda one: one.shard)

    def leaders(self) -> dict[int, int]:
        """Shard -> number of the node that leads it, as far as some node knows."""
        ids = {name: number for number, node in enumerate(self.nodes) for name in (node.name,)}
        for number, node in enumerate(self.nodes):
            if not node.is_running:
                continue
            with suppress(FlockError):
                return {one.shard: ids[one.leader] for one in self.partitions(number) if one.leader in ids}
        return {}

    def some_leader(self, rng: random.Random) -> int:
        """A node that leads something; any, when nobody can be asked."""
        found = sorted(set(self.leaders().values()))
        return rng.choice(found or list(range(len(self.nodes))))

    def kill(self, number: int) -> None:
        self.nodes[number].kill()

    def start(self, number: int) -> None:
        self.nodes[number].start()

    def start_all(self) -> None:
        """Start what is dead."""
        for node in self.nodes:
            if not node.is_running:
                node.start()

    def logs(self) -> str:
        return "\n".join(f"--- {node.name}\n{node.log_tail()}" for node in self.nodes)


@contextmanager
def on_loopback(folder: Path) -> Iterator[Nodes]:
    """Three nodes on this machine."""
    with NodeCluster(folder, 3, ["--log-level=warning"]) as cluster:
        cluster.wait_settled()
        yield Nodes(cluster.nodes, [HOST] * 3, [])


async def wait(what: str, nodes: Nodes, condition: Callable[[], bool], seconds_max: float) -> float:
    """Wait until something holds; how long it took."""
    began = time.monotonic()
    problem: object = ""
    while True:
        try:
            if condition():
                return time.monotonic() - began
        except FlockError as error:
            problem = error
        assert time.monotonic() - began < seconds_max, f"waited in vain for {what}; {problem}\n{nodes.logs()}"
        await asyncio.sleep(0.1)


@asynccontextmanager
async def under_load(nodes: Nodes) -> AsyncIterator[Memory]:
    """A topic with publishers and subscribers; in the end everything works again and every promise was kept."""
    nodes.ask(0, lambda api: api.create_topic(TopicRequest(name=TOPIC, shards=SHARDS, replication_factor=3)))
    await wait("leaders", nodes, lambda: len(nodes.leaders()) == SHARDS, HEAL_S_MAX)
    memory = Memory(SHARDS)
    count = len(nodes.nodes)
    publishers = [Publisher(f"p{number}", nodes.dial, count, memory, RATE / PUBLISHERS) for number in range(PUBLISHERS)]
    subscribers = [
        Subscriber(f"s{number}", f"{TOPIC}/p{number}/#", nodes.dial, count, memory) for number in range(PUBLISHERS)
    ]
    listening = [asyncio.create_task(one.run()) for one in subscribers]
    publishing = [asyncio.create_task(one.run()) for one in publishers]
    try:
        assert await memory.more_of_all(HEAL_S_MAX), f"no load\n{nodes.logs()}"
        yield memory
        nodes.start_all()
        assert await memory.more_of_all(HEAL_S_MAX), f"not all shards take messages after the faults\n{nodes.logs()}"
        for publisher in publishers:
            publisher.stopping = True
        async with asyncio.timeout(HEAL_S_MAX):
            await asyncio.gather(*publishing)
        await wait("replicas that are level", nodes, lambda: is_level(nodes), LEVEL_S_MAX)
        await asyncio.sleep(CALM_S)
    finally:
        for task in [*listening, *publishing]:
            task.cancel()
        for ended in await asyncio.gather(*listening, *publishing, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
    await asyncio.to_thread(check, nodes, memory)


def is_level(nodes: Nodes) -> bool:
    """Whether, as every node sees it, every partition has a leader and three replicas that have all of it."""
    return all(
        one.leader and [copy.end_offset for copy in one.replicas] == [one.end_offset] * len(nodes.nodes)
        for number in range(len(nodes.nodes))
        for one in nodes.partitions(number)
    )


def is_whole(nodes: Nodes, number: int) -> bool:
    """Whether a node has, but for what came in this moment, all that its replicas should have."""
    name = nodes.nodes[number].name
    copies = [copy for one in nodes.partitions(0) for copy in one.replicas if copy.node == name]
    return len(copies) == SHARDS and all(copy.lag is not None and copy.lag <= LAG_MAX for copy in copies)


def check(nodes: Nodes, memory: Memory) -> None:
    """Read everything, every way, and hold it against the promises."""
    groups = {one.shard: one.group for one in nodes.partitions(0)}
    served = [{shard: _raw(nodes, number, shard) for shard in groups} for number in range(len(nodes.nodes))]
    people = {shard: verify.from_json(nodes.ask(0, partial(_records, shard))) for shard in groups}
    # All stand still before the first one dies: nobody is left to campaign and to write one more entry.
    for node in nodes.nodes:
        node.pause()
    for node in nodes.nodes:
        node.kill()
    disks = [verify.read_disk(node.folder / "data", list(groups.values())) for node in nodes.nodes]
    logs = {shard: verify.check_replicas(group, [disk[group] for disk in disks]) for shard, group in groups.items()}
    for number, one in enumerate(served):
        assert one == logs, f"node {number + 1} serves something else over HTTP than lies on the disks"
    assert people == logs, "as JSON something else is served than lies on the disks"
    figures = verify.check_promises(memory, logs)
    figures["deliveries"] = verify.check_deliveries(memory, logs)
    print(", ".join(f"{count:,} {name}" for name, count in figures.items()))


def _records(shard: int, api: AdminClient) -> list[LogRecord]:
    """All committed records of a partition, page by page."""
    found: list[LogRecord] = []
    while True:
        offset = found[-1].offset + 1 if found else 0
        page = api.records(TOPIC, shard, offset=offset, max_bytes=READ_BYTES, limit=10_000)
        came = [one for one in page.records if one.offset >= offset]
        if not came:
            return found
        found += came


def _batches(shard: int, offset: int, api: AdminClient) -> tuple[bytes, int]:
    """Committed batches from an offset on, and the offset behind all that is committed."""
    path = v1("topics", TOPIC, "partitions", shard, "records", offset=offset, max_bytes=READ_BYTES)
    answer = api.transport.request("GET", path, accept=BATCHES)
    return answer.body, int(answer.headers[END_OFFSET.lower()])


def _raw(nodes: Nodes, number: int, shard: int) -> list[verify.Record]:
    offset = 0
    found: list[verify.Record] = []
    while True:
        data, end = nodes.ask(number, partial(_batches, shard, offset))
        if not data:
            assert offset >= end, f"shard {shard}: nothing comes at {offset} of {end}"
            return found
        came = verify.from_batches(data, offset)
        found += came
        offset += len(came)


def report_gaps(memory: Memory, gap_s_max: float) -> None:
    """Print, and judge, how long a shard had no PUBACK after a leader's death."""
    gaps = [memory.gap_s(begin, end) for begin, end in memory.kills]
    told = ", ".join(f"{seconds:.2f} s" for seconds, _ in gaps)
    print(f"longest time without a PUBACK of a shard after each leader's death: {told}")
    worst = max(gaps, default=(0.0, -1))
    assert worst[0] <= gap_s_max, f"shard {worst[1]} had no PUBACK for {worst[0]:.1f} s after a leader's death"
