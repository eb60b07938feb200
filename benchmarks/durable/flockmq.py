"""Three real nodes with durable topics, and the load on them.

```
 publishers --PUBLISH--> any node --> leader of the shard --> fsynced on a majority --PUBACK--> counted
 subscribers <-- committed records of one publisher each, at another node than the publisher's
```
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from flockmq.admin.durable_model import TopicRequest
from flockmq.client.admin import AdminClient
from flockmq.client.load.frames import connect
from flockmq.client.load.plan import Load, Target, topic_name
from flockmq.client.load.run import Setting, run
from flockmq.client.load.usage import cpu_seconds
from flockmq.errors import FlockError
from flockmq.routing.durable import shard_of
from flockmq.testing.nodes import HOST, NodeCluster

NODES = 3
SHARDS = 6
REPLICAS = 3
ACK_S_MAX = 60.0
ASKERS = 8
LED_S_MAX = 300.0

Figures = dict[str, float]


@contextmanager
def running(folder: str | None = None) -> Iterator[NodeCluster]:
    """A cluster of three."""
    with (
        tempfile.TemporaryDirectory(prefix="flockmq-bench-", dir=folder) as name,
        NodeCluster(Path(name), NODES, ["--log-level=warning"]) as cluster,
    ):
        yield cluster


def pids(cluster: NodeCluster) -> tuple[int, ...]:
    """Of all nodes that run."""
    return tuple(node.process.pid for node in cluster.running() if node.process is not None)


def target(cluster: NodeCluster) -> Target:
    """Clients are spread over all nodes."""
    ports = [node.mqtt_port for node in cluster.nodes]
    return Target(port=ports[0], more_ports=tuple(ports[1:]))


def make_topic(cluster: NodeCluster, name: str) -> None:
    """One topic with six shards that captures everything below its name."""
    cluster.create_topic(name, filters=[f"{name}/#"], shards=SHARDS, replication_factor=REPLICAS)


def even_prefix(names: int, shards: int) -> str:
    """A first level under which so many names fall on all shards as evenly as they can."""
    for number in range(10_000):
        prefix = f"bench{number}"
        counts = [0] * shards
        for name in range(names):
            counts[shard_of(topic_name(Load(topics=names, prefix=prefix), name).encode(), shards)] += 1
        if max(counts) - min(counts) <= 1:
            return prefix
    raise FlockError("No prefix spreads the names evenly")


def share_names(load: Load, topics: int, shards: int) -> list[list[str]]:
    """Names of a load as filters of topics, so that every shard of every topic has a name; FlockError if too few."""
    filters: list[list[str]] = [[] for _ in range(topics)]
    filled = [0] * shards
    for number in range(load.topics):
        name = topic_name(load, number)
        shard = shard_of(name.encode(), shards)
        filters[filled[shard] % topics].append(name)
        filled[shard] += 1
    if min(filled) < topics:
        raise FlockError(f"{load.topics} names don't reach all shards of {topics} topics: {filled}")
    return filters


def throughput(cluster: NodeCluster, load: Load) -> Figures:
    """Rates of a load, and what it cost."""
    outcome = run(target(cluster), load, Setting(broker_pids=pids(cluster)))
    cpu_s = outcome.broker_cpu_s or 0.0
    return {
        "rate": outcome.publish_rate,
        "deliver_rate": outcome.deliver_rate,
        "lost": float(outcome.lost),
        "refused": float(outcome.refused),
        "generator_busy": outcome.client_busy,
        "cores": cpu_s / outcome.elapsed_s,
        "cpu_us": cpu_s / max(1, outcome.sent) * 1e6,
    }


class OneAtATime:
    """A publisher with one message in flight: connect, publish, wait for the PUBACK."""

    def __init__(self, port: int, client_id: str) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=ACK_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(connect(4, client_id, 0, "", "", 0))
        self._read(4)
        self._number = 0

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            came = self._socket.recv(count - len(data))
            if not came:
                raise FlockError("The node closed the connection")
            data += came
        return data

    def publish(self, topic: str, payload: bytes) -> float:
        """Seconds until its PUBACK was there."""
        self._number = self._number % 65_535 + 1
        name = topic.encode()
        body = len(name).to_bytes(2, "big") + name + self._number.to_bytes(2, "big") + payload
        if len(body) > 127:
            raise FlockError("Too long for a length of one byte")
        began = time.perf_counter()
        self._socket.sendall(bytes((0x32, len(body))) + body)
        answer = self._read(4)
        took = time.perf_counter() - began
        if answer[0] != 0x40 or answer[2:] != self._number.to_bytes(2, "big"):
            raise FlockError(f"No PUBACK but {answer.hex()}")
        return took

    def close(self) -> None:
        """Leave without a word."""
        self._socket.close()


def latency(cluster: NodeCluster, names: Sequence[str], seconds: float) -> Figures:
    """How long a single publish takes, through every node in turn."""
    waits: list[float] = []
    for number, node in enumerate(cluster.nodes):
        client = OneAtATime(node.mqtt_port, f"one{number}")
        for name in names:
            client.publish(name, b"x" * 64)
        end = time.perf_counter() + seconds / len(cluster.nodes)
        turn = 0
        while time.perf_counter() < end:
            waits.append(client.publish(names[turn % len(names)], b"x" * 64))
            turn += 1
        client.close()
    waits.sort()
    return {"p50_ms": waits[len(waits) // 2] * 1e3, "p99_ms": waits[len(waits) * 99 // 100] * 1e3}


def make_many(cluster: NodeCluster, names: Sequence[str], shards: int) -> float:
    """Make topics through all nodes at once; seconds until all have leaders."""
    began = time.perf_counter()

    def admin(number: int) -> AdminClient:
        return cluster.nodes[number % len(cluster.nodes)].admin()

    def make(number: int) -> None:
        admin(number).create_topic(TopicRequest(name=names[number], shards=shards, replication_factor=REPLICAS))

    def wait(number: int) -> None:
        while not all(one.leader for one in admin(number).topic_partitions(names[number])):
            if time.perf_counter() - began > LED_S_MAX:
                raise FlockError(f"{names[number]} has no leaders after {LED_S_MAX:g} s")
            time.sleep(0.02)

    with ThreadPoolExecutor(ASKERS) as pool:
        list(pool.map(make, range(len(names))))
        list(pool.map(wait, range(len(names))))
    return time.perf_counter() - began


def idle(cluster: NodeCluster, seconds: float) -> float:
    """Processor time of all nodes while nobody does anything, in per cent of a core."""
    before, began = cpu_seconds(pids(cluster)), time.perf_counter()
    time.sleep(seconds)
    after, elapsed = cpu_seconds(pids(cluster)), time.perf_counter() - began
    if before is None or after is None:
        raise FlockError("This system does not tell the processor time of processes")
    return (after - before) / elapsed * 100


def until_served(cluster: NodeCluster, numbers: Sequence[int], names: Sequence[str]) -> float:
    """Seconds from now until these nodes have acknowledged a message to each of these names."""
    began = time.perf_counter()
    for number in numbers:
        node = cluster.nodes[number]
        node.wait_ready()
        for name in names:
            while not _is_acknowledged(node.mqtt_port, f"served{number}", name):
                if time.perf_counter() - began > ACK_S_MAX:
                    raise FlockError(f"{node.name} does not serve {name} after {ACK_S_MAX:g} s:\n{node.log_tail()}")
                time.sleep(0.02)
    return time.perf_counter() - began


def _is_acknowledged(port: int, client_id: str, name: str) -> bool:
    try:
        client = OneAtATime(port, client_id)
    except (OSError, FlockError):
        return False
    try:
        client.publish(name, b"served?")
    except (OSError, FlockError):
        return False
    finally:
        client.close()
    return True
