"""Real nodes that leave their cluster, and come back: what was acknowledged stays, nobody is asked in vain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.clients import Clients, command
from flockmq.admin.durable_model import WAIT_MS_MAX, TopicRequest
from flockmq.client.log_client import LogClient
from flockmq.client.mqtt import MqttError
from flockmq.errors import ApiError
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import SubscribeEntry, Will
from flockmq.security import credentials
from flockmq.server.move_note import MoveNote, write_note
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess


def stored(node: NodeProcess, topic: str) -> list[bytes]:
    """All records of a topic, as this node tells them."""
    url = f"http://{HOST}:{node.api_port}"
    token = credentials.load(url, {"FLOCKMQ_CREDENTIALS": str(node.folder / "credentials.toml")})
    with LogClient(url, token) as client:
        found: list[bytes] = []
        for head in client.heads(topic).heads:
            offset = 0
            while offset < head.end_offset:
                batches = client.read(topic, head.shard, offset)
                found += [record.payload for view in batches for record in view.records()]
                offset = batches.next_offset
    return found


async def publish(clients: Clients, node: NodeProcess, name: str, payloads: list[bytes]) -> list[bytes]:
    """One after the other at QoS 1; those that were acknowledged."""
    client = await clients.connect(node, name)
    acknowledged = []
    for number, payload in enumerate(payloads):
        if await client.publish(f"plant/{number}", payload, qos=1) == 0:
            acknowledged.append(payload)
    await client.disconnect()
    return acknowledged


async def test_what_a_node_acknowledges_after_it_came_back_is_in_the_log(tmp_path: Path, clients: Clients) -> None:
    """It counts its messages from 1 again; nobody may take them for those of before."""
    with NodeCluster(tmp_path, 3) as cluster:
        cluster.wait_settled()
        one, _, three = cluster.nodes
        cluster.create_topic("plant", shards=2)
        before = await publish(clients, three, "p", [b"before %d" % number for number in range(12)])
        assert len(before) == 12
        command(three, "cluster", "leave", "--yes")
        assert list(three.admin().topics()) == []
        command(three, "cluster", "join", f"{HOST}:{one.port}")
        after = await publish(clients, three, "p", [b"after %d" % number for number in range(12)])
        assert len(after) == 12
        assert sorted(stored(one, "plant")) == sorted(before + after)
        command(three, "vpn", "create", "acme")
        assert "acme" in [found.name for found in one.admin().namespaces()]


async def test_a_node_that_left_keeps_nothing_for_its_former_topics(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 2) as cluster:
        cluster.wait_settled()
        one, two = cluster.nodes
        cluster.create_topic("plant")
        client = await clients.connect(two, "somebody")
        command(two, "cluster", "leave", "--yes")
        with pytest.raises(MqttError) as gone:
            await client.subscribe(SubscribeEntry(b"plant/#", 1))
        assert gone.value.reason_code == reasons.USE_ANOTHER_SERVER
        # Alone it is whole: topics can be made at once, and names of the old one are like any others.
        again = await clients.connect(two, "somebody")
        assert await again.publish("plant/1", b"of nobody", qos=1) == 0x10
        command(two, "topic", "create", "own")
        assert await again.publish("own/1", b"kept", qos=1) == 0
        assert stored(two, "own") == [b"kept"]
        assert stored(one, "plant") == []
        folders = [path.name for path in (two.folder / "data").glob("store*") if path.is_dir()]
        assert folders == ["store"], "others have what it had"
        assert (two.folder / "data" / "cluster-state").stat().st_mode & 0o077 == 0


def test_a_node_does_not_leave_while_nobody_can_take_over_what_it_stores(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 2) as cluster:
        cluster.wait_settled()
        one, two = cluster.nodes
        cluster.create_topic("plant")
        two.kill()
        cluster.wait(lambda: "dead" in [member.state for member in one.admin().cluster().members], "a death")
        refused = command(one, "cluster", "leave", "--yes", code=1)
        assert "does not answer" in refused
        assert "--discard-data" in refused
        assert [topic.name for topic in one.admin().topics()] == ["plant"]
        told = command(one, "cluster", "leave", "--yes", "--discard-data")
        (aside,) = (one.folder / "data").glob("store-*")
        assert str(aside) in told
        assert list(one.admin().topics()) == []
        assert "before" in command(one, "cluster", "leave", "--yes"), "there is nobody to leave"


def test_who_waits_for_news_of_a_log_is_told_when_the_node_goes(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster, ThreadPoolExecutor(1) as caller:
        cluster.wait_settled()
        three = cluster.nodes[2]
        cluster.create_topic("plant")
        before = three.admin().heads("plant")
        waiting = caller.submit(three.admin().heads, "plant", after=before.after, wait_ms=WAIT_MS_MAX)
        command(three, "cluster", "leave", "--yes")
        cluster.wait(waiting.done, "an answer, which would else come when the time is over", WAIT_MS_MAX / 4_000)


async def test_wills_of_a_node_that_leaves_are_kept(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        cluster.wait_settled()
        one, _, three = cluster.nodes
        cluster.create_topic("plant", shards=2)
        for number in range(3):
            await clients.connect(three, f"device{number}", will=Will(b"plant/will", b"of %d" % number, 1))
        command(three, "cluster", "leave", "--yes")
        assert sorted(stored(one, "plant")) == [b"of 0", b"of 1", b"of 2"]


def test_a_node_that_came_from_a_cluster_of_many_takes_part_in_its_new_one(tmp_path: Path) -> None:
    cookie = {"FLOCKMQ_COOKIE": "0123456789abcdef" * 4}
    with (
        NodeCluster(tmp_path / "here", 3, environment=cookie) as here,
        NodeCluster(tmp_path / "there", 1, environment=cookie) as there,
    ):
        here.wait_settled()
        here.create_topic("old")
        there.create_topic("new")
        (first, _, mover), (home,) = here.nodes, there.nodes
        assert "--discard-data" in command(mover, "cluster", "join", f"{HOST}:{home.port}", code=1)
        command(mover, "cluster", "join", f"{HOST}:{home.port}", "--discard-data")

        def is_whole() -> bool:
            [partition] = home.admin().topic_partitions("new")
            return len(voters(home)) == 2 and len(partition.replicas) == 2

        there.wait(is_whole, "a vote and a copy for the node that came")
        here.wait(lambda: len(first.admin().topic_partitions("old")[0].replicas) == 2, "the others to go on")


def test_a_node_that_was_killed_on_its_way_is_there_when_it_is_back(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 2) as cluster:
        cluster.wait_settled()
        one, two = cluster.nodes
        cluster.create_topic("plant")
        former = int(two.admin().cluster().id or "0", 16)
        two.kill()
        write_note(two.folder / "data", MoveNote(former, 77, keep=True))
        two.options = [option for option in two.options if not option.startswith("--join")]
        two.start()
        two.wait_ready()
        assert two.admin().cluster().id == f"{77:016x}"
        assert list(two.admin().topics()) == []
        cluster.wait(lambda: voters(two) == [two.name], "the node to decide for itself")
        two.admin().create_topic(TopicRequest(name="own"))
        assert one.admin().cluster().id == f"{former:016x}"


def voters(node: NodeProcess) -> list[str]:
    """Who decides about cluster state."""
    decisions = node.admin().cluster().decisions
    return decisions.voters if decisions is not None else []


def test_a_lone_node_is_asked_twice_before_it_gives_up_its_topics(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 1) as cluster:
        (one,) = cluster.nodes
        cluster.create_topic("plant")
        refused = command(one, "cluster", "leave", "--yes", code=1)
        assert "1 topic" in refused
        with pytest.raises(ApiError, match="alone"):
            one.admin().leave()
