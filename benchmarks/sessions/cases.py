"""What is measured of persistent sessions, and what must come of it.

A *session of measuring* starts a cluster once and measures several lines of the table on it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import persistent_mosquitto
from benchmarks.sessions.crowds import Caller, Figures, come_back, leave
from flockmq.client.load.hold import Crowd, connect_rate
from flockmq.client.load.plan import Load, Target, topic_name
from flockmq.client.load.run import Setting, run
from flockmq.client.load.usage import memory_kb
from flockmq.errors import FlockError
from flockmq.testing.nodes import NodeCluster

FLOCKMQ = "flockmq"
MOSQUITTO = "mosquitto"
NODES = 3
IN_FLIGHT = 1_000
IDLE_CONNECTS = 300
TAKEOVERS = 200
FAILOVERS = 3
PAYLOAD_BYTES = 64
RETURN_S_MAX = 120.0
FAILOVER_S_MAX = 30.0
SUBSCRIPTIONS = ("a/{}/x", "b/{}/+", "c/{}/#")
"""Of an offline session whose memory is measured."""
SETTLE_S = 3.0
RUNS = 3

Found = dict[str, Figures]
"""By line of the table."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure, and where."""

    seconds: float = 4.0
    connects: int = 20_000
    sessions: int = 10_000
    messages: int = 10_000
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. ``judge`` says whether the target was met, from the figures of this line."""

    name: str
    title: str
    target: str
    text: Callable[[Mapping[str, float]], str]
    judge: Callable[[Mapping[str, float]], bool] | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Lines that are measured together."""

    name: str
    measure: Callable[[Effort], Found]


@contextmanager
def running(effort: Effort, nodes: int = NODES) -> Iterator[NodeCluster]:
    """A cluster that has made all it needs for persistent sessions."""
    with (
        tempfile.TemporaryDirectory(prefix="flockmq-bench-", dir=effort.folder) as name,
        NodeCluster(Path(name), nodes, ["--log-level=warning"]) as cluster,
    ):
        cluster.wait_settled()
        leave(target(cluster), "first", 1, ["first"])
        yield cluster


def target(cluster: NodeCluster) -> Target:
    """Clients are spread over all nodes that run."""
    ports = [node.mqtt_port for node in cluster.running()]
    return Target(port=ports[0], more_ports=tuple(ports[1:]))


def pids(cluster: NodeCluster) -> list[int]:
    """Of all nodes that run."""
    return [node.process.pid for node in cluster.running() if node.process is not None]


def connects(effort: Effort) -> Found:
    """Clean sessions on three nodes, and on one."""
    with running(effort) as cluster:
        storm = connect_rate(target(cluster), Crowd(connections=effort.connects, under_way_max=IN_FLIGHT))
        time.sleep(SETTLE_S)
        idle = connect_rate(target(cluster), Crowd(connections=IDLE_CONNECTS, under_way_max=1))
    with running(effort, 1) as cluster:
        single = connect_rate(target(cluster), Crowd(connections=effort.connects))
    return {
        "connects": {"rate": storm.connect_rate, "p99_ms": storm.connect_us_p99 / 1e3},
        "connect": {"p50_ms": idle.connect_us_p50 / 1e3, "p99_ms": idle.connect_us_p99 / 1e3},
        "connects-single": {"rate": single.connect_rate, "p99_ms": single.connect_us_p99 / 1e3},
    }


def online(effort: Effort) -> Found:
    """QoS 1 through one persistent session whose client is there, beside mosquitto with ``persistence true``."""
    load = Load(qos=1, window=500, seconds=effort.seconds, persistent=True)
    with running(effort, 1) as cluster:
        ours = run(target(cluster), load, Setting(broker_pids=tuple(pids(cluster))))
    found = {"rate": ours.deliver_rate, "lost": float(ours.lost)}
    with persistent_mosquitto() as peer:
        theirs = run(peer.target, load, Setting(broker_pids=peer.pids))
    found |= {"mosquitto": theirs.deliver_rate, "times": ours.deliver_rate / max(1.0, theirs.deliver_rate)}
    return {"online": found}


def offline(effort: Effort) -> Found:
    """Messages for many sessions whose clients are away; then a node dies, and all clients come back to the others."""
    load = Load(
        qos=1, subscribers=0, messages=effort.messages, payload_bytes=PAYLOAD_BYTES, window=500, prefix="alerts"
    )
    with running(effort) as cluster:
        leave(target(cluster), "one", 1, ["alerts/#"])
        alone = sorted(run(target(cluster), load, Setting()).publish_rate for _ in range(RUNS))[RUNS // 2]
        leave(target(cluster), "away", effort.sessions, ["alerts/#"])
        time.sleep(SETTLE_S)
        before = capture_bytes(cluster)
        many = run(target(cluster), load, Setting())
        time.sleep(SETTLE_S)
        written = capture_bytes(cluster) - before
        useful = many.sent * (PAYLOAD_BYTES + len(topic_name(load, 0)))
        cluster.nodes[2].kill()
        peaks = Peaks(pids(cluster))
        back = come_back(target(cluster), "away", effort.sessions, effort.messages, RETURN_S_MAX, peaks.look)
    return {
        "capture": {"times": written / max(1, useful), "bytes": written},
        "publish": {
            "rate": many.publish_rate,
            "alone": alone,
            "percent": many.publish_rate / max(1.0, alone) * 100,
        },
        "return": {**back, "grown_mb": peaks.grown_kb() / 1_024},
    }


class Peaks:
    """How much larger processes become."""

    def __init__(self, processes: list[int]) -> None:
        self._processes = processes
        self._before = [memory_kb([pid]) or 0.0 for pid in processes]
        self._most = list(self._before)

    def look(self) -> None:
        """Look how large they are."""
        self._most = [max(most, memory_kb([pid]) or 0.0) for pid, most in zip(self._processes, self._most, strict=True)]

    def grown_kb(self) -> float:
        """By how much the one grew that grew most."""
        return max(most - before for before, most in zip(self._before, self._most, strict=True))


def capture_bytes(cluster: NodeCluster) -> float:
    """What captured messages take on the node that has most of them."""
    return max(node.admin().stats().gauges["capture_bytes"] for node in cluster.running())


def memory(effort: Effort) -> Found:
    """What an offline session with three subscriptions takes of each replica."""
    with running(effort) as cluster:
        before_kb = [memory_kb([pid]) or 0.0 for pid in pids(cluster)]
        leave(target(cluster), "away", effort.sessions, SUBSCRIPTIONS)
        time.sleep(SETTLE_S)
        after_kb = [memory_kb([pid]) or 0.0 for pid in pids(cluster)]
    each = [(after - before) / effort.sessions for before, after in zip(before_kb, after_kb, strict=True)]
    return {"memory": {"kb": max(each), "least_kb": min(each)}}


def moving(effort: Effort) -> Found:
    """One client that goes from node to node, first of its own will, then because its node was killed."""
    with running(effort) as cluster:
        caller = Caller("mover")
        ports = [node.mqtt_port for node in cluster.nodes]
        caller.call(ports[0])
        waits: list[float] = []
        for number in range(TAKEOVERS):
            took, is_present = caller.call(ports[(number + 1) % NODES])
            if not is_present:
                raise FlockError("A takeover found no session")
            waits.append(took)
        waits.sort()
        takeover = {"p50_ms": waits[len(waits) // 2] * 1e3, "p99_ms": waits[len(waits) * 99 // 100] * 1e3}
        failover = [_failover(cluster, number % NODES) for number in range(FAILOVERS)]
    return {"takeover": takeover, "failover": {"seconds": sorted(failover)[len(failover) // 2], "most": max(failover)}}


def _failover(cluster: NodeCluster, number: int) -> float:
    """Seconds from the death of a client's node until another one has welcomed the client, with its session."""
    node = cluster.nodes[number]
    other = cluster.nodes[(number + 1) % NODES]
    caller = Caller(f"failover{number}")
    caller.call(node.mqtt_port)
    time.sleep(SETTLE_S)
    node.kill()
    began = time.perf_counter()
    is_present = False
    while not is_present:
        if time.perf_counter() - began > FAILOVER_S_MAX:
            raise FlockError(f"The client of {node.name} was not welcomed in {FAILOVER_S_MAX:g} s")
        try:
            _, is_present = caller.call(other.mqtt_port)
        except FlockError:
            time.sleep(0.02)  # refused for now: no majority yet
    took = time.perf_counter() - began
    caller.leave()
    node.start()
    node.wait_ready()
    cluster.wait_settled()
    return took


SESSIONS = (
    Session("connects", connects),
    Session("online", online),
    Session("offline", offline),
    Session("memory", memory),
    Session("moving", moving),
)


def _rate(figures: Mapping[str, float]) -> str:
    return f"{figures['rate']:,.0f}/s"


def _quantiles(figures: Mapping[str, float]) -> str:
    return f"{figures['p50_ms']:.2f} / {figures['p99_ms']:.2f} ms"


def _online(figures: Mapping[str, float]) -> str:
    return f"{figures['rate']:,.0f}/s; mosquitto {figures['mosquitto']:,.0f}/s; {figures['times']:.1f} x"


def _publish(figures: Mapping[str, float]) -> str:
    return f"{figures['rate']:,.0f}/s; with one session {figures['alone']:,.0f}/s; {figures['percent']:.0f} %"


def _return(figures: Mapping[str, float]) -> str:
    return (
        f"{figures['seconds']:.1f} s ({figures['served_percent']:.0f} % served, {figures['received']:,.0f} messages; "
        f"CONNACKs {figures['connected_s']:.1f} s, {figures['refused']:,.0f} refused at first), "
        f"+{figures['grown_mb']:.0f} MB"
    )


LINES = (
    Line(
        "connects",
        "CONNECT of clean sessions, 3 nodes, 1,000 in flight",
        ">= 4,000/s",
        _rate,
        lambda one: one["rate"] >= 4_000,
    ),
    Line("connect", "... one at a time, idle, p50 / p99", "p50 <= 5 ms", _quantiles, lambda one: one["p50_ms"] <= 5),
    Line("connects-single", "... one node, 100 in flight", "-", _rate),
    Line(
        "online",
        "QoS 1 through a persistent session, one node",
        ">= 5 x mosquitto",
        _online,
        lambda one: one["times"] >= 5 and not one["lost"],
    ),
    Line(
        "capture",
        "{messages:,} messages, {sessions:,} sessions away: written",
        "<= 1.3 x payload + names",
        lambda one: f"{one['times']:.2f} x ({one['bytes']:,.0f} bytes)",
        lambda one: one["times"] <= 1.3,
    ),
    Line("publish", "... publish rate", ">= 50 % of one session's", _publish, lambda one: one["percent"] >= 50),
    Line(
        "return",
        "... all come back at once to two nodes",
        "all served in 60 s, <= +300 MB",
        _return,
        lambda one: one["served_percent"] == 100 and one["seconds"] <= 60 and one["grown_mb"] <= 300,
    ),
    Line(
        "takeover",
        "takeover between nodes, idle, p50 / p99",
        "<= 10 / 50 ms",
        _quantiles,
        lambda one: one["p50_ms"] <= 10 and one["p99_ms"] <= 50,
    ),
    Line(
        "memory",
        "an offline session with 3 subscriptions, a replica",
        "<= 3 KB",
        lambda one: f"{one['kb']:.1f} KB",
        lambda one: one["kb"] <= 3,
    ),
    Line(
        "failover",
        "owner killed: CONNACK with session present elsewhere",
        "1 s after a new leader",
        lambda one: f"{one['seconds']:.2f} s after the kill (most {one['most']:.2f} s)",
    ),
)
