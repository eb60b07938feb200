"""A cluster whose nodes all run on this machine: what ``flockmq up`` starts, ``ps`` shows and ``down`` stops.

```
 DATA_DIR/cluster.json   the nodes: name, process id, ports
          n1/ n2/ ...    each node's own data folder, with its log in node.log
```
Every node is a ``flockmq start`` process in a session of its own. The first one forms the cluster unless it has been
there before, the others join it. A later reader of ``cluster.json`` checks a process id against the lock of the
node's data folder: a number that the system has given to another process meanwhile is never signalled.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flockmq.client.load.local import port_or_zero
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STATE_FILE: Final = "cluster.json"
LAST_FILE: Final = "last.json"
"""The same of a cluster that was stopped: how many nodes it had, and on which ports."""
START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 15.0
LOG_LINES: Final = 8
WS_STEP: Final = 2
"""Nodes' WebSocket ports are two apart: 8084 is the usual one of secure WebSocket."""
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """One node of a local cluster."""

    name: str
    folder: str
    pid: int
    mqtt_port: int
    ws_port: int
    api_port: int
    port: int
    options: tuple[str, ...] = ()
    """Further options of its command line: used again when the node is restarted."""

    @property
    def api_url(self) -> str:
        """Its admin API."""
        return f"http://{HOST}:{self.api_port}"

    @property
    def log_file(self) -> Path:
        """Its log."""
        return Path(self.folder) / "node.log"

    def is_running(self) -> bool:
        """Whether its broker holds its data folder."""
        return holder(Path(self.folder)) == self.pid

    def is_serving(self) -> bool:
        """Whether it has told its ports, which it does once it serves."""
        return self.is_running() and (Path(self.folder) / "ports.json").exists()

    def log_tail(self) -> str:
        """The last lines of its log."""
        with contextlib.suppress(OSError):
            lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n".join(lines[-LOG_LINES:])
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """First ports; node after node takes the next ones."""

    mqtt: int = 1883
    ws: int = 8083
    api: int = 18083
    node: int = 16000


PORT_TAKEN: Final = "another program uses it"
"""Part of a node's error when another program has its port."""
SHIFT: Final = 100


def usable_ports(count: int, tried: Ports | None = None) -> Ports:
    """The usual ports, or others near them when a program has one of those; beyond the ``tried`` ones if given."""
    usual = Ports()
    first = 0 if tried is None else tried.mqtt - usual.mqtt + SHIFT
    for shift in range(first, 100 * SHIFT, SHIFT):
        ports = Ports(mqtt=usual.mqtt + shift, ws=usual.ws + shift, api=usual.api + shift, node=usual.node + shift)
        steps = range(count)
        wanted = [base + step for base in (ports.mqtt, ports.api, ports.node) for step in steps]
        wanted += [ports.ws + WS_STEP * step for step in steps]
        free = len(set(wanted)) == len(wanted) and all(port_or_zero(port) for port in wanted)
        if free and all(_is_free_for_datagrams(ports.node + step) for step in steps):
            return ports
    raise FlockError(f"No ports are free for {count} nodes.")


def _is_free_for_datagrams(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def holder(folder: Path) -> int:
    """Process id of the broker that holds a data folder now; 0 when none does."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else 0
    else:
        return 0
    finally:
        os.close(descriptor)


def read_cluster(data_dir: Path, name: str = STATE_FILE) -> list[LocalNode]:
    """The nodes that were started there; none when nothing was. ``LAST_FILE``: those that were stopped there last."""
    try:
        told = json.loads((data_dir / name).read_text("utf-8"))
        return [LocalNode(**{**node, "options": tuple(node.get("options", ()))}) for node in told["nodes"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FlockError(
            f"{data_dir / name} can't be read ({error}); stop the nodes by hand and remove that file."
        ) from None


def ports_of(nodes: Sequence[LocalNode]) -> Ports:
    """The first ports of a cluster; the usual ones when it has no nodes."""
    if not nodes:
        return Ports()
    first = nodes[0]
    return Ports(mqtt=first.mqtt_port, ws=first.ws_port, api=first.api_port, node=first.port)


def start_cluster(
    data_dir: Path, count: int, ports: Ports, options: Sequence[str], environment: Mapping[str, str] | None = None
) -> list[LocalNode]:
    """Start ``count`` nodes and write down which; they are not ready yet, see ``wait_ready``."""
    running = [node.name for node in read_cluster(data_dir) if node.is_running()]
    if running:
        raise FlockError(
            f"{', '.join(running)} run in {data_dir} already; see `flockmq ps`, stop them with `flockmq down`, or give "
            "another --data-dir."
        )
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    nodes = [start_node(data_dir, number, ports, options, environment) for number in range(1, count + 1)]
    write_cluster(data_dir, nodes)
    return nodes


def start_ended(
    data_dir: Path, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> list[LocalNode]:
    """Start those nodes of a cluster that have ended, while others of it run: where they were, as they were started.

    None when all run, or none does.
    """
    nodes = read_cluster(data_dir)
    ended = {node.name for node in nodes if not node.is_running()}
    if len(ended) == len(nodes):
        return []
    for at, node in enumerate(nodes):
        if node.name in ended:
            ports = Ports(
                mqtt=node.mqtt_port - at,
                ws=node.ws_port - WS_STEP * at,
                api=node.api_port - at,
                node=node.port - at,
            )
            added = [one for one in options if one not in node.options]
            nodes[at] = start_node(data_dir, at + 1, ports, [*node.options, *added], environment)
            write_cluster(data_dir, nodes)
    return [node for node in nodes if node.name in ended]


def write_cluster(data_dir: Path, nodes: list[LocalNode]) -> None:
    """Replace the list of nodes in one step. It is for its owner alone: settings may be secrets."""
    partial = data_dir / f"{STATE_FILE}.partial"
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps({"nodes": [asdict(node) for node in nodes]}, indent=2) + "\n")
    partial.replace(data_dir / STATE_FILE)


def start_node(
    data_dir: Path, number: int, ports: Ports, options: Sequence[str], environment: Mapping[str, str] | None = None
) -> LocalNode:
    """Start the node with this number, counted from 1."""
    folder = data_dir / f"n{number}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"n{number}@{HOST}"
    step = number - 1
    mqtt, ws, api, port = ports.mqtt + step, ports.ws + WS_STEP * step, ports.api + step, ports.node + step
    command = [
        *(sys.executable, "-m", "flockmq", "start", f"--name={name}", f"--data-dir={folder}", f"--host={HOST}"),
        *(f"--mqtt-port={mqtt}", f"--ws-port={ws}", f"--api-port={api}", f"--port={port}"),
        *([f"--join={HOST}:{ports.node}"] if number > 1 else []),
        *("--set=cluster.profile=local", *options),
    ]
    with (folder / "node.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    return LocalNode(
        name=name,
        folder=str(folder),
        pid=process.pid,
        mqtt_port=mqtt,
        ws_port=ws,
        api_port=api,
        port=port,
        options=tuple(options),
    )


def wait_ready(nodes: Sequence[LocalNode]) -> Iterator[LocalNode]:
    """Each node as it begins to serve; FlockError, with what it said, when one does not."""
    waiting = list(nodes)
    until = time.monotonic() + START_S_MAX
    while waiting:
        for node in [one for one in waiting if one.is_serving()]:
            waiting.remove(node)
            yield node
        for node in waiting:
            if _has_ended(node.pid):
                raise FlockError(f"{node.name} did not start:\n{node.log_tail()}")
            if time.monotonic() > until:
                raise FlockError(f"{node.name} was not ready after {START_S_MAX:g} s:\n{node.log_tail()}")
        time.sleep(0.05)


def _is_our_child(pid: int) -> bool:
    """Whether it is a process that we started and that still runs: its number can't be that of another."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _has_ended(pid: int) -> bool:
    """Whether a process is no more; a child of ours that ended is taken note of."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def stop_cluster(data_dir: Path) -> Iterator[tuple[LocalNode, bool]]:
    """Stop all nodes in order; each with whether it ended by itself. The data stays, and where they were."""
    yield from stop_nodes(read_cluster(data_dir))
    with contextlib.suppress(FileNotFoundError):
        (data_dir / STATE_FILE).replace(data_dir / LAST_FILE)


def delete_cluster(data_dir: Path) -> None:
    """Remove the folders of a cluster that was stopped, and what is known of it; nothing else that is in the folder."""
    for node in read_cluster(data_dir, LAST_FILE):
        if holder(Path(node.folder)):
            raise FlockError(f"{node.name} still runs; its data in {node.folder} was not deleted.")
        shutil.rmtree(node.folder, ignore_errors=True)
    (data_dir / LAST_FILE).unlink(missing_ok=True)


def stop_nodes(nodes: Sequence[LocalNode]) -> Iterator[tuple[LocalNode, bool]]:
    """Stop some nodes in order; each with whether it ended by itself."""
    # A node that only just starts does not hold its folder yet: the program that started it may stop it all the same.
    nodes = [node for node in nodes if node.is_running() or _is_our_child(node.pid)]
    for node in nodes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(node.pid, signal.SIGTERM)
    until = time.monotonic() + STOP_S_MAX
    for node in nodes:
        while (node.is_running() or _is_our_child(node.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        orderly = not node.is_running() and not _is_our_child(node.pid)
        if not orderly:
            with contextlib.suppress(ProcessLookupError):
                os.kill(node.pid, signal.SIGKILL)
        yield node, orderly
