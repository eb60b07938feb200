"""The cluster that all tests with Spark share: three real nodes with one admin token.

```python
def test_it(cluster: SparkCluster, spark: SparkSession) -> None:
    topic = cluster.create_topic(shards=4)
    cluster.publish(topic, [(f"{topic}/press1", b"21.5")])
    rows = spark.read.format("flockmq").options(**cluster.options()).option("subscribe", topic).load()
```
Topics are named anew for every test, so that tests do not meet. A test may kill nodes; whoever comes next finds them
running again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from zlib import crc32

from flockmq.admin.durable_model import RECORDS_PER_PUBLISH_MAX, Placed
from flockmq.client.admin import AdminClient
from flockmq.client.log_client import LogClient
from flockmq.errors import ApiError, FlockError
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster

if TYPE_CHECKING:
    from types import TracebackType

NODES: Final = 3
PUBLISH_BYTES_MAX: Final = 512 * 1024
"""Of payloads in one request; its body may have a few times that."""

Record = tuple[str, bytes]
"""MQTT topic name and payload."""


class SparkCluster:
    """Three nodes on loopback; a context manager."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.nodes = NodeCluster(folder, NODES, options)
        self.token = ""
        """Opens the API of every node: the founder's own, which the cluster's settings share."""
        self.api_urls = [f"http://{HOST}:{node.api_port}" for node in self.nodes.nodes]
        self.mqtt_ports = [node.mqtt_port for node in self.nodes.nodes]
        self._names: Counter[str] = Counter()
        """How many names each test has got."""

    def __enter__(self) -> Self:
        self.nodes.__enter__()
        try:
            file = str(self.nodes.nodes[0].folder / "credentials.toml")
            self.token = credentials.load(self.api_urls[0], {"FLOCKMQ_CREDENTIALS": file}) or ""
            self.nodes.wait(self._is_settled, "all nodes to be in cluster state")
            self.nodes.wait_settled()
        except BaseException:
            self.nodes.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.nodes.close()

    @property
    def server(self) -> str:
        """What goes into option ``server``."""
        return ",".join(self.api_urls)

    def options(self) -> dict[str, str]:
        """The options that every query on this cluster needs."""
        return {"server": self.server, "token": self.token}

    def client(self, **options: Any) -> LogClient:
        """A client that knows all nodes; whoever takes it closes it."""
        return LogClient(self.api_urls, self.token, **options)

    def admin(self, number: int = 0) -> AdminClient:
        """The admin API of a node."""
        return AdminClient(self.api_urls[number], self.token)

    def unique(self, prefix: str = "topic") -> str:
        """A name that no other test has, and the same whatever ran before: names decide who is in which shard."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0].partition("@")[0]
        self._names[test] += 1
        return f"{prefix}{crc32(test.encode()):08x}n{self._names[test]}"

    def create_topic(self, name: str = "", *, shards: int = 1, **fields: Any) -> str:
        """Declare a durable topic, and wait until all of its partitions have leaders; its name."""
        name = name or self.unique()
        self.nodes.create_topic(name, shards=shards, **fields)
        return name

    def publish(self, topic: str, records: Iterable[Record], *, client_id: str = "") -> list[Placed]:
        """Append records to a durable topic; where each of them is."""
        placed: list[Placed | None] = []
        with self.client() as client:
            for part in _parts(records):
                placed += client.publish(topic, part, client=client_id)
        if None in placed:
            raise FlockError(f"{placed.count(None)} records of {topic} were not stored")
        return [one for one in placed if one is not None]

    def end_offsets(self, topic: str) -> list[int]:
        """How many records each shard has had."""
        with self.client() as client:
            return [head.end_offset for head in client.heads(topic).heads]

    def kill(self, number: int) -> None:
        """End a node as a crash would."""
        self.nodes.nodes[number].kill()

    def start(self, number: int) -> None:
        """Start a node again, and wait until it serves, all nodes see each other, and copies are where they belong."""
        node = self.nodes.nodes[number]
        node.start()
        node.wait_ready()
        self.nodes.wait(self.nodes.sees_all, "all nodes to see each other")
        if len(self._alive()) == NODES:
            self.nodes.wait_settled()

    def mend(self) -> None:
        """Have all nodes run."""
        for number, node in enumerate(self.nodes.nodes):
            if not node.is_running:
                self.start(number)

    def _alive(self) -> list[int]:
        return [number for number, node in enumerate(self.nodes.nodes) if node.is_running]

    def _is_settled(self) -> bool:
        """Whether every node knows the state of the cluster, with all nodes and the token that they share."""
        try:
            dumps = [self.admin(number).dump() for number in range(NODES)]
        except ApiError:
            return False
        return all(
            sum(1 for node in one["nodes"] if node["state"] == "ALIVE" and node["api"]) == NODES for one in dumps
        )


def _parts(records: Iterable[Record]) -> Iterable[list[Record]]:
    """Records in runs that one request can take."""
    part: list[Record] = []
    size = 0
    for record in records:
        if part and (len(part) == RECORDS_PER_PUBLISH_MAX or size + len(record[1]) > PUBLISH_BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(record)
        size += len(record[1])
    if part:
        yield part
