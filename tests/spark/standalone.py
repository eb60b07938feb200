"""A Spark standalone cluster on loopback, from the jars that come with pyspark: a master and small workers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pyspark

if TYPE_CHECKING:
    from types import TracebackType

START_S: Final = 60.0
_MASTER: Final = re.compile(r"Starting Spark master at (spark://[\w.:]+)")
_REGISTERED: Final = "Successfully registered with master"


def quick_options(java_home: Path) -> str:
    """What makes a JVM start sooner: less compiling, and the classes that the tests' session left, if it did."""
    from flockmq.spark.session import Archive

    archive = Archive(java_home)
    shared = archive.option() if archive.path.is_file() else ""
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {shared}".rstrip()


class Standalone:
    """A context manager. Everything it writes is in its folder."""

    def __init__(self, folder: Path, java_home: Path, workers: int = 2) -> None:
        self.folder = folder
        self.url = ""
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": quick_options(java_home),
        }

    def __enter__(self) -> Self:
        try:
            log = self._start("master", "org.apache.spark.deploy.master.Master")
            self.url = self._wait(log, _MASTER)[1]
            logs = [
                self._start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", self.url, *self._size(number))
                for number in range(self._workers)
            ]
            for log in logs:
                self._wait(log, re.compile(_REGISTERED))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all of it, executors too."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def executors(self, number: int) -> list[Path]:
        """Folders of the executors that a worker has run."""
        return sorted((self.folder / f"work{number}").glob("app-*/*"))

    def _size(self, number: int) -> list[str]:
        return ["--cores", "1", "--memory", "600m", "--work-dir", str(self.folder / f"work{number}")]

    def _start(self, name: str, kind: str, *arguments: str) -> Path:
        log = self.folder / f"{name}.log"
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(program), kind, *arguments, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True
            )
        self._processes.append(process)
        return log

    def _wait(self, log: Path, wanted: re.Pattern[str]) -> re.Match[str]:
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            found = wanted.search(log.read_text("utf-8", "replace"))
            if found is not None:
                return found
            time.sleep(0.05)
        raise AssertionError(
            f"{log.name} does not say {wanted.pattern!r}:\n{log.read_text('utf-8', 'replace')[-2000:]}"
        )
