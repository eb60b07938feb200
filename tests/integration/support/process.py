"""A broker as a process of its own, started and asked by command lines as people do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S = 60
"""Longest wait for something that must happen; a shared machine may be slow."""
PROGRAM = (sys.executable, "-m", "flockmq")
FREE_PORTS = ("--mqtt-port", "0", "--ws-port", "0", "--api-port", "0", "--port", "0")


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """This process's environment without settings, with all files of the user below ``folder``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOCKMQ_")}
    if "FLOCKMQ_PURE" in os.environ:
        kept["FLOCKMQ_PURE"] = os.environ["FLOCKMQ_PURE"]
    own = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"), "XDG_DATA_HOME": str(folder / "data")}
    return kept | own | variables


def flockmq(folder: Path, *arguments: str, stdin: bytes = b"", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        env=environment(folder, **variables),
        timeout=WAIT_S,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


class BrokerProcess:
    """``flockmq start``, or that of ``program``; its log is read as it comes. A context manager that stops it."""

    def __init__(self, folder: Path, *arguments: str, program: str = "", **variables: str) -> None:
        self.folder = folder
        self.log: list[dict[str, Any]] = []
        self.other_lines: list[str] = []
        self._arrived = threading.Condition()
        self.process = subprocess.Popen(
            [*((program,) if program else PROGRAM), "start", *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment(folder, **variables),
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.wait()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._arrived:
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.other_lines.append(line)
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()

    def until(self, event: str, matches: Callable[[dict[str, Any]], bool] = lambda line: True) -> dict[str, Any]:
        """Wait for an event in the log."""

        def find() -> dict[str, Any] | None:
            return next((line for line in self.log if line["event"] == event and matches(line)), None)

        with self._arrived:
            found = self._arrived.wait_for(lambda: find() or self.process.poll() is not None, WAIT_S)
        line = find()
        assert line is not None, f"no {event} ({found}) in {self.log} {self.other_lines}"
        return line

    def ports(self) -> dict[str, Any]:
        """What the broker says about where it listens, once it is ready."""
        ready = self.until("ready")
        ports: dict[str, Any] = json.loads(Path(ready["data_dir"], "ports.json").read_text())
        return ports

    def port(self, name: str = "tcp:default") -> int:
        """The port of a listener."""
        return next(int(one["port"]) for one in self.ports()["listeners"] if one["name"] == name)

    @property
    def server(self) -> str:
        """Address of its admin API."""
        return f"http://127.0.0.1:{self.ports()['admin'][0]['port']}"

    def ask(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run a command against its admin API."""
        return flockmq(self.folder, *arguments, stdin=stdin, FLOCKMQ_SERVER=self.server)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; the exit code."""
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code
