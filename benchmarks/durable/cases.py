"""What is measured of durable topics, and what must come of it.

A *session* starts a cluster once and measures several lines of the table on it; sessions of FlockMQ and of NATS take
turns, so that a machine that slows down slows down both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.durable import flockmq, nats
from flockmq.admin.durable_model import TopicRequest
from flockmq.client.load.plan import Load, topic_name

FLOCKMQ = "flockmq"
NATS = "nats"

CLIENTS = 10
MANY_TOPICS = 50
MANY_NAMES = 420
"""Names that reach all shards of all those topics."""
IDLE_TOPICS = 1_000
IDLE_SHARDS = 3
SAMPLED = 12
"""Topics that have to take messages before a cluster counts as serving."""

Figures = dict[str, float]
Found = dict[str, Figures]
"""By line of the table."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure, and where."""

    seconds: float = 4.0
    window: int = 500
    topics: int = IDLE_TOPICS
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. ``judge`` says whether the target was met, from FlockMQ's figures of this line."""

    name: str
    title: str
    target: str
    judge: Callable[[Mapping[str, float]], bool] | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Lines that are measured on one cluster."""

    name: str
    broker: str
    measure: Callable[[Effort], Found]


def few(effort: Effort) -> Found:
    """One topic with six shards: publish, end to end, one message at a time."""
    prefix = flockmq.even_prefix(CLIENTS, flockmq.SHARDS)
    load = Load(publishers=CLIENTS, subscribers=0, topics=CLIENTS, qos=1, prefix=prefix, window=effort.window)
    with flockmq.running(effort.folder) as cluster:
        flockmq.make_topic(cluster, prefix)
        flockmq.throughput(cluster, _for(load, 1.0))  # everybody has met everybody
        found = {"publish": flockmq.throughput(cluster, _for(load, effort.seconds))}
        found["end-to-end"] = flockmq.throughput(cluster, _for(load, effort.seconds, CLIENTS))
        names = [topic_name(load, number) for number in range(CLIENTS)]
        found["single"] = flockmq.latency(cluster, names, effort.seconds)
    return found


def _for(load: Load, seconds: float, subscribers: int = 0) -> Load:
    return Load(
        publishers=load.publishers,
        subscribers=subscribers,
        topics=load.topics,
        qos=load.qos,
        prefix=load.prefix,
        window=load.window,
        seconds=seconds,
    )


def few_nats(effort: Effort) -> Found:
    """The same, done by NATS: a stream for each shard."""
    with nats.running(effort.folder) as (ports, pids):
        nats.make_streams(ports[0])
        nats.measure(ports, pids, "warm", (CLIENTS, 0, effort.window, 1.0))
        found = {"publish": nats.measure(ports, pids, "p", (CLIENTS, 0, effort.window, effort.seconds))}
        found["end-to-end"] = nats.measure(ports, pids, "e", (CLIENTS, CLIENTS, effort.window, effort.seconds))
        found["single"] = nats.measure(ports, pids, "s", (1, 0, 1, effort.seconds))
    return found


def many(effort: Effort) -> Found:
    """Three hundred partitions that are all written to: as much in flight a partition, then as much in all."""
    partitions = MANY_TOPICS * flockmq.SHARDS
    each = effort.window * CLIENTS // flockmq.SHARDS * partitions // CLIENTS
    load = Load(publishers=CLIENTS, subscribers=0, topics=MANY_NAMES, qos=1, prefix="many", window=min(each, 3_000))
    with flockmq.running(effort.folder) as cluster:
        admin = cluster.nodes[0].admin()
        filters = flockmq.share_names(load, MANY_TOPICS, flockmq.SHARDS)
        copies = flockmq.REPLICAS
        requests = [
            TopicRequest(name=f"many{number}", filters=names, shards=flockmq.SHARDS, replication_factor=copies)
            for number, names in enumerate(filters)
        ]
        for topic in [admin.create_topic(request) for request in requests]:
            cluster.wait_led(topic)
        flockmq.throughput(cluster, _for(load, 1.0))
        found = {"many": flockmq.throughput(cluster, _for(load, effort.seconds))}
        thin = Load(publishers=CLIENTS, topics=MANY_NAMES, qos=1, prefix="many", window=effort.window)
        found["thin"] = flockmq.throughput(cluster, _for(thin, effort.seconds))
    return found


def idle(effort: Effort) -> Found:
    """A thousand topics that nobody uses: making them, having them, starting with them."""
    names = [f"idle{number}" for number in range(effort.topics)]
    sample = names[:: max(1, len(names) // SAMPLED)]
    with flockmq.running(effort.folder) as cluster:
        found = {"create": {"seconds": flockmq.make_many(cluster, names, IDLE_SHARDS)}}
        flockmq.idle(cluster, 5.0)  # what creating them left behind
        found["idle"] = {"core_percent": flockmq.idle(cluster, max(5.0, effort.seconds * 2))}
        everybody = range(len(cluster.nodes))
        cluster.nodes[0].stop()
        cluster.nodes[0].start()
        found["restart"] = {"seconds": flockmq.until_served(cluster, [0], sample)}
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start()
        found["restart-all"] = {"seconds": flockmq.until_served(cluster, everybody, sample)}
    return found


SESSIONS = (
    Session("few", FLOCKMQ, few),
    Session("few", NATS, few_nats),
    Session("many", FLOCKMQ, many),
    Session("idle", FLOCKMQ, idle),
)

LINES = (
    Line(
        "publish",
        "6 shards, RF 3, 10 publishers, QoS 1: PUBACKs",
        ">= 150,000/s",
        lambda figures: figures["rate"] >= 150_000,
    ),
    Line(
        "end-to-end",
        "the same to 10 subscribers, each one publisher's",
        ">= 100,000/s",
        lambda figures: figures["deliver_rate"] >= 100_000 and not figures["lost"],
    ),
    Line("single", "one publish at a time, p50 / p99", "p50 <= 2 ms", lambda figures: figures["p50_ms"] <= 2),
    Line(
        "many",
        "300 active partitions, 100 in flight each",
        ">= 75,000/s",
        lambda figures: figures["rate"] >= 75_000,
    ),
    Line("thin", "300 active partitions, as much in flight as with 6", "-"),
    Line("create", "{topics:,} topics x 3 shards: until all have leaders", "< 60 s", lambda one: one["seconds"] < 60),
    Line("idle", "... nobody uses them: all nodes together", "< 10 % of a core", lambda one: one["core_percent"] < 10),
    Line("restart", "... one node restarts, until it acknowledges", "< 10 s", lambda one: one["seconds"] < 10),
    Line("restart-all", "... all are killed and start, the same", "< 10 s", lambda one: one["seconds"] < 10),
)
