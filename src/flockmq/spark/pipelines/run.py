"""Runs a pipeline: a Spark session, its job, a graceful end.

```
 RunSettings + Values --> session (local, --master, --remote), its log kept off the screen
                             `--> pipeline.run(Job) --> job.start(writer): checkpoint, trigger
                                                    --> job.follow(query): progress until --once is through, --for
                                                        is over or Ctrl-C; a running micro-batch may end --> Summary
```
What goes wrong in Spark comes back as one sentence; the whole story stays in Spark's log file, which is removed only
when all went well.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flockmq.errors import FlockError
from flockmq.spark.pipelines.parameters import Values, absolute
from flockmq.spark.pipelines.progress import Display, Tally

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from flockmq.spark.pipelines.registry import Pipeline
    from flockmq.spark.pipelines.summary import Summary

LOOK_EVERY_S: Final = 0.25
STOP_WITHIN_S: Final = 20.0
"""How long a micro-batch that is under way may go on after Ctrl-C; a second Ctrl-C ends it at once."""
CHECKPOINTS: Final = "flockmq-checkpoints"
_OUR_ERROR: Final = re.compile(r"\bflockmq\.[\w.]*\.[A-Z]\w*: (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What is common to all pipelines."""

    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the source and the sink: server, token, namespace, ca, ..."""
    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    """Folder of all checkpoints of this run; None: beside what the pipeline writes."""
    once: bool = False
    """Read what is there, then end."""
    for_s: float | None = None
    quiet: bool = False


class Job:
    """What a pipeline works with."""

    def __init__(self, pipeline: str, spark: SparkSession, values: Values, settings: RunSettings) -> None:
        from flockmq.spark.servers import Servers

        self.pipeline = pipeline
        self.spark = spark
        self.values = values
        self.settings = settings
        self.servers = Servers.from_options(settings.options)
        self.display = Display(quiet=settings.quiet)
        self.tallies: list[Tally] = []
        self.stopping = threading.Event()
        self._begun_s = time.monotonic()

    @property
    def once(self) -> bool:
        """Whether only what is there now is wanted."""
        return self.settings.once

    @property
    def elapsed_s(self) -> float:
        """Since the job began, without the start of Spark."""
        return time.monotonic() - self._begun_s

    # --- reading and writing ----------------------------------------------------------------------------------------

    def write_options(self) -> dict[str, str]:
        """Options of ``format("flockmq")`` that say where the cluster is: all that the sink needs."""
        return self.servers.options()

    def read_options(self) -> dict[str, str]:
        """The same, and what else was given for reading."""
        extra = {name: value for name, value in self.settings.options.items() if value}
        return {**extra, **self.servers.options()}

    def read_stream(self, **options: str) -> DataFrame:
        """A stream of durable topics."""
        return self.spark.readStream.format("flockmq").options(**{**self.read_options(), **options}).load()

    def read(self, **options: str) -> DataFrame:
        """What durable topics hold now."""
        return self.spark.read.format("flockmq").options(**{**self.read_options(), **options}).load()

    def publish(self, frame: DataFrame, name: str, **options: str) -> StreamingQuery:
        """Start a query that writes a stream back to topics, exactly once a partition."""
        return self.start(frame.writeStream.format("flockmq").options(**{**self.write_options(), **options}), name)

    def checkpoint(self, name: str, beside: str | None = None) -> str:
        """Folder of a query's checkpoint. It is what makes a second run go on where the first one ended."""
        if self.settings.checkpoint is not None:
            return f"{absolute(self.settings.checkpoint)}/{name}"
        if beside is not None:
            return f"{absolute(beside)}/_checkpoints/{name}"
        return absolute(f"{CHECKPOINTS}/{name}")

    def start(
        self, writer: DataStreamWriter, name: str, *, beside: str | None = None, every_ms: int = 0
    ) -> StreamingQuery:
        """Start a query with its checkpoint and trigger; ``beside`` names the folder that it writes to."""
        _activate(self.spark)
        writer = writer.queryName(name).option("checkpointLocation", self.checkpoint(name, beside))
        if self.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{every_ms} milliseconds").start()

    # --- following --------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """One line for people, on standard error."""
        self.display.say(text)

    def follow(self, *queries: StreamingQuery) -> list[Tally]:
        """Show progress until the queries end, by themselves or because the time is over; their tallies."""
        tallies = [Tally(query.name or self.pipeline) for query in queries]
        self.tallies += tallies
        try:
            while any(query.isActive for query in queries) and not self.is_over:
                _take(queries, tallies)
                self.display.show(tallies)
                self.stopping.wait(LOOK_EVERY_S)
            for query in queries:
                self._stop(query)
            _take(queries, tallies)
        finally:
            self.display.close()
            for query in queries:
                if query.isActive:
                    query.stop()
        for query in queries:
            problem = query.exception()
            if problem is not None:
                raise FlockError(plain(str(problem)))
        return tallies

    @property
    def is_over(self) -> bool:
        """Whether it was stopped, or its time is over."""
        for_s = self.settings.for_s
        return self.stopping.is_set() or (for_s is not None and self.elapsed_s >= for_s)

    def _stop(self, query: StreamingQuery) -> None:
        """Let a micro-batch that is under way end; what it would do twice after a restart is work, not data."""
        deadline_s = time.monotonic() + STOP_WITHIN_S
        before = query.lastProgress
        while query.isActive and time.monotonic() < deadline_s and query.status["isTriggerActive"]:
            now = query.lastProgress
            if now is not None and (before is None or now["timestamp"] != before["timestamp"]):
                break
            time.sleep(0.02)
        if query.isActive:
            query.stop()


def _take(queries: tuple[StreamingQuery, ...], tallies: list[Tally]) -> None:
    for query, tally in zip(queries, tallies, strict=True):
        last = query.lastProgress
        if last is not None:  # to have a hundred reports out of the JVM takes as long as a small micro-batch
            tally.add([last] if tally.is_next(last) else query.recentProgress)


def needs_spark() -> None:
    """Refuse with what to do where Spark isn't installed."""
    if find_spec("pyspark") is None:
        raise FlockError("Pipelines run on Spark, which isn't installed; get it with: pip install 'flockmq[spark]'")


def run_pipeline(pipeline: Pipeline, values: Values, settings: RunSettings) -> Summary:
    """Run a pipeline in a session of its own; its summary."""
    needs_spark()
    from flockmq.spark import session

    if settings.master and settings.remote:
        raise FlockError("--master starts a driver here and --remote uses one elsewhere; give one of them.")
    with _log_file() as log:
        try:
            with away_from_screen(log):
                spark = session.build(
                    f"flockmq {pipeline.name}",
                    master=settings.master,
                    remote=settings.remote,
                    conf=settings.conf,
                    light=pipeline.is_prompt,
                )
        except FlockError:
            raise
        except Exception as error:
            raise FlockError(f"Spark could not be started: {plain(str(error))}") from error
        try:
            job = Job(pipeline.name, spark, values, settings)
            with _signals(job):
                return pipeline.run(job)
        except FlockError:
            raise
        except Exception as error:
            if is_sparks(error):
                raise FlockError(f"Pipeline {pipeline.name} failed: {plain(str(error))}") from error
            raise
        finally:
            with contextlib.suppress(Exception):  # the driver may be gone already
                spark.stop()


def is_sparks(error: Exception) -> bool:
    """Whether an error came out of Spark rather than out of our own mistakes."""
    return any(kind.__module__.split(".")[0] in {"pyspark", "py4j", "grpc"} for kind in type(error).__mro__)


def plain(text: str) -> str:
    """The one sentence of a Spark error: ours if it was raised in a source or sink, else its first line."""
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1]).strip()
    first = next((line.strip() for line in text.splitlines() if line.strip()), "it did not say why")
    return first[:500]


@contextlib.contextmanager
def _log_file() -> Iterator[int]:
    """A file for what Spark prints; removed unless something went wrong."""
    handle, name = tempfile.mkstemp(prefix="flockmq-spark-", suffix=".log")
    try:
        yield handle
    except FlockError as error:
        raise FlockError(f"{str(error).rstrip('.')}. Spark's log is {name}") from error
    else:
        Path(name).unlink(missing_ok=True)
    finally:
        os.close(handle)


@contextlib.contextmanager
def away_from_screen(log: int) -> Iterator[None]:
    """Children started now (the JVM, and through it all workers) print into the log instead of our streams."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, original in zip((1, 2), kept, strict=True):
            os.dup2(original, number)
            os.close(original)


@contextlib.contextmanager
def _signals(job: Job) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the job gracefully, a second one at once. Spark's own handler would cancel its tasks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        if job.stopping.is_set():
            raise KeyboardInterrupt
        job.stopping.set()

    before: dict[int, Any] = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _activate(spark: SparkSession) -> None:
    """In a thread other than the one that made the session, Spark finds no sinks written in Python without this."""
    session = getattr(spark, "_jsparkSession", None)  # none over Spark Connect, which does not need it
    if session is not None:
        spark._jvm.SparkSession.setActiveSession(session)  # type: ignore[union-attr]
