"""The readers themselves, without Spark, on a node with small segments: what is lost, limited, away and held."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from flockmq.admin.durable_model import TopicChange, TopicRequest
from flockmq.client.log_client import LogClient
from flockmq.errors import FlockError, OffsetGone
from flockmq.security import credentials
from flockmq.spark import stream_reader
from flockmq.spark.batch_reader import FlockBatchReader
from flockmq.spark.options import ReadOptions
from flockmq.spark.planning import FlockPartition, Range
from flockmq.spark.reading import TaskReader
from flockmq.spark.schema import full_schema
from flockmq.spark.stream_reader import FlockStreamReader
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

SEGMENT_BYTES = 65_536
OPTIONS = (f"--set=store.segment_bytes={SEGMENT_BYTES}", "--set=store.cache_bytes=65536")


class Site:
    """One node, and readers of it."""

    def __init__(self, nodes: NodeCluster) -> None:
        self.nodes = nodes
        self.node: NodeProcess = nodes.nodes[0]
        self.url = f"http://{HOST}:{self.node.api_port}"
        file = str(self.node.folder / "credentials.toml")
        self.token = credentials.load(self.url, {"FLOCKMQ_CREDENTIALS": file}) or ""
        self.client = LogClient(self.url, self.token)

    def options(self, topic: str, **options: str) -> dict[str, str]:
        return {"server": self.url, "token": self.token, "subscribe": topic, "retries": "0", **options}

    def topic(self, name: str, **fields: Any) -> str:
        admin = self.node.admin()
        admin.create_topic(TopicRequest(name=name, **fields))
        self.nodes.wait(lambda: all(one.leader is not None for one in admin.topic_partitions(name)), "leaders")
        return name

    def fill(self, topic: str, batches: int) -> None:
        for _ in range(batches):
            self.client.publish(topic, [(f"{topic}/{number}", bytes(1_000)) for number in range(10)])

    def stream(self, topic: str, **options: str) -> FlockStreamReader:
        return FlockStreamReader(self.options(topic, **options), full_schema(None))

    def rows(self, topic: str, start: int, end: int, **options: str) -> list[int]:
        task = TaskReader(ReadOptions.parse(self.options(topic, **options)), full_schema(None))
        found = list(task.read(FlockPartition([Range(topic, 0, start, end)])))
        return pa.Table.from_batches(found).column("offset").to_pylist() if found else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with NodeCluster(tmp_path_factory.mktemp("node"), 1, OPTIONS) as nodes:
        found = Site(nodes)
        nodes.wait(lambda: bool(found.node.admin().dump()["nodes"]), "cluster state")
        yield found
        found.client.close()


def latest(reader: FlockStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_what_retention_removed_is_told_or_skipped(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    topic = site.topic("lost", retention_bytes=2 * SEGMENT_BYTES)
    site.fill(topic, 60)
    site.nodes.wait(lambda: site.client.heads(topic).heads[0].first_offset > 5, "retention", 60)
    head = site.client.heads(topic).heads[0]
    sentence = f"Records 3 to {head.first_offset - 1} of shard 0 of topic 'lost' are gone.*failOnDataLoss=false"
    with pytest.raises(OffsetGone, match=sentence):
        site.rows(topic, 3, head.end_offset)
    with pytest.raises(OffsetGone, match=sentence):
        latest(site.stream(topic), {topic: {"0": 3}})
    with caplog.at_level(logging.WARNING, "flockmq.spark"):
        found = site.rows(topic, 3, head.end_offset, failOnDataLoss="false")
        assert found == list(range(head.first_offset, head.end_offset))
        assert site.rows(topic, 1, 4, failOnDataLoss="false") == []
    assert "are gone" in caplog.text
    assert f"going on at {head.first_offset}" in caplog.text


def test_a_table_ends_where_the_log_ended_when_it_was_planned(site: Site) -> None:
    topic = site.topic("table", shards=2)
    site.fill(topic, 10)
    options = ReadOptions.parse(site.options(topic))
    reader = FlockBatchReader(options, full_schema(None))
    tasks = reader.partitions()
    site.fill(topic, 1)
    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 100


def test_limits_of_a_micro_batch(site: Site) -> None:
    topic = site.topic("limited", shards=2)
    site.fill(topic, 10)
    ends = {str(head.shard): head.end_offset for head in site.client.heads(topic).heads}
    start = {topic: {"0": 0, "1": 0}}

    def taken(reader: FlockStreamReader) -> int:
        return sum(latest(reader, start)[topic].values())

    assert latest(site.stream(topic), start) == {topic: ends}
    assert 0 < taken(site.stream(topic, maxOffsetsPerTrigger="40")) <= 40
    assert 0 < taken(site.stream(topic, maxBytesPerTrigger="40k")) <= 60
    assert taken(site.stream(topic, minOffsetsPerTrigger="101")) == 0
    assert taken(site.stream(topic, minOffsetsPerTrigger="100")) == 100
    hasty = site.stream(topic, minOffsetsPerTrigger="101", maxTriggerDelay="1ms")
    site.nodes.wait(lambda: taken(hasty) == 100, "the longest delay")
    assert site.stream(topic, maxOffsetsPerTrigger="40").latestOffset(start, ReadAllAvailable()) == {topic: ends}


def test_available_now_is_what_was_there_when_it_began(site: Site) -> None:
    topic = site.topic("now")
    site.fill(topic, 3)
    reader = site.stream(topic, minOffsetsPerTrigger="1000")
    reader.prepareForTriggerAvailableNow()
    site.fill(topic, 3)
    assert latest(reader, {topic: {"0": 0}}) == {topic: {"0": 30}}


def test_a_stream_sees_what_comes_without_being_asked(site: Site) -> None:
    topic = site.topic("follow")
    reader = site.stream(topic)
    start = reader.initialOffset()
    assert start == {topic: {"0": 0}}
    assert latest(reader, start) == start
    site.fill(topic, 1)
    site.nodes.wait(lambda: latest(reader, start) == {topic: {"0": 10}}, "ten records")
    assert reader.reportLatestOffset() == {topic: {"0": 10}}
    reader.stop()


def test_a_cursor_moves_with_commits_and_is_where_a_new_query_starts(site: Site) -> None:
    topic = site.topic("cursors")
    site.fill(topic, 2)
    reader = site.stream(topic, cursor="mine", startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {topic: {"0": 0}}
    found = site.client.cursor("mine")
    assert (found.hold, found.positions[0].offset) == (True, 0)
    reader.commit({topic: {"0": 13}})
    assert site.client.cursor("mine").positions[0].offset == 13
    assert site.stream(topic, cursor="mine").initialOffset() == {topic: {"0": 13}}
    other = site.topic("others")
    with pytest.raises(FlockError, match="mine"):
        site.stream(other, cursor="mine").initialOffset()


def test_a_query_that_starts_again_leaves_to_operators_what_its_cursor_holds(site: Site) -> None:
    topic = site.topic("operated")
    site.fill(topic, 1)

    def start(**options: str) -> bool:
        reader = site.stream(topic, cursor="operated", startingOffsets="earliest", **options)
        reader.initialOffset()
        reader.stop()
        return site.client.cursor("operated").hold

    assert start() is True, "a new one"
    site.client.create_cursor("operated", topic, hold=False)
    assert start() is False, "as it was told since"
    assert start(cursorHold="true") is True
    assert start(cursorHold="false") is False


def test_topics_and_shards_that_appear_later_are_read_from_their_start(site: Site) -> None:
    first = site.topic("later-a")
    site.fill(first, 1)
    reader = FlockStreamReader(
        {"server": site.url, "token": site.token, "subscribePattern": "later-.*"}, full_schema(None)
    )
    start = reader.initialOffset()
    assert latest(reader, start) == start == {first: {"0": 10}}
    site.node.admin().alter_topic(first, TopicChange(shards=8))
    second = site.topic("later-b")
    site.fill(first, 3)
    site.fill(second, 1)

    def found() -> dict[str, dict[str, int]]:
        return latest(reader, start)

    site.nodes.wait(lambda: sum(found().get(first, {}).values()) == 40, "new shards")
    assert len(found()[first]) == 8
    site.nodes.wait(lambda: found().get(second) == {"0": 10}, "a new topic")
    tasks = reader.partitions(start, found())
    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 40
    reader.stop()


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_topic_that_was_created_again_is_another_one(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    monkeypatch.setattr(stream_reader, "SHORT_S", 0.1)
    name = f"again{is_restarted}"
    topic = site.topic(name)
    site.fill(topic, 2)
    strict, lenient = (site.stream(topic, retries="3", failOnDataLoss=word) for word in ("true", "false"))
    end = {topic: {"0": 20}}
    if not is_restarted:
        assert latest(strict, end) == latest(lenient, end) == end
    site.node.admin().delete_topic(topic)
    site.topic(name)
    site.fill(topic, 1)
    assert "was deleted" in problem_of(site, strict, end)
    site.nodes.wait(lambda: latest(lenient, end) == {topic: {"0": 0}}, "the new topic")
    assert lenient.partitions(end, {topic: {"0": 0}}) == []
    site.nodes.wait(lambda: latest(lenient, {topic: {"0": 0}}) == {topic: {"0": 10}}, "its records")


def test_a_deleted_topic_is_told(site: Site) -> None:
    topic = site.topic("deleted")
    site.fill(topic, 1)
    reader = site.stream(topic, retries="3")
    end = latest(reader, {topic: {"0": 0}})
    site.node.admin().delete_topic(topic)
    assert "was deleted" in problem_of(site, reader, end)


def problem_of(site: Site, reader: FlockStreamReader, start: dict[str, Any]) -> str:
    """What the reader says once something is wrong."""
    said: list[str] = []

    def has_failed() -> bool:
        try:
            latest(reader, start)
        except FlockError as error:
            said.append(str(error))
        return bool(said)

    site.nodes.wait(has_failed, "an error", 30)
    return said[0]


def test_a_node_that_is_away_is_one_sentence(site: Site) -> None:
    topic = site.topic("away")
    site.fill(topic, 1)
    reader = site.stream(topic)
    end = latest(reader, {topic: {"0": 0}})
    site.node.kill()
    try:
        sentence = problem_of(site, reader, end)
        assert sentence.startswith(f"No node at {site.url} could say for ")
        assert "\n" not in sentence
        with pytest.raises(FlockError, match="No node could serve shard 0 of topic 'away'"):
            site.rows(topic, 0, 10)
    finally:
        site.node.start()
        site.node.wait_ready()
