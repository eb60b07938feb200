"""The job as a process: started from its checkpoints, killed with its JVM at once, never stopped in order.

```
 JobProcess.start --> python job.py (leader of a session) --> JVM --> Python workers
                                         kill -9: driver and JVM, at one moment; workers find out by themselves
```
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flockmq.testing.nodes import PREFIX, PURE

JOB = Path(__file__).with_name("job.py")
GONE_S_MAX = 30.0
LOG_CHARACTERS = 12_000
IMPATIENT = "Python worker failed to connect back"
"""Spark gives a worker ten seconds to start, whatever the machine does beside that."""
RESTARTS_MAX = 20


class JobProcess:
    """See the module."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.checkpoints = folder / "checkpoints"
        self._folder = folder
        self._scratch = folder / "scratch"
        self._log = folder / "job.log"
        self._settings = folder / "settings.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = 0
        self._scratch.mkdir(parents=True)
        conf = {"spark.local.dir": str(self._scratch)}
        self._settings.write_text(json.dumps({**settings, "checkpoints": str(self.checkpoints), "conf": conf}), "utf-8")

    def start(self) -> None:
        """Start it; it goes on where its checkpoints say."""
        assert self._process is None
        # Switches of tests are not for it.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX) or name == PURE}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(JOB), str(self._settings)],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def check(self) -> None:
        """Fail with what it said if it ended by itself; start it again if Spark had no patience with a busy machine."""
        assert self._process is not None
        if self._process.poll() is None:
            return
        said = self.log_tail()
        assert IMPATIENT in said, f"the job ended by itself:\n{said}"
        assert self._restarts < RESTARTS_MAX, f"the job can't start here:\n{said}"
        self._restarts += 1
        self.kill()
        self.start()

    def kill(self) -> None:
        """End driver and JVM in one moment, and wait until nothing of them is left."""
        if self._process is None:
            return
        session = self._process.pid
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)
        self._process.wait()
        self._process = None
        # A worker whose JVM is dead ends by itself: until then it may stage what nobody will commit.
        deadline = time.monotonic() + GONE_S_MAX
        while left := _processes_of(session):
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def batches(self, query: str, which: str) -> int:
        """The latest micro-batch in a query's checkpoint that is planned (``offsets``) or done (``commits``); -1."""
        try:
            names = [one.name for one in (self.checkpoints / query / which).iterdir()]
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def log_tail(self) -> str:
        """The end of what it said."""
        return self._log.read_text("utf-8", "replace")[-LOG_CHARACTERS:] if self._log.exists() else ""


def _processes_of(session: int) -> list[int]:
    """Processes of a session that live."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(folder.name))
    return found
