"""Persistent sessions whose node is gone, on three real nodes: people see them, and can end them, from any node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flockmq.client.mqtt import MqttClient, Options
from flockmq.errors import NotFound
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.routing.durable import shard_of
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

ANSWER_S_MAX = 30
CAPTURE_SHARDS = 8


def session_command(node: NodeProcess, *arguments: str) -> str:
    own = {"FLOCKMQ_CREDENTIALS": str(node.folder / "credentials.toml"), "FLOCKMQ_SERVER": f"{HOST}:{node.api_port}"}
    rest = {name: value for name, value in os.environ.items() if not name.startswith("FLOCKMQ_")}
    command = [sys.executable, "-m", "flockmq", "session", *arguments, "--json"]
    done = subprocess.run(command, check=True, env=rest | own, capture_output=True, timeout=ANSWER_S_MAX)
    return done.stdout.decode()


async def connect(node: NodeProcess, client_id: str) -> MqttClient:
    properties = Properties()
    properties.session_expiry_s = 3_600
    options = Options(port=node.mqtt_port, client_id=client_id, clean_start=False, properties=properties)
    return await MqttClient.connect(options)


async def leave_session(node: NodeProcess, client_id: str) -> None:
    async with await connect(node, client_id) as client:
        await client.subscribe(SubscribeEntry(f"inbox/{client_id}".encode(), 1))


def capture_shard(client_id: str) -> int:
    return shard_of(f"inbox/{client_id}".encode(), CAPTURE_SHARDS)


def states(node: NodeProcess) -> dict[str, tuple[str, str]]:
    """Client id -> state and node of all sessions, each listed once; none while a node or shard does not answer."""
    unanswered: list[str] = []
    listed = list(node.admin().sessions(unanswered=unanswered))
    found: dict[str, tuple[str, str]] = {one.client_id: (one.state, one.node) for one in listed}
    assert len(found) == len(listed), listed
    return {} if unanswered else found


def counted(nodes: NodeCluster) -> dict[str, float]:
    """What all nodes together tell in their metrics."""
    stats = [node.admin().stats() for node in nodes.running()]
    return {
        "away": sum(one.gauges["sessions_logged_away"] for one in stats),
        "connected": sum(one.gauges["sessions_logged_connected"] for one in stats),
        "filters": sum(one.gauges["capture_filters"] for one in stats),
        "leases": sum(one.gauges["capture_lease"] for one in stats),
        "claims": sum(one.counters["session_claims"] for one in stats),
    }


async def test_sessions_of_a_node_that_died_are_listed_shown_and_deleted(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as nodes:
        nodes.wait_settled()
        first, second, third = nodes.nodes
        await leave_session(first, "stays")
        for number in range(5):
            await leave_session(third, f"gone{number}")
        at_first = {"stays": ("away", first.name)}
        away = {f"gone{number}": ("away", third.name) for number in range(5)}
        expected = at_first | away
        nodes.wait(lambda: states(second) == expected, "nodes to forget sessions that the log has")
        figures = {"away": 6, "connected": 0, "filters": 18, "leases": 3, "claims": 6}
        nodes.wait(lambda: counted(nodes) == figures, "all sessions to be counted as away")
        third.kill()
        nodes.wait(lambda: states(first) == expected and states(second) == expected, "records of sessions without node")
        shown = json.loads(session_command(second, "show", "gone1"))
        assert (shown["state"], shown["node"], shown["expiry_s"]) == ("away", third.name, 3_600)
        assert [one["filter"] for one in shown["subscriptions"]] == ["inbox/gone1"]
        assert shown["disconnected_at"] is not None
        async with await connect(first, "publisher") as publisher:
            await publisher.publish("inbox/gone1", b"waits", qos=1)
        admin = second.admin()
        assert (admin.session("gone1").lag, admin.session("gone1").gap) == (1, 0)
        same_log = {name: 1 for name in expected if capture_shard(name) == capture_shard("gone1")}
        nodes.wait(lambda: {one.client_id: one.lag for one in admin.sessions(lag_min=1)} == same_log, "ends of logs")
        assert not list(admin.sessions(username="ada"))
        assert not list(admin.sessions(client_id_prefix="gone", disconnected_s_min=86_400))
        assert sum(node.admin().stats().gauges["capture_bytes"] for node in nodes.running()) > 0
        admin.delete_session("publisher")
        assert {one.client_id for one in admin.sessions(client_id_prefix="gone", connected=False)} == set(away)
        assert not list(admin.sessions(client_id_prefix="gone", connected=True))
        assert not list(admin.sessions(client_id_prefix="gone", node=first.name))
        explained = admin.explain("inbox/gone1", client_id="gone1")
        assert explained.session is not None
        assert (explained.session.gets, explained.session.filter) == ("later", "inbox/gone1")
        other = admin.explain("inbox/gone1", client_id="gone2").session
        assert other is not None
        assert (other.gets, other.reasons) == ("no", ["None of its 1 subscriptions matches."])
        assert explained.captured
        delivered = [(one.source, one.target) for one in explained.steps if one.kind == "Deliver"]
        assert delivered == [("$capture", "gone1")]
        assert [one.topic.partition("/")[0] for one in explained.steps if one.kind == "Append"] == ["$capture"]
        nodes.wait(lambda: not admin.explain("outbox/gone1").captured, "a lease of each shard, also of new leaders")
        session_command(first, "delete", "gone1")
        del away["gone1"]
        assert states(second) == at_first | away
        with pytest.raises(NotFound):
            second.admin().delete_session("gone1")
        await leave_session(second, "gone2")
        assert states(first)["gone2"][1] == second.name


async def test_sessions_of_a_node_that_was_started_again_are_away_until_their_clients_return(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 1) as nodes:
        node = nodes.nodes[0]
        for client_id in ("returns", "stays-away"):
            await leave_session(node, client_id)
        node.kill()
        node.start()
        node.wait_ready()
        away = ("away", node.name)
        nodes.wait(lambda: states(node) == {"returns": away, "stays-away": away}, "records of both sessions")
        async with await connect(node, "returns"):
            assert states(node) == {"returns": ("connected", node.name), "stays-away": away}
            kicked = json.loads(session_command(node, "kick", "returns"))
            assert kicked == {"kicked": "returns", "session_kept": True}
            nodes.wait(lambda: states(node) == {"returns": away, "stays-away": away}, "the session to stay")
            with pytest.raises(NotFound):
                node.admin().kick("returns")
