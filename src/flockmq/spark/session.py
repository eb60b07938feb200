"""One way to a Spark session, with all that FlockMQ's source, sink and pipelines want set.

```
 build(name) --> remote?   Spark Connect: only settings that a session may change
            |--> master?   spark:// k8s:// yarn: settings of SQL; the machine's own are left to the cluster
            `--> local[*]  all of it: loopback, no UI, checkpoints straight to disk, few shuffle partitions
```
Whatever ``conf`` names wins. ``light`` is for small micro-batches: the JVM compiles less, which leaves the processor to
them. ``quick`` is that, for tests, and its classes come from an archive that the first such session leaves when the
program ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flockmq.errors import FlockError
from flockmq.spark import home, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS_MAX: Final = 8
ARCHIVE_S: Final = 60.0
"""How long a program that ends waits for its JVM to write the archive."""
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

ANYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""A session may change these, so they are set over Spark Connect, too."""

WITH_A_DRIVER: Final = {
    # Data to and from Python goes through a file instead of loopback TCP: half of a small micro-batch's time.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

ARROW_OPTIONS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Arrow asks at every value whether it lies within its buffer and is there; Spark's own code has asked already. A tenth
of the time that the JVM takes for a large table."""

LIGHT_COMPILER: Final = "-XX:TieredStopAtLevel=1"
LIGHT_COLLECTOR: Final = "-XX:+UseSerialGC"
"""A micro-batch of some rows runs much code a few times, most of it to plan. Compiling that well takes a machine with
two cores minutes, in which alerts come a third later; and it would be for nothing where Python does the work."""

LOCALLY: Final = {
    # What comes out of Python for a large table is read in pieces of this size; each one wakes a process and a thread.
    "spark.buffer.size": "1048576",
    # Workers are forked with all that they need loaded: a third of a small micro-batch's time.
    "spark.python.daemon.module": "flockmq.spark.daemon",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # The usual one starts a program for each small file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def build(
    name: str,
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] = {},
    light: bool = False,
    quick: bool = False,
) -> SparkSession:
    """A session: at ``remote`` (``sc://host``), on ``master``, or in this process on all cores."""
    if remote is not None and master is not None:
        raise FlockError("A session is either on a master or remote (Spark Connect): give one of them")
    if remote is not None and not remote.startswith("sc://"):
        raise FlockError(f"{remote!r} is no Spark Connect address; write it like sc://spark.example.com:15002")
    builder = _builder().appName(name)
    if remote is not None:
        for key, value in {**ANYWHERE, **conf}.items():
            builder = builder.config(key, value)
        return builder.remote(remote).getOrCreate()

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    """Under spark-submit the JVM is there already, and knows its master."""
    if master is None and not is_submitted:
        master = conf.get("spark.master", "local[*]")
    settings = settings_for(master, conf)
    archive = None
    if not is_submitted:
        if master is not None and master.startswith("local"):
            home.use()
        os.environ["JAVA_HOME"] = str(java.find())
        if light or quick:
            settings[_JAVA_OPTIONS] = lightened(settings.get(_JAVA_OPTIONS, ""))
        if quick:
            archive = Archive(Path(os.environ["JAVA_HOME"]))
            settings[_JAVA_OPTIONS] = _joined(settings[_JAVA_OPTIONS], archive.option())
    _set_environment(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = (builder if master is None else builder.master(master)).getOrCreate()
    if archive is not None:
        archive.keep_at_exit()
    if master is not None and master.startswith("local"):
        _write_no_sums(session)
    return session


def _write_no_sums(session: SparkSession) -> None:
    """Hadoop writes a file with a checksum beside every local one, and starts a program to set the mode of each."""
    context = session.sparkContext
    hadoop: Any = context._jvm.org.apache.hadoop.fs.FileSystem  # type: ignore[union-attr]
    hadoop.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)


def settings_for(master: str | None, conf: Mapping[str, str] = {}) -> dict[str, str]:
    """What a session with a driver here is given; ``master`` None when it was submitted to one."""
    settings = {**ANYWHERE, **WITH_A_DRIVER}
    if master is not None and master.startswith("local"):
        settings |= LOCALLY
        # A task costs more than it brings with little data; Spark's own figure is 200.
        settings["spark.sql.shuffle.partitions"] = str(min(os.cpu_count() or 1, SHUFFLE_PARTITIONS_MAX))
        return {**settings, **conf, _JAVA_OPTIONS: _joined(ARROW_OPTIONS, conf.get(_JAVA_OPTIONS))}
    return {**settings, **conf}


def _builder() -> SparkSession.Builder:
    try:
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise FlockError("PySpark is not installed; run `pip install flockmq[spark]`") from error
    # It writes every failed query as a line of JSON with its whole stack, besides the exception that says the same.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # A new one each time: that at SparkSession.builder remembers what earlier sessions were given.
    return SparkSession.Builder()


def _set_environment(master: str | None) -> None:
    """Loopback locally; workers run the Python that runs this, where they are on a machine like this one."""
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # no other machine needs to reach it
    if master is not None and master.startswith(("local", "spark://")):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def lightened(options: str) -> str:
    """Java options for a light session. Of two compilers' settings the later counts; two collectors a JVM refuses."""
    return _joined(LIGHT_COMPILER, None if "GC" in options else LIGHT_COLLECTOR, options)


def _joined(*options: str | None) -> str:
    return " ".join(one for one in options if one)


class Archive:
    """Classes of the JVM as it left them last time (AppCDS): made by the first session, used by later ones."""

    def __init__(self, home: Path) -> None:
        import pyspark

        # The archive is of use to just this Java with just these jars; the JVM checks that, too.
        place = os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent)
        identity = f"{home} {pyspark.__version__} {place}"
        self.path = java.cache_folder() / f"spark-classes-{sha256(identity.encode()).hexdigest()[:12]}.jsa"
        self._draft: Path | None = None

    def option(self) -> str:
        """The JVM's option: use the archive, or leave one."""
        if self.path.is_file():
            return f"-XX:SharedArchiveFile={self.path} -Xlog:cds=off -Xlog:cds+dynamic=off"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        self._draft = self.path.with_suffix(f".{os.getpid()}")
        return f"-XX:ArchiveClassesAtExit={self._draft} -Xlog:cds=off -Xlog:cds+dynamic=off"

    def keep_at_exit(self) -> None:
        """When the program ends, wait for the JVM to write the archive; a half of one is of no use."""
        if self._draft is not None:
            atexit.register(self._keep, self._draft)
            self._draft = None

    def _keep(self, draft: Path) -> None:
        from pyspark import SparkContext

        process = getattr(SparkContext._gateway, "proc", None)
        if process is None:
            return
        try:
            process.stdin.close()  # the JVM ends when its standard input is closed
            process.wait(ARCHIVE_S)
            draft.replace(self.path)
        except Exception:
            draft.unlink(missing_ok=True)
