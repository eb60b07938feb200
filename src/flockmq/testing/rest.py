"""Durable topics over a node's REST API, as plainly as tests and benchmarks need it: JSON in, JSON out.

```python
api = TopicsApi.of(cluster.nodes[0])
api.create("orders", shards=6, replication_factor=3)
api.wait_led("orders")
records = api.records("orders", 0)
```
Nothing is retried and nothing is guessed: an answer that is no success is an ``ApiError`` with its status and text.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from flockmq.errors import FlockError
from flockmq.security import credentials

if TYPE_CHECKING:
    from flockmq.testing.nodes import NodeProcess

TIMEOUT_S: Final = 30.0
LED_S_MAX: Final = 60.0
READ_BYTES: Final = 4 << 20
BATCHES: Final = "application/vnd.flockmq.batches"


class ApiError(FlockError):
    """The node answered, and not with a success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


class TopicsApi:
    """The topics of a cluster, asked at one node."""

    def __init__(self, url: str, token: str | None, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._token = token
        self._timeout_s = timeout_s

    @classmethod
    def of(cls, node: NodeProcess, host: str = "127.0.0.1") -> TopicsApi:
        """The API of a node that a test runs."""
        url = f"http://{host}:{node.api_port}"
        return cls(url, credentials.load(url, {"FLOCKMQ_CREDENTIALS": str(node.folder / "credentials.toml")}))

    def create(self, name: str, **what: object) -> dict[str, Any]:
        """Make a topic: ``filters``, ``shards``, ``replication_factor``, ``ack``, ``key`` ..."""
        found: dict[str, Any] = self.call("POST", "/topics", {"name": name, **what})
        return found

    def topics(self) -> list[dict[str, Any]]:
        """All topics."""
        return self._listing("/topics")

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        """The partitions of a topic: shard, group, replicas, leader, offsets."""
        found: list[dict[str, Any]] = self.call("GET", f"/topics/{quote(topic, safe='')}/partitions")
        return found

    def records(self, topic: str, shard: int) -> list[dict[str, Any]]:
        """All committed records of a partition, as JSON."""
        found: list[dict[str, Any]] = []
        offset = 0
        while True:
            query = urlencode({"offset": offset, "max_bytes": READ_BYTES, "limit": 10_000})
            page = self.call("GET", f"/topics/{quote(topic, safe='')}/partitions/{shard}/records?{query}")
            came = [one for one in page["records"] if one["offset"] >= offset]
            if not came:
                return found
            found += came
            offset = came[-1]["offset"] + 1

    def batches(self, topic: str, shard: int, offset: int) -> tuple[bytes, int]:
        """Committed batches from an offset on, as they lie in the log, and the offset behind all that is committed."""
        query = urlencode({"offset": offset, "max_bytes": READ_BYTES})
        path = f"/topics/{quote(topic, safe='')}/partitions/{shard}/records?{query}"
        body, headers = self._request("GET", path, None, BATCHES)
        return body, int(headers["X-Flockmq-End-Offset"])

    def is_led(self, topic: str) -> bool:
        """Whether every partition has a leader."""
        return all(one.get("leader") for one in self.partitions(topic))

    def wait_led(self, topic: str, seconds_max: float = LED_S_MAX) -> float:
        """Wait for leaders of all partitions; how long it took."""
        began = time.monotonic()
        while not self.is_led(topic):
            if time.monotonic() - began > seconds_max:
                raise FlockError(f"After {seconds_max:g} s: {self.partitions(topic)}")
            time.sleep(0.02)
        return time.monotonic() - began

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One request below ``/api/v1``; what its answer holds."""
        answer, _ = self._request(method, path, body, "application/json")
        return json.loads(answer) if answer else None

    def _listing(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self.call("GET", f"{path}?{urlencode({'limit': 1_000, **({'after': after} if after else {})})}")
            found += page["items"]
            after = page.get("next")
            if not after:
                return found

    def _request(self, method: str, path: str, body: object, accept: str) -> tuple[bytes, http.client.HTTPMessage]:
        headers = {"Accept": accept, "Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, f"/api/v1{path}", data, headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise FlockError(f"{self._host}:{self._port} does not answer: {error}") from error
        finally:
            connection.close()
        if not 200 <= response.status < 300:
            raise ApiError(response.status, answer.decode("utf-8", "replace"))
        return answer, response.headers
