"""Clusters of real ``flockmq start`` processes on loopback, for tests: start, kill, pause, ask.

```python
with NodeCluster(tmp_path, 3) as cluster:
    cluster.wait(lambda: cluster.sees_all())
    cluster.nodes[0].kill()
```
Every node has a folder of its own that outlives its process, free ports that it keeps over restarts, and the cluster's
own cookie. A process ends with the cluster at the latest.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self

from flockmq.admin.durable_model import TopicRequest
from flockmq.client.admin import AdminClient, UnreachableError
from flockmq.cluster.policy import SEATS, VOTERS_MAX
from flockmq.errors import ApiError, FlockError
from flockmq.security import credentials
from flockmq.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from flockmq.admin.durable_model import DataTopic

HOST: Final = "127.0.0.1"
WAIT_S_MAX: Final = 30.0
STOP_S_MAX: Final = 15.0
LOG_LINES: Final = 15
PREFIX: Final = "FLOCKMQ_"
PURE: Final = "FLOCKMQ_PURE"
"""The nodes don't inherit settings of the test's environment, but for the build that is to run."""


class NodeProcess:
    """One node."""

    def __init__(
        self,
        folder: Path,
        name: str,
        ports: tuple[int, int, int],
        options: Sequence[str],
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        """``ports``: MQTT, API, other nodes. ``prefix`` goes before the command, such as ``ip netns exec ...``."""
        self.folder = folder
        self.name = name
        self.mqtt_port, self.api_port, self.port = ports
        self.options = list(options)
        self.log_file = folder / "node.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(PREFIX) or name == PURE},
            **environment,
            "FLOCKMQ_CREDENTIALS": str(folder / "credentials.toml"),
        }
        self._prefix = list(prefix)
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start it; ``wait_ready`` tells when it serves."""
        (self.folder / "data" / "ports.json").unlink(missing_ok=True)  # a process that was killed leaves it behind
        command = [
            *(*self._prefix, sys.executable, "-m", "flockmq", "start", f"--name={self.name}"),
            *(f"--data-dir={self.folder / 'data'}", f"--mqtt-port={self.mqtt_port}", f"--api-port={self.api_port}"),
            *(f"--port={self.port}", "--set=listeners.ws.default.enabled=false", "--allow-anonymous", *self.options),
        ]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.poll() is None

    @property
    def is_serving(self) -> bool:
        """Whether it has told its ports, which it does once it serves."""
        return self.is_running and (self.folder / "data" / "ports.json").exists()

    def wait_ready(self) -> None:
        """Wait until it serves; FlockError, with what it said, when it ends instead."""
        until = time.monotonic() + WAIT_S_MAX
        while not self.is_serving:
            if not self.is_running or time.monotonic() > until:
                raise FlockError(f"{self.name} does not serve:\n{self.log_tail()}")
            time.sleep(0.02)

    def admin(self, host: str = HOST) -> AdminClient:
        """Its admin API, with the token that it made."""
        url = f"http://{host}:{self.api_port}"
        file = str(self.folder / "credentials.toml")
        return AdminClient(url, credentials.load(url, {"FLOCKMQ_CREDENTIALS": file}))

    def ports(self) -> dict[str, object]:
        """What it says about its ports."""
        found: dict[str, object] = json.loads((self.folder / "data" / "ports.json").read_text("utf-8"))
        return found

    def kill(self) -> None:
        """End it as a crash would."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """End it in order; its exit code."""
        self._signal(signal.SIGTERM)
        assert self.process is not None
        return self.process.returncode

    def pause(self) -> None:
        """Let it stand still."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Have no process left."""
        if self.is_running:
            self.kill()

    def log_tail(self) -> str:
        """The last lines of its log."""
        lines = self.log_file.read_text("utf-8", "replace").splitlines() if self.log_file.exists() else []
        return "\n".join(lines[-LOG_LINES:])


class NodeCluster:
    """Some nodes that share a cookie; a context manager that starts them, the first one first."""

    def __init__(
        self,
        folder: Path,
        count: int,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.cookie = secrets.token_hex(32)
        variables = {"FLOCKMQ_COOKIE": self.cookie, **(environment or {})}
        ports = free_ports(3 * count)
        self.nodes: list[NodeProcess] = []
        for number in range(count):
            own = ports[3 * number : 3 * number + 3]
            join = [f"--join={HOST}:{ports[2]}"] if number else []
            arguments = [f"--host={HOST}", "--set=cluster.profile=local", *join, *options]
            name = f"n{number + 1}@{HOST}"
            self.nodes.append(
                NodeProcess(folder / f"n{number + 1}", name, (own[0], own[1], own[2]), arguments, variables)
            )

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                node.wait_ready()
            self.wait(self.sees_all, "all nodes to see each other")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()

    def running(self) -> list[NodeProcess]:
        """Nodes with a process."""
        return [node for node in self.nodes if node.is_running]

    def views(self) -> dict[str, dict[str, tuple[str, bool]]]:
        """How each running node sees the others: state, and whether there is a link."""
        found: dict[str, dict[str, tuple[str, bool]]] = {}
        for node in self.running():
            try:
                members = node.admin().cluster().members
            except UnreachableError:
                continue
            found[node.name] = {member.name: (member.state, member.linked) for member in members}
        return found

    def sees_all(self) -> bool:
        """Whether all running nodes see each other alive and linked, and no other node alive."""
        names = {node.name for node in self.running()}
        views = self.views()
        return len(views) == len(names) and all(
            {name for name, (state, linked) in view.items() if state == "alive" and linked} == names
            and not any(state == "suspect" for state, _ in view.values())
            for view in views.values()
        )

    def create_topic(self, name: str, **fields: Any) -> DataTopic:
        """Declare a durable topic; wait until all running nodes know it, and all of its partitions have leaders."""
        made = self.running()[0].admin().create_topic(TopicRequest(name=name, **fields))
        self.wait_led(made)
        return made

    def wait_led(self, topic: DataTopic, seconds: float = WAIT_S_MAX) -> None:
        """Wait until all running nodes know a topic, and all of its partitions have leaders."""
        self.wait(
            lambda: all(_knows_leaders(node, topic) for node in self.running()), f"leaders of {topic.name}", seconds
        )

    def wait_settled(self) -> None:
        """Wait until cluster state has every running node alive, a majority of them is needed to change it, and every
        copy and leader is where it belongs.

        A node that answers again is not yet one that gets partitions: the cores say so a moment later, and what was
        made meanwhile has fewer copies and moves then. Nor does it have a vote at once: the first node decides alone
        until then.
        """
        admin = self.running()[0].admin()
        self.wait(lambda: self._alive_in_state() == len(self.running()), "all nodes to be in cluster state")
        self.wait(self._has_voters, "as many voters as belong to so many nodes")
        self.wait(lambda: admin.rebalance_progress().settled, "copies and leaders to be where they belong")

    def _alive_in_state(self) -> int:
        dumped = self.running()[0].admin().dump()
        return sum(1 for node in dumped["nodes"] if node["state"] == "ALIVE" and node["api"])

    def _has_voters(self) -> bool:
        cluster = self.running()[0].admin().cluster()
        cores = sum(1 for member in cluster.members if member.state == "alive" and member.role == "core")
        return cluster.decisions is not None and len(cluster.decisions.voters) >= SEATS[min(cores, VOTERS_MAX)]

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = WAIT_S_MAX) -> float:
        """Wait until something holds; how long it took. FlockError, with the nodes' logs, when it does not."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                logs = "\n".join(f"--- {node.name}\n{node.log_tail()}" for node in self.nodes)
                raise FlockError(f"Waited {seconds:g} s for {what} in vain. Views: {self.views()}\n{logs}")
            time.sleep(0.05)
        return time.monotonic() - began


def _knows_leaders(node: NodeProcess, topic: DataTopic) -> bool:
    """Whether a node knows a topic, and leaders of all of its partitions."""
    try:
        partitions = node.admin().topic_partitions(topic.name, namespace=topic.namespace)
    except ApiError:
        return False
    return all(one.leader is not None for one in partitions)
