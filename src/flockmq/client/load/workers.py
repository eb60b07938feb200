"""Generator processes and the pipe to each: one line of JSON a message, both ways.

A worker is started as ``python -m flockmq.client.load.worker``; it gets its share of the plan on standard input
and reports on standard output. Closing its input ends it, so none outlives the process that started it.
"""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO

import msgspec

from flockmq.client.load.engine import Progress
from flockmq.client.load.histogram import Histogram
from flockmq.client.load.plan import Load, Target
from flockmq.errors import FlockError


class Order(msgspec.Struct, kw_only=True):
    """The first line to a worker: its share of the plan."""

    target: Target
    load: Load
    share: int
    shares: int
    cpus: tuple[int, ...] = ()


class Word(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of a worker's report."""

    ready: bool = False
    error: str = ""
    progress: Progress | None = None
    last: bool = False
    buckets: dict[int, int] = msgspec.field(default_factory=dict)
    highest_ns: int = 0


class Workers:
    """All generator processes of one run."""

    def __init__(self, target: Target, load: Load, processes: int, cpus: tuple[int, ...]) -> None:
        self._selector = selectors.DefaultSelector()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._shares = [Progress(all_sent=False) for _ in range(processes)]
        self._latency = Histogram()
        self._ready = 0
        self._ended = 0
        for share in range(processes):
            order = Order(target=target, load=load, share=share, shares=processes, cpus=cpus)
            self._spawn(share, order)

    def __enter__(self) -> Workers:
        try:
            self._until(lambda: self._ready == len(self._processes))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Let all publish at once."""
        self._tell(b"go\n")

    def stop(self) -> None:
        """Let all stop publishing."""
        self._tell(b"stop\n")

    def wait(self, seconds: float) -> list[Progress]:
        """Listen for a while; what is known of each worker then."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._listen(left)
        return self._shares

    def end(self) -> tuple[list[Progress], Histogram]:
        """Ask for the last figures."""
        self._tell(b"end\n")
        self._until(lambda: self._ended == len(self._processes))
        return self._shares, self._latency

    def close(self) -> None:
        """End all workers: they leave when their input closes."""
        self._selector.close()
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _spawn(self, share: int, order: Order) -> None:
        command = [sys.executable, "-m", "flockmq.client.load.worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own module
        self._processes.append(process)
        if process.stdin is None or process.stdout is None:
            raise FlockError("A generator process has no pipe")
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.flush()
        self._selector.register(process.stdout, selectors.EVENT_READ, share)

    def _tell(self, line: bytes) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.write(line)
                process.stdin.flush()

    def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._listen(1.0)

    def _listen(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
            line = stream.readline()
            if not line:
                raise FlockError("A generator process ended before its work was done; look at its messages above")
            self._hear(key.data, msgspec.json.decode(line, type=Word))

    def _hear(self, share: int, word: Word) -> None:
        if word.error:
            raise FlockError(word.error)
        self._ready += word.ready
        if word.progress is not None:
            self._shares[share] = word.progress
        if word.last:
            self._ended += 1
            self._latency.add(Histogram(word.buckets, word.highest_ns))
