"""Commands on three real nodes, as an operator sees them in a terminal of 80 columns."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from flockmq.client.mqtt import MqttClient, Options
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

COLUMNS = 80
ANSWER_S_MAX = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("nodes"), 3) as nodes:
        nodes.wait_settled()
        nodes.create_topic("plant", shards=3)
        yield nodes


def environment(node: NodeProcess) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("FLOCKMQ_")}
    own |= {"FLOCKMQ_CREDENTIALS": str(node.folder / "credentials.toml"), "TERM": "xterm"}
    return own | {"FLOCKMQ_SERVER": f"{HOST}:{node.api_port}"}


def flockmq(node: NodeProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a script gets."""
    command = [sys.executable, "-m", "flockmq", *arguments]
    own = environment(node)
    return subprocess.run(
        command, check=False, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S_MAX
    )


def in_terminal(node: NodeProcess, *arguments: str, typed: str = "") -> tuple[int, list[str]]:
    """Exit code and lines of a command in a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "flockmq", *arguments],
        env=environment(node) | {"NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    if typed:
        os.write(ours, typed.encode())
    printed = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # how Linux tells that the other side is closed
            break
        if not piece:
            break
        printed += piece
    os.close(ours)
    return process.wait(ANSWER_S_MAX), printed.decode().replace("\r\n", "\n").splitlines()


async def subscribed(node: NodeProcess, client_id: str, topic_filter: str) -> MqttClient:
    client = await MqttClient.connect(Options(port=node.mqtt_port, client_id=client_id))
    await client.subscribe(SubscribeEntry(topic_filter.encode(), 1))
    return client


async def test_route_show_tells_of_clients_of_all_nodes(cluster: NodeCluster) -> None:
    first, second, third = cluster.nodes
    async with await subscribed(second, "elsewhere-2", "t/+"), await subscribed(third, "elsewhere-3", "$share/g/t/a"):
        found = json.loads(flockmq(first, "route", "show", "t/a", "--json").stdout)
        assert sorted((one["node"], one["client_id"], one["filter"], one["qos"]) for one in found) == [
            (second.name, "elsewhere-2", "t/+", 1),
            (third.name, "elsewhere-3", "$share/g/t/a", 1),
        ]
        code, lines = in_terminal(first, "route", "show", "t/a")
        assert code == 0
        assert lines[0].split() == ["CLIENT", "NODE", "FILTER", "QOS", "NOTE"]
    assert flockmq(first, "route", "show", "t/b/c").stdout == "A message to that topic would reach no client.\n"


@pytest.mark.parametrize(
    "command",
    [
        "cluster status",
        "node list",
        "partition list",
        "partition show 1",
        "topic list",
        "topic show plant",
        "client list",
        "session list",
        "subscription list",
        "route list",
        "namespace list",
        "doctor",
        "status",
        "config show",
    ],
)
async def test_a_terminal_of_80_columns_has_room_for_every_table(cluster: NodeCluster, command: str) -> None:
    node = cluster.nodes[0]
    async with await subscribed(node, "a-client-with-a-rather-long-id", "some/filter/+/of/five/levels"):
        code, lines = in_terminal(node, *command.split())
    assert code == 0, lines
    assert max(map(len, lines)) <= COLUMNS, lines


def test_cluster_status_leaves_nothing_out_at_80_columns(cluster: NodeCluster) -> None:
    _, lines = in_terminal(cluster.nodes[0], "cluster", "status")
    words = " ".join(lines).split()
    for heading in ("NODE", "STATE", "ROLE", "ADDRESS", "LINK", "CLIENTS", "ROUTES", "LEADS", "COPIES", "LAG", "ID"):
        assert heading in words
    for node in cluster.nodes:
        assert words.count(node.name) >= 2
        assert f"{HOST}:{node.port}" in words


def test_leaving_is_asked_about(cluster: NodeCluster) -> None:
    node = cluster.nodes[2]
    refused = flockmq(node, "cluster", "leave")
    assert refused.returncode == 2
    assert "say --yes if you are sure" in refused.stderr
    code, lines = in_terminal(node, "cluster", "leave", typed="n\n")
    assert code == 1
    assert f"Take {node.name} out of its cluster?" in " ".join(lines)
    assert "2 other nodes take over what it stores" in " ".join(lines)
    assert lines[-1].endswith("flockmq: Nothing was changed.")
    assert len(node.admin().cluster().members) == 3
