"""Real nodes under attack, and what must hold for everybody else meanwhile.

```
 with attacked(cluster) as attack:           a ping every 5 ms at the node, its memory, the logs of its peers
     flood(attack.port, 80, packets)         (the attack, in the block)
 # after the block: ping p99, memory and suspicions are checked; ``attack.wait_released`` waits for the rest
```
Pings are measured in a thread with a blocking socket. An attack therefore prepares its bytes before the block, and only
sends in it: threads that wait for sockets do not keep the interpreter.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from flockmq.mqtt.varint import encode_varint
from flockmq.server.build import build_kind
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

PING_MS_MAX = 250.0 if build_kind() == "compiled" else 1_000.0
"""What the slowest ping of a hundred may take. Plain Python takes several times as long for everything."""
GROWTH_BYTES_MAX = 100 * 1024 * 1024
"""How much memory an attack may cost."""
PING_GAP_S = 0.005
PINGS_MIN = 100
"""Of fewer than that, a hundredth says nothing."""
ANSWER_S_MAX = 60.0
PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
HELD = ("connections", "sessions", "subscriptions")
SUSPICIONS = ("node_suspected", "node_dead")


def text(value: bytes) -> bytes:
    """A string as MQTT has it."""
    return len(value).to_bytes(2, "big") + value


def packet(first: int, body: bytes) -> bytes:
    """A packet with its length."""
    return bytes((first,)) + encode_varint(len(body)) + body


def connect_packet(
    client_id: str, properties: bytes = b"", user: str | None = None, password: bytes | None = None
) -> bytes:
    """An MQTT 5 CONNECT; ``properties`` are encoded already, without their length."""
    flags = 0x02 | (0x80 if user is not None else 0) | (0x40 if password is not None else 0)
    body = text(b"MQTT") + bytes((5, flags, 0, 0)) + encode_varint(len(properties)) + properties
    body += text(client_id.encode())
    body += text(user.encode()) if user is not None else b""
    body += text(password) if password is not None else b""
    return packet(0x10, body)


def subscribe_packet(packet_id: int, filters: list[bytes]) -> bytes:
    """An MQTT 5 SUBSCRIBE at QoS 0."""
    entries = b"".join(text(one) + b"\x00" for one in filters)
    return packet(0x82, packet_id.to_bytes(2, "big") + b"\x00" + entries)


def unsubscribe_packet(packet_id: int, filters: list[bytes]) -> bytes:
    """An MQTT 5 UNSUBSCRIBE."""
    return packet(0xA2, packet_id.to_bytes(2, "big") + b"\x00" + b"".join(map(text, filters)))


def publish_packet(topic: bytes, payload: bytes, *, retain: bool = False, properties: bytes = b"") -> bytes:
    """An MQTT 5 PUBLISH at QoS 0."""
    body = text(topic) + encode_varint(len(properties)) + properties + payload
    return packet(0x31 if retain else 0x30, body)


def rss_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4_096


def gauges(node: NodeProcess) -> dict[str, float]:
    """What a node holds for clients."""
    found = node.admin().stats().gauges
    return {name: found[name] for name in HELD}


class Raw:
    """A client that says bytes, whatever they are. A context manager that closes its socket."""

    def __init__(self, port: int, host: str = HOST) -> None:
        self.socket = socket.create_connection((host, port), ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(ANSWER_S_MAX)
        self._held = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, data: bytes) -> bool:
        """Send all of it; False when the node closed the connection meanwhile."""
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError):
            return False
        return True

    def hear(self) -> bytes:
        """The next packet of the node, whole; empty when it closed the connection."""
        while True:
            found = _first_packet(self._held)
            if found:
                self._held = self._held[len(found) :]
                return found
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                return b""
            self._held += data

    def hear_end(self) -> bytes:
        """All that the node still says, until it closes the connection."""
        found = self._held
        self._held = b""
        with suppress(ConnectionError):
            while data := self.socket.recv(1 << 16):
                found += data
        return found

    def connect(self, client_id: str, user: str | None = None, password: bytes | None = None) -> bytes:
        """Become a client; the CONNACK."""
        self.say(connect_packet(client_id, user=user, password=password))
        return self.hear()


def _first_packet(held: bytes) -> bytes:
    length = 0
    for position in range(1, min(len(held), 5)):
        length |= (held[position] & 0x7F) << 7 * (position - 1)
        if held[position] < 0x80:
            end = position + 1 + length
            return held[:end] if len(held) >= end else b""
    return b""


def flood(port: int, count: int, say: Callable[[int, Raw], None]) -> None:
    """Have so many connections say something at once, each in a thread; comes back when all have."""

    def run(number: int) -> None:
        with suppress(OSError), Raw(port) as raw:
            say(number, raw)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Prober:
    """An honest client that sends a ping, waits for the answer, and sends the next one a moment later."""

    def __init__(self, node: NodeProcess, client_id: str = "prober", pid: int | None = None) -> None:
        self.times_ms: list[float] = []
        self.rss_max = 0
        self._pid = pid
        self._raw = Raw(node.mqtt_port)
        connack = self._raw.connect(client_id)
        assert connack[3] == 0, connack
        self._stopping = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End it; what it measured stays."""
        self._stopping.set()
        self._thread.join()
        self._raw.socket.close()
        if self._error is not None:
            raise self._error

    @property
    def p99_ms(self) -> float:
        """What one of a hundred pings takes longer than."""
        times = sorted(self.times_ms)
        return times[len(times) * 99 // 100]

    def _run(self) -> None:
        try:
            while not self._stopping.wait(PING_GAP_S):
                began = time.perf_counter()
                self._raw.socket.sendall(PINGREQ)
                assert self._raw.hear() == b"\xd0\x00"
                self.times_ms.append((time.perf_counter() - began) * 1_000)
                if self._pid is not None:
                    self.rss_max = max(self.rss_max, rss_bytes(self._pid))
        except OSError as error:
            self._error = error


class Attack:
    """One node of a cluster while it is attacked."""

    def __init__(self, cluster: NodeCluster, node: NodeProcess) -> None:
        assert node.process is not None
        self.cluster = cluster
        self.node = node
        self.port = node.mqtt_port
        self.pid = node.process.pid
        self.before = gauges(node)
        self.rss_before = rss_bytes(self.pid)
        self.prober = Prober(node, pid=self.pid)
        self._log_ends = {other.name: other.log_file.stat().st_size for other in cluster.nodes}

    @property
    def growth(self) -> int:
        """How much more memory the node had than before, at worst."""
        return self.prober.rss_max - self.rss_before

    def wait_pings(self, more: int = PINGS_MIN) -> None:
        """Wait for so many more answers to pings."""
        wanted = len(self.prober.times_ms) + more
        self.cluster.wait(lambda: len(self.prober.times_ms) >= wanted, "answers to pings", ANSWER_S_MAX)

    def events(self, node: NodeProcess, *kinds: str) -> list[dict[str, Any]]:
        """What a node wrote into its log since the attack began."""
        with node.log_file.open("rb") as log:
            log.seek(self._log_ends[node.name])
            lines = log.read().splitlines()
        found = []
        for line in lines:
            with suppress(ValueError):
                event = json.loads(line)
                if event.get("event") in kinds:
                    found.append(event)
        return found

    def suspicions(self) -> list[dict[str, Any]]:
        """What the nodes say about each other being gone."""
        return [event for node in self.cluster.nodes for event in self.events(node, *SUSPICIONS)]

    def wait_released(self) -> None:
        """Wait until the node holds as many connections, sessions and subscriptions as before."""
        self.cluster.wait(
            lambda: gauges(self.node) == self.before, f"{self.before} again, not {gauges(self.node)}", ANSWER_S_MAX
        )

    def check(self, ping_ms_max: float = PING_MS_MAX, growth_max: int = GROWTH_BYTES_MAX) -> None:
        """What every attack must leave as it was."""
        times = self.prober.times_ms
        print(f"pings: {len(times)}, p99 {self.prober.p99_ms:.0f} ms, max {max(times):.0f} ms; {self.growth:,} bytes")
        assert len(times) >= PINGS_MIN
        assert self.suspicions() == []
        assert self.prober.p99_ms <= ping_ms_max
        assert self.growth <= growth_max


@contextmanager
def attacked(cluster: NodeCluster, number: int = 0) -> Iterator[Attack]:
    """Attack a node in the block; after it, ``check`` holds and everything is released."""
    attack = Attack(cluster, cluster.nodes[number])
    try:
        attack.wait_pings()
        attack.prober.times_ms.clear()
        yield attack
        attack.wait_pings()
    finally:
        attack.prober.stop()
    attack.wait_released()
    attack.check()
