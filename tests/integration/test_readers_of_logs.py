"""Readers of durable topics on three real nodes with small segments: filters, which replica, and cursors that hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flockmq.admin import durable_model as model
from flockmq.client.log_client import LogClient, ReadFrom
from flockmq.client.topic_calls import BATCHES
from flockmq.errors import OffsetGone
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster

SEGMENT_BYTES = 65_536
KEPT_BYTES = 3 * SEGMENT_BYTES
HELD_TIMES = 4
OPTIONS = (f"--set=store.segment_bytes={SEGMENT_BYTES}", "--set=store.cache_bytes=65536")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("nodes"), 3, OPTIONS) as nodes:
        nodes.wait_settled()
        yield nodes


@pytest.fixture
def client(cluster: NodeCluster) -> Iterator[LogClient]:
    files = {f"http://{HOST}:{node.api_port}": str(node.folder / "credentials.toml") for node in cluster.nodes}
    with LogClient(
        list(files)[1],
        token_of=lambda url: credentials.load(url, {"FLOCKMQ_CREDENTIALS": files[url]}),
        timeout_s=10,
    ) as found:
        yield found


def fill(client: LogClient, topic: str, size: int) -> None:
    """About so many bytes, in batches of ten records."""
    for _ in range(size // 10_000):
        client.publish(topic, [(f"{topic}/{number}", bytes(1_000)) for number in range(10)])


def read_on(client: LogClient, topic: str, filters: list[str], read_from: ReadFrom = "any") -> list[bytes]:
    """Names of the records that come, to the end of the log."""
    names: list[bytes] = []
    offset = 0
    end = 1
    while offset < end:
        found = client.read(topic, 0, offset, max_bytes=20_000, filters=filters, read_from=read_from)
        names += [record.topic for view in found for record in view.records()]
        assert found.next_offset > offset
        offset, end = found.next_offset, found.end_offset
    return names


@pytest.mark.parametrize("copies", [1, 3])
def test_filters_leave_out_batches_wherever_replicas_are(cluster: NodeCluster, client: LogClient, copies: int) -> None:
    topic = f"some{copies}"
    cluster.create_topic(topic, replication_factor=copies)
    for number in range(30):
        device = "rare" if number % 10 == 3 else "often"
        client.publish(topic, [(f"{topic}/{device}/{each}", bytes(1_000)) for each in range(10)])
    wanted = [f"{topic}/rare/{each}".encode() for each in range(10)] * 3
    assert read_on(client, topic, [f"{topic}/rare/#"]) == wanted
    assert len(read_on(client, topic, [f"{topic}/+/5", "else/#"])) == 300
    assert read_on(client, topic, ["else/#"]) == []


def test_a_node_without_a_replica_filters_what_it_fetched(cluster: NodeCluster) -> None:
    cluster.create_topic("far", replication_factor=1)
    admin = cluster.nodes[0].admin()
    [partition] = admin.topic_partitions("far")
    away = next(node for node in cluster.nodes if node.name != partition.replicas[0].node).admin()
    for name in ("far/a", "far/b", "far/a"):
        away.publish_records("far", model.PublishRecords(records=[model.RecordToPublish(topic=name, payload="x")]))
    path = "/api/v1/topics/far/partitions/0/records?offset=0&filter=far/"
    answer = away.transport.request("GET", f"{path}b", accept=BATCHES)
    assert answer.headers["x-flockmq-next-offset"] == "3"
    assert 0 < len(answer.body) < 1_000
    answer = away.transport.request("GET", f"{path}c", accept=BATCHES)
    assert (answer.headers["x-flockmq-next-offset"], answer.body) == ("3", b"")


def test_leaders_and_followers_serve_the_same(cluster: NodeCluster, client: LogClient) -> None:
    cluster.create_topic("same")
    fill(client, "same", 100_000)
    urls = {f"http://{HOST}:{node.api_port}": node.name for node in cluster.nodes}
    [partition] = client.metadata("same", fresh=True)
    assert urls[client.read("same", 0, 0, read_from="leader").server_url] == partition.leader
    assert urls[client.read("same", 0, 0, read_from="follower").server_url] != partition.leader
    assert read_on(client, "same", [], "leader") == read_on(client, "same", [], "follower")


def test_what_a_cursor_holds_is_held_then_bounded_then_reported(cluster: NodeCluster, client: LogClient) -> None:
    for topic in ("held", "free"):
        cluster.create_topic(topic, retention_bytes=KEPT_BYTES)
        fill(client, topic, 10_000)
    client.create_cursor("stopped", "held", hold=True)
    client.commit("stopped", {0: 7})
    assert client.create_cursor("stopped", "held", hold=True).positions[0].offset == 7, "made once"

    def first(topic: str) -> int:
        return client.heads(topic).heads[0].first_offset

    # Held: the topic beside it, of the same size, forgets.
    for topic in ("held", "free"):
        fill(client, topic, 2 * KEPT_BYTES)
    cluster.wait(lambda: first("free") > 0, "retention of the other topic", 60)
    assert first("held") <= 7
    assert client.cursor("stopped").lost == 0
    assert client.read("held", 0, 7).views

    # Bounded, and reported.
    fill(client, "held", HELD_TIMES * KEPT_BYTES)
    cluster.wait(lambda: bool(client.cursor("stopped").lost), "retention beyond the bound", 60)
    bound = HELD_TIMES * KEPT_BYTES
    cluster.wait(lambda: _size(cluster, "held") < bound + SEGMENT_BYTES, "a log within its bound", 60)
    assert _size(cluster, "held") >= bound
    found = client.cursor("stopped")
    with pytest.raises(OffsetGone) as gone:
        client.read("held", 0, 7)
    assert gone.value.first > 7
    assert found.lost
    assert found.lost == found.positions[0].lost
    cluster.wait(lambda: all("cursor_overrun" in node.log_file.read_text("utf-8") for node in cluster.nodes), "events")

    # Once it has moved on, nothing is held.
    client.commit("stopped", {0: client.heads("held").heads[0].end_offset})
    most = KEPT_BYTES + SEGMENT_BYTES
    cluster.wait(lambda: _size(cluster, "held") < most, "a log of the size that was asked for", 60)
    assert _size(cluster, "held") >= KEPT_BYTES
    assert client.cursor("stopped").lost == 0


def _size(cluster: NodeCluster, topic: str) -> int:
    """Bytes on the leader's disk; without limit while nobody tells."""
    [partition] = cluster.nodes[0].admin().topic_partitions(topic)
    return 1 << 62 if partition.bytes is None else partition.bytes
