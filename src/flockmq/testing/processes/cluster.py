"""Starts, kills, pauses and restarts the processes of a small cluster on this machine.

```
 ProcessCluster(folder) --> node 1: folder/1 (data), folder/1.log (what it says), two ports that stay the same
                        --> node 2 ...
```
Ports are reserved here by sockets that are bound but never listen: a process can be started again on its own port, and
a call to one that is dead is refused at once, as on another machine. The processes end when this one does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

HOST: Final = "127.0.0.1"
END_S_MAX: Final = 30


class ProcessCluster:
    """Nodes 1 to ``nodes``; none runs until it is started. A context manager that ends them all."""

    def __init__(self, folder: Path, nodes: int = 3, groups: int = 6, options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.nodes = range(1, nodes + 1)
        self.groups = groups
        self._options = options
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._reserved = ExitStack()
        self._link_ports = {node: self._reserve() for node in self.nodes}
        self._client_ports = {node: self._reserve() for node in self.nodes}

    def __enter__(self) -> ProcessCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in list(self._processes):
            self.kill(node)
        self._reserved.close()

    def address(self, node: int) -> tuple[str, int]:
        """Where clients call a node."""
        return HOST, self._client_ports[node]

    def data(self, node: int) -> Path:
        """A node's data folder."""
        return self.folder / str(node)

    def is_running(self, node: int) -> bool:
        """Whether the node's process is there; a paused one is."""
        process = self._processes.get(node)
        return process is not None and process.poll() is None

    def start(self, node: int) -> None:
        """Start a node that does not run. It answers its clients as soon as it can."""
        assert not self.is_running(node), f"node {node} runs already"
        peers = ",".join(f"{peer}:{self._link_ports[peer]}" for peer in self.nodes)
        command = [sys.executable, "-m", "flockmq.testing.processes.server"]
        command += ["--node", str(node), "--peers", peers, "--client-port", str(self._client_ports[node])]
        command += ["--data", str(self.data(node)), "--groups", str(self.groups), *self._options]
        with (self.folder / f"{node}.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                command, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    def start_all(self) -> None:
        """Start every node."""
        for node in self.nodes:
            self.start(node)

    def kill(self, node: int) -> None:
        """kill -9: the process gets no chance to finish anything."""
        self._end(node, signal.SIGKILL)

    def stop(self, node: int) -> int:
        """Ask the process to stop; its exit code."""
        return self._end(node, signal.SIGTERM)

    def _end(self, node: int, number: signal.Signals) -> int:
        process = self._processes.pop(node)
        process.send_signal(number)
        assert process.stdin is not None
        process.stdin.close()
        return process.wait(END_S_MAX)

    def pause(self, node: int) -> None:
        """The process stands still, its connections stay."""
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """It goes on as if nothing had been."""
        self._processes[node].send_signal(signal.SIGCONT)

    def said(self, node: int) -> str:
        """All that a node's processes printed: empty while all is well."""
        path = self.folder / f"{node}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def check(self) -> None:
        """FlockError when a process ended by itself."""
        for node, process in self._processes.items():
            if process.poll() is not None:
                raise FlockError(f"Node {node} ended by itself ({process.returncode}): {self.said(node)[-4_000:]}")

    def pin(self, node: int, processors: Sequence[int]) -> None:
        """Keep a node on these processors, where the system can do that."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._processes[node].pid, processors)

    def _reserve(self) -> int:
        reserved = self._reserved.enter_context(socket.socket())
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((HOST, 0))
        return int(reserved.getsockname()[1])
