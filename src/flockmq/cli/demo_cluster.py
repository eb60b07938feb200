"""The cluster of the demo: nodes that are thrown away, of which the last one is killed and comes back."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from flockmq.admin.durable_model import TopicRequest
from flockmq.client.admin import AdminClient
from flockmq.client.load.fleet.catalogue import METRICS
from flockmq.client.local_cluster import (
    PORT_TAKEN,
    start_cluster,
    start_node,
    stop_cluster,
    usable_ports,
    wait_ready,
    write_cluster,
)
from flockmq.client.log_client import LogClient
from flockmq.errors import FlockError
from flockmq.security import credentials

if TYPE_CHECKING:
    from types import TracebackType

OPTIONS: Final = ("--allow-anonymous", "--log-level=warning", "--set=mqtt.sys_interval_ms=1000")
TOPIC: Final = "measurements"
FILTERS: Final = tuple(f"plant/+/+/+/{metric.name}" for metric in METRICS if metric.qos)
SHARDS: Final = 3
TICK: Final = "plant/demo/line0/clock/vibration"
RUNNING: Final = "running"
KILLED: Final = "killed"
BACK: Final = "back"


class DemoCluster:
    """Starts when it is made; a context manager."""

    def __init__(self, count: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="flockmq-")
        self._path = Path(self._folder.name)
        # Tokens and a cookie of no use tomorrow stay out of the user's own files.
        self._environment = {
            "FLOCKMQ_CREDENTIALS": str(self._path / "credentials.toml"),
            "FLOCKMQ_COOKIE": secrets.token_hex(32),
        }
        self._state = RUNNING
        self._ports = usable_ports(count)
        try:
            while not self._has_started(count):
                self._ports = usable_ports(count, tried=self._ports)
        except BaseException:
            self.close()
            raise

    def _has_started(self, count: int) -> bool:
        """Whether all nodes serve; False when another program took one of the ports meanwhile."""
        self._nodes = start_cluster(self._path, count, self._ports, OPTIONS, self._environment)
        try:
            for _ in wait_ready(self._nodes):
                pass
        except FlockError:
            if not any(PORT_TAKEN in node.log_tail() for node in self._nodes):
                raise
            for _ in stop_cluster(self._path):
                pass
            for node in self._nodes:
                shutil.rmtree(node.folder)
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create_topic(self) -> None:
        """Declare the durable topic for what devices must not lose."""
        request = TopicRequest(name=TOPIC, filters=list(FILTERS), shards=SHARDS)
        first = self._nodes[0].api_url
        AdminClient(first, self.tokens().get(first)).create_topic(request)

    def tick(self) -> int:
        """Store one more measurement, of nothing: readers see that time has passed. How many records there are now."""
        with LogClient(self.api_urls, token_of=self.tokens().get) as client:
            client.publish(TOPIC, [(TICK, b'{"seq": 1, "value": 0}')], client="demo")
            return sum(head.end_offset - head.first_offset for head in client.heads(TOPIC).heads)

    @property
    def token(self) -> str:
        """Opens the API of every node: that of the founder, which the cluster's settings share."""
        return self.tokens()[self._nodes[0].api_url]

    def tokens(self) -> dict[str, str]:
        """Lets its owner ask the nodes of this cluster: URL and token of each."""
        found = {url: credentials.load(url, self._environment) for url in self.api_urls}
        return {url: token for url, token in found.items() if token}

    @property
    def api_urls(self) -> list[str]:
        """The APIs of all nodes, the second node's first: the log is the same from anywhere."""
        urls = [node.api_url for node in self._nodes]
        return urls[1:] + urls[:1]

    @property
    def mqtt_ports(self) -> list[int]:
        """Where devices connect."""
        return [node.mqtt_port for node in self._nodes]

    def headline(self) -> str:
        """Where everything is."""
        ports = ", ".join(str(port) for port in self.mqtt_ports)
        return f"{len(self._nodes)} nodes on 127.0.0.1, MQTT on {ports}, API on {self._nodes[0].api_url}"

    def states(self) -> list[tuple[str, str]]:
        """Each node, and how it is."""
        states = [(node.name.partition("@")[0], RUNNING) for node in self._nodes]
        states[-1] = (states[-1][0], self._state)
        return states

    def go_on(self, share: float, kill_at: float, back_at: float) -> list[str]:
        """Kill the last node, or start it again, when its time has come; what to tell about it."""
        victim = self._nodes[-1]
        if self._state == RUNNING and share >= kill_at:
            self._state = KILLED
            os.kill(victim.pid, signal.SIGKILL)
            return [f"{victim.name} was killed (kill -9): its devices move to the others"]
        if self._state == KILLED and share >= back_at:
            self._state = BACK
            self._nodes[-1] = start_node(self._path, len(self._nodes), self._ports, OPTIONS, self._environment)
            write_cluster(self._path, self._nodes)
            return [f"{victim.name} is started again"]
        return []

    def log_tail(self) -> str:
        """What the first node said last."""
        return self._nodes[0].log_tail()

    def close(self) -> bool:
        """Stop all nodes; whether all of them did so in order. Fine to call again."""
        if not self._path.exists():
            return True
        orderly = all(ended for _, ended in stop_cluster(self._path))
        self._folder.cleanup()
        return orderly
