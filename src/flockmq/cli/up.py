"""``flockmq up``, ``ps`` and ``down``: a cluster on this machine, to try things out and to develop against."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.output import JsonOption, print_json, print_table
from flockmq.errors import FlockError
from flockmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.client.local_cluster import LocalNode

NODES_MAX: Final = 64
NODES_DEFAULT: Final = 3
COLUMNS: Final = ("NODE", "STATE", "PID", "MQTT", "WEBSOCKET", "API", "NODES PORT", "LOG")

DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder of the whole cluster, a folder a node in it.")
]
Count = Annotated[
    int | None, typer.Argument(min=1, max=NODES_MAX, metavar="N", help="How many nodes; as many as before, or 3.")
]
MqttPort = Annotated[
    int | None,
    typer.Option(
        "--base-mqtt-port", min=1, max=65_000, help="MQTT port of the first node; as before, or 1883. Others follow."
    ),
]
WsPort = Annotated[
    int | None,
    typer.Option(
        "--base-ws-port", min=1, max=65_000, help="Its WebSocket port; as before, or 8083. Others in steps of two."
    ),
]
ApiPort = Annotated[
    int | None, typer.Option("--base-api-port", min=1, max=65_000, help="Its API port; as before, or 18083.")
]
NodePort = Annotated[
    int | None, typer.Option("--base-port", min=1, max=65_000, help="Its port for nodes; as before, or 16000.")
]
Detach = Annotated[bool, typer.Option("--detach", help="Return once all nodes serve; stop them with `flockmq down`.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, for all nodes.")]


def default_data_dir() -> Path:
    """Where the cluster of ``up`` lives when nothing is said."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path("~/.local/share").expanduser()) / "flockmq" / "up"


def up(
    count: Count = None,
    *,
    data_dir: DataDirOption = None,
    base_mqtt_port: MqttPort = None,
    base_ws_port: WsPort = None,
    base_api_port: ApiPort = None,
    base_port: NodePort = None,
    detach: Detach = False,
    settings: Set = None,
    as_json: JsonOption = False,
) -> None:
    """Start a cluster on this machine: N nodes on loopback that let every client in. Ctrl-C stops it.

    Where some nodes of it run and others have ended, it starts those again. One that was stopped comes back with as
    many nodes as it had, on the same ports, unless something else is said.
    """
    from flockmq.client.local_cluster import (
        LAST_FILE,
        Ports,
        ports_of,
        read_cluster,
        start_cluster,
        start_ended,
        wait_ready,
    )

    folder = (data_dir or default_data_dir()).absolute()
    last = read_cluster(folder) or read_cluster(folder, LAST_FILE)
    before = ports_of(last)
    ports = Ports(
        mqtt=base_mqtt_port or before.mqtt,
        ws=base_ws_port or before.ws,
        api=base_api_port or before.api,
        node=base_port or before.node,
    )
    options = ["--allow-anonymous", *(f"--set={one}" for one in settings or [])]
    known = read_cluster(folder)
    if count not in (None, len(known)) and any(node.is_running() for node in known):
        raise FlockError(
            f"The cluster in {folder} has {counted(len(known), 'node')}, and some of them run: `flockmq up` without a "
            f"number starts those that ended. For {counted(count or 0, 'node')} stop it first, with `flockmq down`, or "
            "give another --data-dir."
        )
    nodes = start_ended(folder, options)
    if nodes:
        names = {node.name for node in nodes}
        others = [node.name for node in read_cluster(folder) if node.name not in names]
        print(f"{', '.join(sorted(names))} had ended: started again. Running: {', '.join(others)}.", file=sys.stderr)
    else:
        nodes = start_cluster(folder, count or len(last) or NODES_DEFAULT, ports, options)
    try:
        for node in wait_ready(nodes):
            print(f"{node.name} serves MQTT on port {node.mqtt_port}", file=sys.stderr)
    except BaseException:
        _stop(folder, nodes)
        raise
    every = read_cluster(folder)
    if as_json:
        print_json([_as_json(node) for node in every])
    else:
        _print_nodes(every)
        print(f"\nflockmq cluster status --server {nodes[0].api_url}")
    if detach:
        return
    print("Ctrl-C stops them.", file=sys.stderr)
    _watch(nodes)
    for node, orderly in _stop(folder, nodes):
        print(f"{node.name} {'stopped' if orderly else 'had to be killed'}", file=sys.stderr)


def _stop(folder: Path, nodes: Sequence[LocalNode]) -> list[tuple[LocalNode, bool]]:
    """Stop what was started here; nodes of the cluster that ran before go on."""
    from flockmq.client.local_cluster import read_cluster, stop_cluster, stop_nodes

    is_whole = len(nodes) == len(read_cluster(folder))
    return list(stop_cluster(folder) if is_whole else stop_nodes(nodes))


def _watch(nodes: Sequence[LocalNode]) -> None:
    """Wait for Ctrl-C; tell of nodes that end before it."""
    ended = False

    def end(_number: int, _frame: object) -> None:
        nonlocal ended
        ended = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    running = list(nodes)
    try:
        while running and not ended:
            for node in [one for one in running if not one.is_running()]:
                running.remove(node)
                print(f"{node.name} has ended; its log is {node.log_file}:\n{node.log_tail()}", file=sys.stderr)
            time.sleep(0.2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ps(*, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """List the nodes that `flockmq up` started."""
    from flockmq.client.local_cluster import read_cluster

    nodes = read_cluster((data_dir or default_data_dir()).absolute())
    if as_json:
        print_json([_as_json(node) for node in nodes])
    elif nodes:
        _print_nodes(nodes)
    else:
        print("No cluster was started here; start one with `flockmq up`.")


def down(
    *,
    data_dir: DataDirOption = None,
    delete_data: Annotated[
        bool,
        typer.Option("--delete-data", help="Delete their topics, sessions and logs, too: the next `up` is a new one."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the nodes that `flockmq up` started. Their data stays, unless --delete-data."""
    from flockmq.client.local_cluster import LAST_FILE, delete_cluster, read_cluster, stop_cluster

    folder = (data_dir or default_data_dir()).absolute()
    if not read_cluster(folder) and not (delete_data and read_cluster(folder, LAST_FILE)):
        raise FlockError(f"No cluster was started in {folder}; `flockmq up` starts one.")
    stopped = [(node, orderly) for node, orderly in stop_cluster(folder)]
    if delete_data:
        delete_cluster(folder)
    if as_json:
        print_json([{"name": node.name, "orderly": orderly} for node, orderly in stopped])
        return
    for node, orderly in stopped:
        print(f"{node.name} {'stopped' if orderly else 'had to be killed'}")
    if not stopped:
        print("All nodes had ended before.")


def _state(node: LocalNode) -> str:
    if not node.is_running():
        return "ended"
    return "serving" if node.is_serving() else "starting"


def _as_json(node: LocalNode) -> dict[str, object]:
    return {
        "name": node.name,
        "state": _state(node),
        "pid": node.pid,
        "mqtt_port": node.mqtt_port,
        "ws_port": node.ws_port,
        "api_url": node.api_url,
        "port": node.port,
        "data_dir": node.folder,
        "log_file": str(node.log_file),
    }


def _print_nodes(nodes: Sequence[LocalNode]) -> None:
    rows = [
        [
            node.name,
            _state(node),
            str(node.pid),
            str(node.mqtt_port),
            str(node.ws_port),
            node.api_url,
            str(node.port),
            node.log_file,
        ]
        for node in nodes
    ]
    print_table(COLUMNS, rows)
