"""A broker of one's own on this machine, for as long as it is needed: what the demo and the benchmarks run against.

```
 start --> python -m flockmq start --data-dir TEMPORARY --mqtt-port 0 ... --> ports.json --> serving
 stop  --> SIGINT --> it says goodbye to its clients and ends
```
It runs in a session of its own, so Ctrl-C in the terminal reaches only the program that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from flockmq.errors import FlockError

START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 15.0
LOG_LINES: Final = 8


class LocalBroker:
    """A broker process on loopback with data that is thrown away; a context manager."""

    def __init__(self, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """``arguments`` go to ``flockmq start``; ports that are not named are free ones."""
        self._folder = tempfile.TemporaryDirectory(prefix="flockmq-")
        folder = Path(self._folder.name)
        self._data = folder / "data"
        self._log = folder / "broker.log"
        self.ports: dict[str, int] = {}
        """By kind: ``tcp``, ``ws``, ``tls``, ``wss``, ``admin``."""
        named = {argument.partition("=")[0] for argument in arguments}
        free = [f"{flag}=0" for flag in ("--mqtt-port", "--ws-port", "--api-port", "--port") if flag not in named]
        command = [sys.executable, "-m", "flockmq", "start", f"--data-dir={self._data}", *free, *arguments]
        # Its admin token is of no use tomorrow, so it stays out of the user's own file.
        variables = {**os.environ, "FLOCKMQ_CREDENTIALS": str(folder / "credentials.toml"), **(environment or {})}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, start_new_session=True
            )
        self.pid = self._process.pid

    def start(self) -> LocalBroker:
        """Wait until it serves; FlockError, with what it said, when it does not."""
        try:
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def __enter__(self) -> LocalBroker:
        return self if self.ports else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether it still serves."""
        return self._process.poll() is None

    def log_tail(self) -> str:
        """The last lines of its log."""
        with contextlib.suppress(OSError):
            return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])
        return ""

    def close(self) -> int:
        """Stop it in order, or at once if it does not; its exit code."""
        if self.running:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
        code = self._process.wait()
        self._folder.cleanup()
        return code

    def _wait(self) -> None:
        until = time.monotonic() + START_S_MAX
        while not self._serving():
            if not self.running:
                raise FlockError(f"The broker did not start:\n{self.log_tail()}")
            if time.monotonic() > until:
                raise FlockError(f"The broker was not ready after {START_S_MAX:g} s:\n{self.log_tail()}")
            time.sleep(0.02)

    def _serving(self) -> bool:
        """Whether it has told its ports and answers on the first of them."""
        try:
            told = json.loads((self._data / "ports.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        for entry in reversed(told["listeners"]):
            self.ports[entry["kind"]] = entry["port"]
        for entry in told.get("admin", []):
            self.ports["admin"] = entry["port"]
        try:
            with socket.create_connection(("127.0.0.1", self.ports["tcp"]), timeout=1):
                return True
        except OSError:
            return False


def port_or_zero(port: int) -> int:
    """The port if no program on this machine has it, else 0: any free one."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError:
            if family == socket.AF_INET:
                return 0
    return port
