"""Starts and stops the brokers that are compared: each fresh for every measurement, on loopback, at free ports.

```
 with start("mosquitto", "tls", cpus) as running:    running.target --> where the load goes
                                                     running.pids ----> whose CPU time and memory count
```
Peers run as their packages come, with only what the measurement needs: a port, anonymous clients, and for NATS the
JetStream that its MQTT support requires. All of them may open as many sockets as the system allows.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import FLOCKMQ, MOSQUITTO, NATS, Setup
from benchmarks.certificates import Certificates, make_certificates
from benchmarks.machine import find
from flockmq.client.load.local import LocalBroker
from flockmq.client.load.plan import Target
from flockmq.errors import FlockError
from flockmq.testing.nodes import NodeCluster
from flockmq.testing.ports import free_port

START_S_MAX = 20.0
ACL_RULES = 20
NATS_ELECTION_S = 8.0
TRANSPORTS = {"plain": "tcp", "acl": "tcp", "tls": "tls", "ws": "ws", "cluster": "tcp"}
NODES = 3
PROGRAMS = {MOSQUITTO: "mosquitto", NATS: "nats-server"}


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that serves."""

    target: Target
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """What a broker gets to live in."""

    folder: Path
    certificates: Certificates
    cpus: tuple[int, ...]


def missing(name: str) -> bool:
    """Whether this broker is not on this machine."""
    return name in PROGRAMS and find(PROGRAMS[name]) is None


@contextmanager
def start(name: str, setup: Setup, cpus: Sequence[int] = ()) -> Iterator[Running]:
    """Run a broker for as long as the block takes."""
    _allow_many_sockets()
    with tempfile.TemporaryDirectory(prefix="flockmq-bench-") as folder:
        place = Place(Path(folder), make_certificates(Path(folder)), tuple(cpus))
        starters = {FLOCKMQ: _flockmq, MOSQUITTO: _mosquitto, NATS: _nats}
        with starters[name](setup, place) as running:
            yield running


@contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Processes started in the block run on these processors only; empty leaves it to the system."""
    if not cpus or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _flockmq_cluster(place: Place) -> Iterator[Running]:
    with pinned(place.cpus):
        cluster = NodeCluster(place.folder, NODES, ["--log-level=warning"])
        with cluster:
            ports = [node.mqtt_port for node in cluster.nodes]
            pids = tuple(node.process.pid for node in cluster.nodes if node.process is not None)
            yield Running(Target(port=ports[0], more_ports=tuple(ports[1:])), pids)


@contextmanager
def _flockmq(setup: Setup, place: Place) -> Iterator[Running]:
    if setup == "cluster":
        with _flockmq_cluster(place) as running:
            yield running
        return
    arguments = ["--allow-anonymous", "--log-level=warning"]
    if setup == "acl":
        topics = [*(f"other{number}/%c/#" for number in range(ACL_RULES)), "bench/#"]
        rule = '[[rule]]\nallow = true\nwho = "all"\naction = "all"\ntopics = ["{}"]\n'
        path = place.folder / "acl.toml"
        path.write_text('default = "deny"\n' + "".join(rule.format(topic) for topic in topics), encoding="utf-8")
        arguments.append(f"--acl-file={path}")
    if setup == "tls":
        arguments += [f"--tls-cert={place.certificates.cert}", f"--tls-key={place.certificates.key}"]
        arguments += ["--mqtts-port=0", "--wss-port=0"]
    with pinned(place.cpus):
        broker = LocalBroker(arguments)
    with broker:
        yield Running(_target(setup, broker.ports[TRANSPORTS[setup]], place), (broker.pid,))


@contextmanager
def persistent_mosquitto() -> Iterator[Running]:
    """mosquitto that keeps sessions in its database, saved at intervals; FlockError when it is not on this machine."""
    if missing(MOSQUITTO):
        raise FlockError("mosquitto is not on this machine; install it to compare with it")
    with tempfile.TemporaryDirectory(prefix="flockmq-bench-") as folder:
        place = Place(Path(folder), make_certificates(Path(folder)), ())
        with _mosquitto("plain", place, ("persistence true", f"persistence_location {folder}/")) as running:
            yield running


@contextmanager
def _mosquitto(setup: Setup, place: Place, persistence: Sequence[str] = ("persistence false",)) -> Iterator[Running]:
    port = free_port()
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", *persistence, "log_type error"]
    # With its limits (20 in flight, 1,000 waiting) it loses QoS 2 messages here: losses would be compared, not speeds.
    lines += ["max_inflight_messages 0", "max_queued_messages 0"]
    if os.geteuid() == 0:
        lines.append("user root")  # else it gives up its rights, and with them the files of this set-up
    if setup == "acl":
        topics = [*(f"pattern readwrite other{number}/%c/#" for number in range(ACL_RULES)), "topic readwrite bench/#"]
        (place.folder / "acl").write_text("\n".join(topics) + "\n", encoding="utf-8")
        lines.append(f"acl_file {place.folder / 'acl'}")
    if setup == "tls":
        lines += [f"certfile {place.certificates.cert}", f"keyfile {place.certificates.key}"]
    if setup == "ws":
        lines += ["protocol websockets", f"listener {free_port()} 127.0.0.1"]  # WebSocket alone does not start
    config = place.folder / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with _process([str(find("mosquitto")), "-c", str(config)], place, port) as pid:
        yield Running(_target(setup, port, place), (pid,))


@contextmanager
def _nats_cluster(place: Place) -> Iterator[Running]:
    ports = [free_port() for _ in range(NODES)]
    routes = [free_port() for _ in range(NODES)]
    with ExitStack() as stack:
        pids = []
        for number in range(NODES):
            config = place.folder / f"nats{number}.conf"
            known = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
            lines = [
                f"server_name: bench{number}",
                "host: 127.0.0.1",
                f"port: {free_port()}",
                f'jetstream {{ store_dir: "{place.folder / f"store{number}"}" }}',
                f"cluster {{ name: bench, listen: 127.0.0.1:{routes[number]}, routes: [{known}] }}",
                f"mqtt {{ host: 127.0.0.1, port: {ports[number]}, max_ack_pending: 10000 }}",
            ]
            config.write_text("\n".join(lines) + "\n", encoding="utf-8")
            command = [str(find("nats-server")), "-c", str(config)]
            pids.append(stack.enter_context(_process(command, place, ports[number])))
        time.sleep(NATS_ELECTION_S)  # until then it refuses MQTT clients: JetStream has no leader
        yield Running(Target(port=ports[0], more_ports=tuple(ports[1:])), tuple(pids))


@contextmanager
def _nats(setup: Setup, place: Place) -> Iterator[Running]:
    if setup == "cluster":
        with _nats_cluster(place) as running:
            yield running
        return
    if setup != "plain":
        raise FlockError(f"NATS is not measured with set-up {setup}")
    port = free_port()
    config = place.folder / "nats.conf"
    lines = [
        "server_name: bench",
        "host: 127.0.0.1",
        f"port: {free_port()}",
        f'jetstream {{ store_dir: "{place.folder / "store"}" }}',
        f"mqtt {{ host: 127.0.0.1, port: {port}, max_ack_pending: 10000 }}",
    ]
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with _process([str(find("nats-server")), "-c", str(config)], place, port) as pid:
        yield Running(_target(setup, port, place), (pid,))


@contextmanager
def _process(command: list[str], place: Place, port: int) -> Iterator[int]:
    log = place.folder / "broker.log"
    with log.open("wb") as out, pinned(place.cpus):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        _wait(lambda: process.poll() is None, port, log)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(alive: Callable[[], bool], port: int, log: Path) -> None:
    until = time.monotonic() + START_S_MAX
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if not alive() or time.monotonic() > until:
                said = log.read_text(encoding="utf-8", errors="replace")[-2_000:]
                raise FlockError(f"A broker did not start:\n{said}") from None
            time.sleep(0.05)


def _target(setup: Setup, port: int, place: Place) -> Target:
    authority = str(place.certificates.authority) if setup == "tls" else ""
    return Target(port=port, transport=TRANSPORTS[setup], ca_file=authority)


def _allow_many_sockets() -> None:
    """Children inherit the limit; connections are to be bounded by memory, not by it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
