"""The same work done by NATS JetStream: three servers, streams with three replicas, one stream for each shard.

```
 publisher: PUB subject inbox -----> stream leader --> majority (written, not fsynced) --> ack to the inbox, counted
 subscriber: push consumer, R3 <---- stream;  acknowledges by the last message of what it read (AckAll)
```
Its own protocol, spoken directly: a hundred lines make load faster than any client library in Python could. Publishers
keep a window of unacknowledged messages, as those of FlockMQ do.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.brokers import NATS_ELECTION_S
from benchmarks.machine import find
from flockmq.client.load.usage import cpu_seconds
from flockmq.errors import FlockError
from flockmq.testing.ports import free_port

NODES = 3
SHARDS = 6
CREATE_S_MAX = 60.0
READ_BYTES = 1 << 18
BLOCK = 1_000
"""Messages that are prepared, and sent round and round."""
ACKED = b'"seq":'
"""In the answer to every message that a stream took."""
DELIVERED = b"\r\nMSG "

Figures = dict[str, float]


@contextmanager
def running(folder: str | None = None) -> Iterator[tuple[list[int], list[int]]]:
    """Three servers with JetStream: their ports and their processes."""
    program = find("nats-server")
    if program is None:
        raise FlockError("nats-server is not on this machine")
    ports = [free_port() for _ in range(NODES)]
    routes = [free_port() for _ in range(NODES)]
    known = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
    with tempfile.TemporaryDirectory(prefix="flockmq-bench-", dir=folder) as name, ExitStack() as stack:
        place = Path(name)
        pids = []
        for number in range(NODES):
            lines = [
                f"server_name: bench{number}",
                "host: 127.0.0.1",
                f"port: {ports[number]}",
                f'jetstream {{ store_dir: "{place / f"store{number}"}" }}',
                f"cluster {{ name: bench, listen: 127.0.0.1:{routes[number]}, routes: [{known}] }}",
            ]
            config = place / f"nats{number}.conf"
            config.write_text("\n".join(lines) + "\n", encoding="utf-8")
            log = stack.enter_context((place / f"log{number}").open("wb"))
            process = subprocess.Popen([program, "-c", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(_end, process)
            pids.append(process.pid)
        time.sleep(NATS_ELECTION_S)  # until then JetStream has no leader and answers nothing
        yield ports, pids


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class Connection:
    """One client's connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._until(b"\r\n")  # INFO
        self.socket.sendall(b'CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1"}\r\nPING\r\n')
        self._until(b"PONG\r\n")

    def _until(self, end: bytes) -> bytes:
        data = self._rest
        while end not in data:
            came = self.socket.recv(READ_BYTES)
            if not came:
                raise FlockError("NATS closed a connection")
            data += came
        found, _, self._rest = data.partition(end)
        return found

    def request(self, subject: str, body: object) -> dict[str, object]:
        """Ask the JetStream API; its answer."""
        text = json.dumps(body).encode()
        inbox = b"_INBOX.%d" % time.monotonic_ns()
        self.socket.sendall(b"SUB %b 1\r\nUNSUB 1 1\r\nPUB %b %b %d\r\n" % (inbox, subject.encode(), inbox, len(text)))
        self.socket.sendall(text + b"\r\n")
        head = self._until(b"\r\n")
        while head.startswith(b"PING"):
            head = self._until(b"\r\n")
        size = int(head.rpartition(b" ")[2])
        while len(self._rest) < size + 2:
            self._rest += self.socket.recv(READ_BYTES)
        answer, self._rest = self._rest[:size], self._rest[size + 2 :]
        found: dict[str, object] = json.loads(answer)
        return found

    def close(self) -> None:
        """Leave."""
        self.socket.close()


def make_streams(port: int, count: int = SHARDS) -> None:
    """One stream with three replicas for each shard, as ready as NATS says they are."""
    connection = Connection(port)
    connection.socket.settimeout(CREATE_S_MAX)
    for shard in range(count):
        config = {"name": f"S{shard}", "subjects": [f"bench.{shard}.>"], "num_replicas": NODES, "storage": "file"}
        _expect(connection.request(f"$JS.API.STREAM.CREATE.S{shard}", config))
    connection.close()


def make_consumer(connection: Connection, shard: int, name: str, subject: str) -> None:
    """A push consumer of one publisher's messages."""
    connection.socket.sendall(f"SUB deliver.{name} 7\r\n".encode())
    config = {
        "deliver_subject": f"deliver.{name}",
        "durable_name": name,
        "filter_subject": subject,
        "ack_policy": "all",
        "max_ack_pending": 10_000,
        "deliver_policy": "all",
    }
    body = {"stream_name": f"S{shard}", "config": config}
    _expect(connection.request(f"$JS.API.CONSUMER.DURABLE.CREATE.S{shard}.{name}", body))


def _expect(answer: dict[str, object]) -> None:
    if "error" in answer:
        raise FlockError(f"NATS refused: {answer['error']}")


class Publisher:
    """Keeps a window of messages unacknowledged."""

    def __init__(self, port: int, subject: str, payload_bytes: int, window: int) -> None:
        self.connection = Connection(port)
        self.acked = 0
        self.sent = 0
        self.waits_s: list[float] = []
        self._window = window
        self._sent_at = 0.0
        self._tail = b""
        inbox = f"_INBOX.{subject}"
        self.connection.socket.sendall(f"SUB {inbox} 2\r\n".encode())
        self._unit = f"PUB {subject} {inbox} {payload_bytes}\r\n".encode() + b"x" * payload_bytes + b"\r\n"
        self._block = self._unit * BLOCK
        self._pending = b""
        self.connection.socket.setblocking(False)

    def write(self) -> None:
        """Send as much as window and socket take."""
        while True:
            if not self._pending:
                room = min(self._window - (self.sent - self.acked), BLOCK)
                if room <= 0:
                    return
                self._pending = self._block[: room * len(self._unit)]
                self.sent += room
                self._sent_at = time.perf_counter()
            try:
                count = self.connection.socket.send(self._pending)
            except BlockingIOError:
                return
            self._pending = self._pending[count:]

    def read(self) -> None:
        """Count acknowledgements."""
        try:
            data = self._tail + self.connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        self._answer_ping(data)
        came = data.count(ACKED)
        self._tail = data[data.rfind(ACKED) + len(ACKED) :][-len(ACKED) :] if came else data[-len(ACKED) + 1 :]
        self.acked += came
        if came and self._window == 1:
            self.waits_s.append(time.perf_counter() - self._sent_at)

    def _answer_ping(self, data: bytes) -> None:
        if b"PING\r\n" in data and not self._pending:
            self.connection.socket.send(b"PONG\r\n")


class Subscriber:
    """Reads, counts, acknowledges the last of what it read."""

    def __init__(self, port: int, shard: int, name: str, subject: str) -> None:
        self.connection = Connection(port)
        make_consumer(self.connection, shard, name, subject)
        self.connection.socket.setblocking(False)
        self.received = 0
        self._tail = b"\r\n"

    def write(self) -> None:
        """Nothing of its own to say."""

    def read(self) -> None:
        """Count what came."""
        try:
            data = self._tail + self.connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        if b"PING\r\n" in data:
            self.connection.socket.send(b"PONG\r\n")
        last = data.rfind(DELIVERED)
        end = data.find(b"\r\n", last + len(DELIVERED)) if last >= 0 else -1
        if last >= 0 and end < 0:  # a head that is not whole is left for the next read
            head, self._tail = data[:last], data[last:]
            self.received += head.count(DELIVERED)
            return
        self.received += data.count(DELIVERED)
        self._tail = data[-(len(DELIVERED) - 1) :]
        if last >= 0:
            reply = data[last + 2 : end].split(b" ")[3]
            self.connection.socket.send(b"PUB %b 4\r\n+ACK\r\n" % reply)


def measure(ports: Sequence[int], pids: Sequence[int], run: str, effort: tuple[int, int, int, float]) -> Figures:
    """Let publishers and subscribers work: ``effort`` is publishers, subscribers, window and seconds."""
    publishers_count, subscribers_count, window, seconds = effort
    subjects = [(number % SHARDS, f"bench.{number % SHARDS}.{run}{number}") for number in range(publishers_count)]
    subscribers = [
        Subscriber(ports[number % NODES], subjects[number][0], f"{run}{number}", subjects[number][1])
        for number in range(subscribers_count)
    ]
    publishers = [
        Publisher(ports[(number + 1) % NODES], subject, 64, window) for number, (_, subject) in enumerate(subjects)
    ]
    selector = selectors.DefaultSelector()
    everybody: list[Publisher | Subscriber] = [*publishers, *subscribers]
    for one in everybody:
        selector.register(one.connection.socket, selectors.EVENT_READ, one)
    busy, cpu, began = time.process_time(), cpu_seconds(pids) or 0.0, time.perf_counter()
    end = began + seconds
    while time.perf_counter() < end:
        for publisher in publishers:
            publisher.write()
        for key, _ in selector.select(0.01):
            key.data.read()
    elapsed = time.perf_counter() - began
    cpu = (cpu_seconds(pids) or 0.0) - cpu
    figures = {
        "rate": sum(one.acked for one in publishers) / elapsed,
        "deliver_rate": sum(one.received for one in subscribers) / elapsed,
        "generator_busy": (time.process_time() - busy) / elapsed,
        "cores": cpu / elapsed,
    }
    waits = sorted(wait for one in publishers for wait in one.waits_s)
    if waits:
        figures |= {"p50_ms": waits[len(waits) // 2] * 1e3, "p99_ms": waits[len(waits) * 99 // 100] * 1e3}
    for one in everybody:
        one.connection.close()
    return figures
