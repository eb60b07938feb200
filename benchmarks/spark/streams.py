"""How long a small micro-batch takes, and how long it is from a publish to the alert about it.

```
 trigger:  publish 10 records --> query: 1 task, no output --> its report: triggerExecution; again
 alert:    publish a strange value --MQTT--> topic --> pipeline anomalies --> topic of alerts --MQTT--> subscriber
                                                        usual values come all the while
```
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.spark.cluster import Cluster
from flockmq.errors import FlockError
from flockmq.testing.nodes import HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SMALL: Final = 10
SKIPPED: Final = 10
"""The first batches start workers and compile: those of a query that has run for days do not."""
WAIT_S_MAX: Final = 120.0
DEVICES: Final = 5
USUAL_EVERY_S: Final = 0.05
WARM_UP: Final = 30
STRANGE: Final = 1_000

Figures = dict[str, float]


def triggers(spark: SparkSession, cluster: Cluster, folder: str, batches: int) -> Figures:
    """Medians of micro-batches with ten rows in one task."""
    cluster.make_topic("small", 1)
    reader = spark.readStream.format("flockmq").options(**cluster.options(), subscribe="small")
    writer = reader.option("startingOffsets", "earliest").load().writeStream.format("noop")
    query = writer.option("checkpointLocation", f"{folder}/small").trigger(processingTime="0 seconds").start()
    took: list[float] = []
    try:
        with cluster.client() as client:
            for number in range(batches + SKIPPED):
                client.publish("small", [("small/device", bytes(100)) for _ in range(SMALL)])
                report = _report_of(query, (number + 1) * SMALL)
                if number >= SKIPPED and report["numInputRows"] == SMALL:
                    took.append(float(report["durationMs"]["triggerExecution"]))
    finally:
        query.stop()
    return _spread(took)


def _report_of(query: StreamingQuery, rows: int) -> Any:
    """The report of the batch with which so many rows have been read."""
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        report: Any = query.lastProgress
        if report and _end_of(report) >= rows and "addBatch" in report["durationMs"]:
            return report
        if not query.isActive or time.monotonic() > deadline:
            raise FlockError(f"The query did not read {rows} rows: {query.exception()}")
        time.sleep(0.001)


def _end_of(report: Any) -> int:
    found: int = sum(json.loads(report["sources"][0]["endOffset"])["small"].values())
    return found


class Line:
    """An MQTT client that publishes values, and hears alerts."""

    def __init__(self, port: int) -> None:
        self.heard: dict[float, float] = {}
        """Strange value -> when its alert came."""
        self._news = threading.Condition()
        self._lock = threading.Lock()
        self._subscribed = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="bench-alerts")
        self._client.on_message = self._hear
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.connect(HOST, port)
        self._client.loop_start()
        self._client.subscribe("alerts/#", 1)
        if not self._subscribed.wait(WAIT_S_MAX):
            raise FlockError("The node does not answer a SUBSCRIBE")

    def _hear(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        now = time.perf_counter()
        with self._news:
            self.heard.setdefault(float(json.loads(message.payload)["value"]), now)
            self._news.notify_all()

    def publish(self, device: int, value: float) -> float:
        """Send a value; when."""
        with self._lock:
            now = time.perf_counter()
            self._client.publish(f"devices/d{device}/temperature", json.dumps({"value": value}), qos=1)
        return now

    def publish_usual(self, number: int) -> None:
        """Send a value that nobody wonders at."""
        self.publish(number % DEVICES, 20 + number % 7 / 10)

    def wait_for(self, value: float, seconds: float) -> float | None:
        """When the alert about a value came; None if it does not come."""
        with self._news:
            self._news.wait_for(lambda: value in self.heard, seconds)
            return self.heard.get(value)

    def close(self) -> None:
        """Leave."""
        self._client.disconnect()
        self._client.loop_stop()


def alerts(cluster: Cluster, folder: str, count: int) -> Figures:
    """Milliseconds from the publish of a strange value to its alert at a subscriber."""
    for topic in ("devices", "alerts"):
        cluster.make_topic(topic, 1)
    line = Line(cluster.mqtt_port)
    ended = threading.Event()
    usual = threading.Thread(target=_send_usual, args=(line, ended), name="usual values")
    try:
        for number in range(2 * WARM_UP * DEVICES):  # a strange value that is learned from would be usual
            line.publish_usual(number)
        usual.start()
        with _pipeline(cluster, folder) as process:
            waits = [_wait_ms(line, number, ended, process) for number in range(count + SKIPPED)]
    finally:
        ended.set()
        if usual.is_alive():
            usual.join()
        line.close()
    return _spread(waits[SKIPPED:])


@contextmanager
def _pipeline(cluster: Cluster, folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """``flockmq pipeline run anomalies``, as anybody would run it, until the block is left."""
    arguments = ["--topic", "devices", "--columns", "devices/{device}/{metric}", "--metrics", "value"]
    arguments += ["--publish", "alerts/{device}", "--warm-up", str(WARM_UP), "--from", "earliest"]
    arguments += ["--server", ",".join(cluster.urls), "--checkpoint", f"{folder}/alerts"]
    command = [sys.executable, "-m", "flockmq", "pipeline", "run", "anomalies", *arguments]
    with Path(folder, "anomalies.log").open("wb+") as log:
        environment = {**os.environ, "FLOCKMQ_TOKEN": cluster.token}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            yield process
        except FlockError as error:
            log.seek(0)
            raise FlockError(f"{error}; it said: {log.read().decode(errors='replace')[-2_000:]}") from error
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S_MAX)


def _wait_ms(line: Line, number: int, ended: threading.Event, process: subprocess.Popen[bytes]) -> float:
    """Send a strange value, wait for its alert."""
    ended.wait(0.2 + number * 0.137 % 0.5)  # not in step with micro-batches
    value = float(STRANGE + number)
    began = line.publish(number % DEVICES, value)
    deadline = time.monotonic() + WAIT_S_MAX
    while (heard := line.wait_for(value, 1.0)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise FlockError(f"No alert came about value {number} within {WAIT_S_MAX:g} s, or the pipeline ended")
    return (heard - began) * 1e3


def _send_usual(line: Line, ended: threading.Event) -> None:
    for number in itertools.count():
        if ended.wait(USUAL_EVERY_S):
            return
        line.publish_usual(number)


def _spread(took_ms: list[float]) -> Figures:
    if not took_ms:
        raise FlockError("Nothing was measured")
    ordered = sorted(took_ms)
    return {
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "count": float(len(ordered)),
    }
