"""Spark beside the demo: ``rollup`` over the durable topic, as a process of its own.

```
 demo --Task--> flockmq.spark.pipelines.beside (PySpark, JVM) <---- reads ---- the cluster, also while a node is gone
   |<-- Progress ... ----'   |
   |--- Until(records) ----->|   after one record more, late enough to close the last windows
   `<-- Result --------------'
```
Nothing here imports PySpark, and a machine without it, or without Java, gets the demo without Spark.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from flockmq.errors import FlockError
from flockmq.spark.pipelines.beside import Line, Progress, Result, Task, Until

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOW_S: Final = 5
WATERMARK_S: Final = 10
"""A record may be committed this much later than those of other partitions: a leader that died had it in hand."""
CLOSED_AFTER_S: Final = WINDOW_S + WATERMARK_S
"""A record that comes this long after the last one is later than all windows."""
RESULT_S_MAX: Final = 240.0
END_S_MAX: Final = 10.0
LOG_LINES: Final = 8
CONF: Final = {
    # The nodes have these cores, too: compiling Java for a run of a minute would take more than it gives.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.driver.memory": "512m",
}


def why_not() -> str:
    """Why Spark can't run here, in one sentence; nothing when it can."""
    if find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'flockmq[spark]'), so this is the demo without Spark."
    from flockmq.spark import java

    try:
        java.find()
    except FlockError as error:
        return f"{str(error).rstrip('.')}. So this is the demo without Spark."
    return ""


class DemoSpark:
    """Starts when it is made; a context manager."""

    def __init__(self, topic: str, options: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flockmq-demo-"))
        """Stays when the demo is over: the table, the chart, Spark's log."""
        self.progress: Progress | None = None
        self.result: Result | None = None
        self._log = self.folder / "spark.log"
        parameters = {
            "topic": topic,
            "columns": "plant/{site}/{line}/{machine}/{metric}",
            "device": "site,line,machine",
            "metrics": "value",
            "window": f"{WINDOW_S}s",
            "watermark": f"{WATERMARK_S}s",
            "lake": str(self.folder / "rollup"),
            "report": str(self.folder),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flockmq.spark.pipelines.beside"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
        self._send(Task(options=dict(options), parameters=parameters, conf=CONF))
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> DemoSpark:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come."""
        return not self._reading.is_alive()

    def line(self) -> str:
        """How far it is."""
        one = self.progress
        if self.is_over:
            return "Spark: done"
        if one is None:
            return "Spark: starting ..."
        lag = "-" if one.lag is None else f"{one.lag:,}"
        return f"Spark: {one.rows:,} rows, {one.batches} batches, lag {lag}, trigger {one.trigger_ms:,} ms"

    def finish(self, records: int) -> None:
        """Let it end when it has read that many records."""
        self._send(Until(records=records))

    def outcome(self) -> Result:
        """What it computed, or why not."""
        if self.result is not None:
            return self.result
        lines = self._log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
        return Result(error="Spark ended without a result. It said last:\n" + "\n".join(lines))

    def close(self) -> None:
        """Have no process left."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the JVM ends when its Python is gone
            self._process.wait()
        self._reading.join(END_S_MAX)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self, message: Task | Until) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; the outcome says why
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            try:
                line = msgspec.json.decode(text, type=Line)
            except msgspec.DecodeError:
                continue  # something of Java's
            self.progress = line.progress or self.progress
            self.result = line.result or self.result
