"""Exactly-once writing on three real nodes: staged, committed, said twice, and leaders killed in between."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator, Sequence

import pytest

from flockmq.admin import durable_model as model
from flockmq.admin.durable_sinks_model import ShardStages, SinkCommit, StagedPart, StageQuery
from flockmq.client.log_client import LogClient
from flockmq.client.log_sinks import StageName, StagePart
from flockmq.client.mqtt import Message, MqttClient, Options
from flockmq.errors import ApiError
from flockmq.log.assembling import UserColumns, assemble
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.routing.durable import shard_of
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("nodes"), 3) as nodes:
        nodes.wait_settled()
        yield nodes


def log_client(cluster: NodeCluster, *named: int) -> LogClient:
    files = {f"http://{HOST}:{node.api_port}": node.folder / "credentials.toml" for node in cluster.nodes}

    def token_of(url: str) -> str | None:
        return credentials.load(url, {"FLOCKMQ_CREDENTIALS": str(files[url])})

    urls = list(files)
    return LogClient([urls[number] for number in named], token_of=token_of, timeout_s=5)


def int32(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def ends(values: Sequence[bytes]) -> bytes:
    found = [0]
    for value in values:
        found.append(found[-1] + len(value))
    return int32(found)


def chunk(topic: str, payloads: Sequence[bytes], flags: int = 1, user: UserColumns | None = None) -> bytes:
    count = len(payloads)
    columns = (bytes([flags]) * count, ends(payloads), b"".join(payloads))
    return assemble([topic.encode()], bytes(4 * count), [b"spark"], bytes(4 * count), *columns, user=user)


def read_all(client: LogClient, topic: str, shard: int = 0) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while batches := client.read(topic, shard, offset).views:
        for view in batches:
            found += [record.payload for record in view.records()]
            offset = view.next_offset
    return found


def leader_of(cluster: NodeCluster, client: LogClient, topic: str, shard: int = 0) -> NodeProcess:
    found: list[NodeProcess] = []

    def is_led() -> bool:
        leader = client.metadata(topic, fresh=True)[shard].leader
        found[:] = [node for node in cluster.nodes if node.name == leader]
        return bool(found)

    cluster.wait(is_led, f"a leader of shard {shard}")
    return found[0]


@pytest.fixture
def mended(cluster: NodeCluster) -> Iterator[NodeCluster]:
    """A cluster whose nodes run again afterwards."""
    yield cluster
    for node in cluster.nodes:
        if not node.is_running:
            node.start()
            node.wait_ready()
    cluster.wait(cluster.sees_all, "all nodes to see each other")


@pytest.mark.parametrize("through", range(3))
def test_a_batch_is_written_once_through_any_node(cluster: NodeCluster, through: int) -> None:
    name = f"once{through}"
    cluster.create_topic(name, shards=2)
    topics = [f"{name}/{number}" for number in range(8)]
    by_shard: dict[int, list[str]] = {0: [], 1: []}
    for topic in topics:
        by_shard[shard_of(topic.encode(), 2)].append(topic)
    with log_client(cluster, through) as client:
        assert client.last_batches(name, "q") == {0: -1, 1: -1}
        for shard, own in by_shard.items():
            for sequence, topic in enumerate(own):
                stage = StageName("q", 0, 0, 11)
                client.stage(name, shard, stage, sequence, chunk(topic, [topic.encode()]))
                client.stage(name, shard, stage, sequence, chunk(topic, [topic.encode()]))
        assert [len(read_all(client, name, shard)) for shard in range(2)] == [0, 0]
        parts = {shard: [StagePart(0, 11, len(own))] for shard, own in by_shard.items()}
        committed = client.commit_stages(name, "q", 0, parts)
        assert {shard: (one.first_offset, one.next_offset) for shard, one in committed.items()} == {
            shard: (0, len(own)) for shard, own in by_shard.items()
        }
        again = client.commit_stages(name, "q", 0, parts)
        assert all(again[shard].is_repeat and again[shard][:2] == committed[shard][:2] for shard in parts)
        assert client.last_batches(name, "q") == {0: 0, 1: 0}
        for shard, own in by_shard.items():
            assert read_all(client, name, shard) == [topic.encode() for topic in own]


def test_chunks_of_megabytes_reach_a_leader_elsewhere(cluster: NodeCluster) -> None:
    cluster.create_topic("large", replication_factor=1)
    [partition] = cluster.nodes[0].admin().topic_partitions("large")
    away = next(number for number, node in enumerate(cluster.nodes) if node.name != partition.leader)
    payloads = [bytes([number]) * 40_000 for number in range(100)]
    admin = cluster.nodes[away].admin()  # this very node has to pass it on
    data = chunk("large", payloads)
    assert len(data) > 3_900_000
    admin.stage_batch("large", 0, StageQuery(query="q", batch=0, task=0, attempt=0), data)
    parts = [ShardStages(shard=0, parts=[StagedPart(task=0, attempt=0, chunks=1)])]
    [told] = admin.commit_sink("large", "q", SinkCommit(batch=0, shards=parts)).shards
    assert (told.done, told.next_offset) == (True, 100)
    with log_client(cluster, 0) as client:
        assert read_all(client, "large") == payloads


def test_a_namespace_of_its_own(cluster: NodeCluster) -> None:
    admin = cluster.nodes[0].admin()
    admin.create_namespace("acme")
    admin.create_topic(model.TopicRequest(name="spaced", namespace="acme"))
    cluster.wait(lambda: admin.topic_partitions("spaced", namespace="acme")[0].leader is not None, "a leader")
    with log_client(cluster, 0) as client:
        client.namespace = "acme"
        with pytest.raises(ApiError, match="is not of this namespace"):
            client.stage("spaced", 0, StageName("q", 0, 0, 0), 0, chunk("spaced/x", [b"a"]))
        data = assemble(
            [b"$ns/acme/spaced/x"], bytes(4), [b"$ns/acme/spark"], bytes(4), b"\1", int32([0, 1]), b"a"
        )  # fmt: skip
        client.stage("spaced", 0, StageName("q", 0, 0, 0), 0, data)
        client.commit_stages("spaced", "q", 0, {0: [StagePart(0, 0, 1)]})
        assert client.last_batches("spaced", "q") == {0: 0}
        [record] = admin.records("spaced", 0, namespace="acme").records
        assert (record.topic, record.client, record.payload) == ("spaced/x", "spark", "a")


def test_what_is_not_staged_is_refused(cluster: NodeCluster) -> None:
    cluster.create_topic("refused")
    with log_client(cluster, 1) as client:
        client.stage("refused", 0, StageName("q", 0, 0, 0), 0, chunk("refused/x", [b"a"]))
        with pytest.raises(ApiError, match="Stage the batch again") as caught:
            client.commit_stages("refused", "q", 0, {0: [StagePart(0, 0, 2)]})
        assert caught.value.code == "conflict"
        client.drop_stages("refused", "q", 0)
        with pytest.raises(ApiError, match="is not staged"):
            client.commit_stages("refused", "q", 0, {0: [StagePart(0, 0, 1)]})
        for data, sentence in (
            (chunk("elsewhere", [b"a"]), "is no topic name of this durable topic"),
            (chunk("refused/x", [b"a"])[:-8], "only .* are there"),
            (chunk("refused/x", [b"a"], flags=3), "flags"),
            (b"", "96 bytes"),
        ):
            with pytest.raises(ApiError, match=sentence) as caught:
                client.stage("refused", 0, StageName("q", 0, 0, 0), 0, data)
            assert caught.value.code == "invalid_body"
        assert read_all(client, "refused") == []


async def _receive(client: MqttClient, count: int) -> list[Message]:
    found: list[Message] = []
    async for message in client.messages():
        found.append(message)
        if len(found) == count:
            break
    return found


async def test_live_subscribers_get_what_is_committed(cluster: NodeCluster) -> None:
    await asyncio.to_thread(cluster.create_topic, "alerts")
    user = UserColumns(int32([0, 1, 2]), ends([b"unit", b"unit"]), b"unitunit", ends([b"C", b"K"]), b"CK")

    def write() -> None:
        with log_client(cluster, 2) as writer:
            writer.stage("alerts", 0, StageName("q", 0, 0, 0), 0, chunk("alerts/hot", [b"1", b"2"], 1, user))
            writer.stage("alerts", 0, StageName("q", 0, 0, 0), 1, chunk("alerts/state", [b"on"], 5))
            writer.commit_stages("alerts", "q", 0, {0: [StagePart(0, 0, 2)]})

    options = [Options(host=HOST, port=node.mqtt_port) for node in cluster.nodes]
    async with await MqttClient.connect(options[0]) as subscriber:
        await subscriber.subscribe(SubscribeEntry(b"alerts/#", 1))
        await asyncio.to_thread(write)
        async with asyncio.timeout(20):
            messages = await _receive(subscriber, 3)
    assert [(one.topic, one.payload, one.qos) for one in messages] == [
        ("alerts/hot", b"1", 1),
        ("alerts/hot", b"2", 1),
        ("alerts/state", b"on", 1),
    ]
    assert [one.properties.user for one in messages[:2] if one.properties] == [[("unit", "C")], [("unit", "K")]]
    async with await MqttClient.connect(options[1]) as late:
        await late.subscribe(SubscribeEntry(b"alerts/state", 0))
        async with asyncio.timeout(20):
            [kept] = await _receive(late, 1)
    assert (kept.payload, kept.retain) == (b"on", True)


def test_leaders_die_between_stage_commit_and_repeat(mended: NodeCluster) -> None:
    mended.create_topic("deadly")
    with log_client(mended, 0, 1, 2) as client:
        for sequence in range(3):
            client.stage("deadly", 0, StageName("q", 7, 0, 1), sequence, chunk("deadly/x", [b"%d" % sequence]))
        dead = leader_of(mended, client, "deadly")
        dead.kill()
        parts = {0: [StagePart(0, 1, 3)]}
        first = client.commit_stages("deadly", "q", 7, parts)[0]
        assert not first.is_repeat
        dead.start()
        dead.wait_ready()
        mended.wait(lambda: all(one.healthy for one in client.metadata("deadly", fresh=True)), "all replicas")
        leader_of(mended, client, "deadly").kill()
        again = client.commit_stages("deadly", "q", 7, parts)[0]
        assert again.is_repeat
        assert again[:2] == first[:2]
        assert client.last_batches("deadly", "q") == {0: 7}
        assert read_all(client, "deadly") == [b"0", b"1", b"2"]


def test_a_leader_dies_in_the_middle_of_a_commit(mended: NodeCluster) -> None:
    mended.create_topic("halfway")
    chunks = [[b"%d:%d" % (sequence, number) + b"x" * 1_000 for number in range(200)] for sequence in range(60)]
    with log_client(mended, 0, 1, 2) as client:
        for sequence, payloads in enumerate(chunks):
            client.stage("halfway", 0, StageName("q", 0, 0, 1), sequence, chunk("halfway/x", payloads))
        committing = threading.Thread(target=commit, args=(mended, "halfway", len(chunks)))
        committing.start()
        leader = leader_of(mended, client, "halfway")
        client.heads("halfway", after="0", wait_ms=10_000)  # the first part can be read
        leader.kill()
        committing.join()
        # Whoever starts the batch anew finds it done, or being done, whatever was staged since.
        client.stage("halfway", 0, StageName("q", 0, 0, 2), 0, chunk("halfway/x", [b"other"]))
        client.commit_stages("halfway", "q", 0, {0: [StagePart(0, 2, 1)]})
        assert read_all(client, "halfway") == [payload for payloads in chunks for payload in payloads]


def commit(cluster: NodeCluster, topic: str, chunks: int) -> None:
    with log_client(cluster, 0, 1, 2) as client:
        client.commit_stages(topic, "q", 0, {0: [StagePart(0, 1, chunks)]})
