"""Devices with persistent sessions and publishers of numbered messages: paho-mqtt and mosquitto_sub, on real sockets.

```
 Publisher --QoS 1, numbered--> node       PUBACK below 0x80: a promise, kept in Promises with its topic name
 Device    <--QoS 1------------ any node   what it received, over all its connections (repeats are allowed)
 missing(device, promises): promised, matches a filter of the device, and never came
```
"""

from __future__ import annotations

import itertools
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from flockmq.testing.nodes import HOST, NodeProcess
from integration.support.programs import need

WAIT_S = 40.0
"""Longest wait for what has to come; a node is found dead and its work taken over in far less."""
CONNACK_S_MAX = 10.0
PAUSE_S = 0.1
LASTING_S = 600
FAILED = 0x80
BATCH = 10
BATCH_S_MAX = 3.0


class Promises:
    """Messages that were acknowledged: what each device has to get."""

    def __init__(self, first: int = 0) -> None:
        """``first``: the number of the first message."""
        self.kept: list[tuple[str, bytes]] = []
        self._numbers = itertools.count(first)

    def next_payload(self) -> bytes:
        """A payload that no other message has."""
        return b"%06d" % next(self._numbers)


class Connection:
    """One connection of a paho client; no attempt to connect again by itself."""

    def __init__(
        self, client_id: str, version: int, expiry_s: int, clean: bool, host: str, port: int, will: str = ""
    ) -> None:
        """OSError when the port does not take the connection; ``welcome`` waits for CONNACK. ``will``: its topic."""
        is_v5 = version == paho.MQTTv5
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            None if is_v5 else clean,
            protocol=paho.MQTTv5 if is_v5 else paho.MQTTv311,
            reconnect_on_failure=False,
        )
        if will:
            self.client.will_set(will, client_id, qos=1)
        self.session_present = False
        self.reason = 0
        self.gone = threading.Event()
        self.answers: list[tuple[int, int]] = []
        """Packet id and reason of every PUBACK."""
        self._connacks: queue.Queue[tuple[bool, int]] = queue.Queue()
        self._done: queue.Queue[list[Any]] = queue.Queue()
        self.client.on_connect = lambda _c, _u, flags, why, _p: self._connacks.put((flags.session_present, why.value))
        self.client.on_subscribe = lambda _c, _u, _m, whys, _p: self._done.put(whys)
        self.client.on_unsubscribe = lambda _c, _u, _m, whys, _p: self._done.put(whys)
        self.client.on_publish = lambda _c, _u, mid, why, _p: self.answers.append((mid, why.value))
        self.client.on_disconnect = self._ended
        properties: Any = Properties(PacketTypes.CONNECT) if is_v5 else None  # type: ignore[no-untyped-call]
        if is_v5:
            properties.SessionExpiryInterval = expiry_s
        options = {"clean_start": clean, "properties": properties} if is_v5 else {}
        self.client.connect(host, port, **options)

    def _ended(self, _client: object, _data: object, _flags: object, why: Any, _properties: object) -> None:
        self.reason = why.value
        self.gone.set()

    def welcome(self) -> bool:
        """Wait for CONNACK; False when it refuses or does not come."""
        self.client.loop_start()
        try:
            self.session_present, reason = self._connacks.get(timeout=CONNACK_S_MAX)
        except queue.Empty:
            reason = FAILED
        if reason:
            self.cut()
        return not reason

    def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe at QoS 1 and wait for the SUBACK."""
        self.client.subscribe([(one, 1) for one in filters])
        whys = self._done.get(timeout=WAIT_S)
        assert [why.value for why in whys] == [1] * len(filters), f"SUBACK {whys}"

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Unsubscribe and wait for the UNSUBACK."""
        assert self.try_unsubscribe(filters, WAIT_S), "no UNSUBACK"

    def try_unsubscribe(self, filters: Sequence[str], seconds_max: float) -> bool:
        """Unsubscribe; whether an UNSUBACK came in time."""
        self.client.unsubscribe(list(filters))
        with suppress(queue.Empty):
            self._done.get(timeout=seconds_max)
            return True
        return False

    def leave(self) -> None:
        """DISCONNECT."""
        self.client.disconnect()
        self.client.loop_stop()

    def cut(self) -> None:
        """End the connection without a word to the node."""
        opened = self.client.socket()
        if isinstance(opened, socket.socket):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        self.client.loop_stop()


class Device:
    """A client id with a persistent session, wherever it connects."""

    def __init__(self, client_id: str, version: int = paho.MQTTv5, expiry_s: int = LASTING_S) -> None:
        self.client_id = client_id
        self.version = version
        self.expiry_s = expiry_s
        self.filters: list[str] = []
        self.received: list[bytes] = []
        self.acknowledges: Callable[[bytes], bool] = lambda _: True
        """Which messages the device acknowledges, by payload; others were not received."""
        self.connection: Connection | None = None

    def dial(self, node: NodeProcess, *, clean: bool = False, host: str = HOST) -> Connection | None:
        """One attempt to connect; None when the node refuses. What comes counts as received by this device."""
        with suppress(OSError):
            made = Connection(self.client_id, self.version, self.expiry_s, clean, host, node.mqtt_port)
            made.client.manual_ack_set(True)
            made.client.on_message = self._take
            if made.welcome():
                return made
        return None

    def _take(self, client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        payload = bytes(message.payload)
        if self.acknowledges(payload):
            self.received.append(payload)
            client.ack(message.mid, message.qos)

    def connect(self, node: NodeProcess, *, clean: bool = False, host: str = HOST) -> bool:
        """Connect, again and again until the node lets it in; whether its session was present."""
        until = time.monotonic() + WAIT_S
        found = self.dial(node, clean=clean, host=host)
        while found is None:
            assert time.monotonic() < until, f"{self.client_id} is not let in by {node.name}\n{node.log_tail()}"
            time.sleep(PAUSE_S)
            found = self.dial(node, clean=clean, host=host)
        self.connection = found
        return found.session_present

    @property
    def here(self) -> Connection:
        """The connection that it has."""
        assert self.connection is not None
        return self.connection

    @property
    def is_connected(self) -> bool:
        """Whether its connection has not ended."""
        return self.connection is not None and not self.connection.gone.is_set()

    def subscribe(self, *filters: str) -> None:
        """Subscribe at QoS 1."""
        self.here.subscribe(filters)
        self.filters += filters

    def unsubscribe(self, *filters: str) -> None:
        """Take subscriptions back."""
        self.here.unsubscribe(filters)
        self.filters = [one for one in self.filters if one not in filters]

    def leave(self) -> None:
        """Go in order."""
        self.here.leave()

    def cut(self) -> None:
        """Be gone without a word."""
        if self.connection is not None:
            self.connection.cut()


class MosquittoDevice:
    """``mosquitto_sub -c``: connects again by itself, always to the same node."""

    def __init__(self, folder: Path, client_id: str, filters: Sequence[str]) -> None:
        self.client_id = client_id
        self.filters = list(filters)
        self._output = folder / f"{client_id}.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, node: NodeProcess) -> None:
        """Run it."""
        command = [need("mosquitto_sub"), "-h", HOST, "-p", str(node.mqtt_port), "-i", self.client_id, "-c", "-q", "1"]
        filters = [word for one in self.filters for word in ("-t", one)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen([*command, *filters, "-F", "%p"], stdout=output, stderr=output)

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(WAIT_S)
            self._process = None

    @property
    def received(self) -> list[bytes]:
        """What it printed."""
        return self._output.read_bytes().split()


def missing(device: Device | MosquittoDevice, promises: Promises) -> list[tuple[str, bytes]]:
    """Promised messages that match a filter of a device and have not come."""
    came = set(device.received)
    return [
        (topic, payload)
        for topic, payload in promises.kept
        if payload not in came and any(paho.topic_matches_sub(one, topic) for one in device.filters)
    ]


def await_all(device: Device | MosquittoDevice, promises: Promises, what: Callable[[], str]) -> None:
    """Wait until a device has all that was promised to it."""
    until = time.monotonic() + WAIT_S
    while absent := missing(device, promises):
        if time.monotonic() > until:
            lost = f"{len(absent)} of {len(promises.kept)} promised messages did not reach {device.client_id}"
            raise AssertionError(f"{lost}: {absent[:20]}\n{what()}")
        time.sleep(PAUSE_S)


class Publisher:
    """Publishes numbered messages at QoS 1 to one node after the other of a list, and keeps what was acknowledged."""

    def __init__(
        self, name: str, nodes: Sequence[NodeProcess], topics: Sequence[str], promises: Promises, host: str = HOST
    ) -> None:
        self.acknowledged = 0
        self.refused = 0
        """Messages with a PUBACK of 0x80 or more."""
        self.unanswered = 0
        self._name = name
        self._nodes = itertools.cycle(nodes)
        self._topics = itertools.cycle(topics)
        self._promises = promises
        self._host = host
        self._connection: Connection | None = None
        self._sent: dict[int, tuple[str, bytes]] = {}
        self._counted = 0

    def connect(self) -> None:
        """Connect to the next node that lets it in."""
        until = time.monotonic() + WAIT_S
        while self._connection is None or self._connection.gone.is_set():
            assert time.monotonic() < until, f"no node lets {self._name} in"
            node = next(self._nodes)
            with suppress(OSError):
                made = Connection(self._name, paho.MQTTv5, 0, True, self._host, node.mqtt_port)
                if made.welcome():
                    self._connection, self._sent, self._counted = made, {}, 0
                    return
            time.sleep(PAUSE_S)

    def send(self, count: int) -> None:
        """Give messages to the client; no wait."""
        assert self._connection is not None
        for _ in range(count):
            topic, payload = next(self._topics), self._promises.next_payload()
            self._sent[self._connection.client.publish(topic, payload, 1).mid] = (topic, payload)

    def settle(self, seconds_max: float = WAIT_S) -> int:
        """Wait for the PUBACKs of all that was sent; how many are still missing at the end of the wait."""
        assert self._connection is not None
        until = time.monotonic() + seconds_max
        while len(self._connection.answers) < len(self._sent) and time.monotonic() < until:
            if self._connection.gone.is_set():
                break
            time.sleep(0.01)
        answers = self._connection.answers[self._counted :]
        self._counted += len(answers)
        kept = [self._sent[mid] for mid, why in answers if why < FAILED]
        self._promises.kept += kept
        self.acknowledged += len(kept)
        self.refused += sum(why >= FAILED for _, why in answers)
        return len(self._sent) - self._counted

    def publish(self, count: int) -> None:
        """Have so many messages acknowledged, wherever and however long it takes."""
        wanted = self.acknowledged + count
        while self.acknowledged < wanted:
            self.connect()
            self.send(min(BATCH, wanted - self.acknowledged))
            left = self.settle(BATCH_S_MAX)
            if left:
                self.unanswered += left
                self.close()

    def close(self) -> None:
        """Be gone."""
        if self._connection is not None:
            self._connection.cut()
            self._connection = None


class Load:
    """Publishers that go on in threads of their own for as long as the block runs."""

    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._publishers = list(publishers)
        self._stopping = threading.Event()
        self._problems: list[Exception] = []
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in publishers]

    def _run(self, publisher: Publisher) -> None:
        try:
            while not self._stopping.is_set():
                publisher.publish(1)
        except Exception as error:
            self._problems.append(error)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * WAIT_S)
        for publisher in self._publishers:
            publisher.close()
        if error is None:
            assert not self._problems, self._problems
