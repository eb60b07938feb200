"""Sinks of the log client against the API over real sockets; what is behind it is in memory."""

from __future__ import annotations

import asyncio
import http.client
import struct
from collections.abc import Sequence

import pytest

from flockmq.admin import durable_model as model
from flockmq.admin import durable_sinks_model as sinks
from flockmq.admin.durable_port import CommitStatus
from flockmq.client.admin import AdminClient
from flockmq.client.log_client import LogClient
from flockmq.client.log_sinks import CommittedStage, StageName, StagePart
from flockmq.errors import ApiError, FlockError
from flockmq.log.assembling import assemble
from integration.support.node import Run
from integration.test_log_client import Flock, flock

BATCHES = "application/vnd.flockmq.batches"


def chunk(*payloads: bytes, topic: bytes = b"plant/1") -> bytes:
    count = len(payloads)
    ends = [sum(map(len, payloads[:at])) for at in range(count + 1)]
    offsets = struct.pack(f"<{count + 1}i", *ends)
    return assemble([topic], bytes(4 * count), [b"spark"], bytes(4 * count), bytes(count), offsets, b"".join(payloads))


def create(client: AdminClient) -> None:
    client.create_topic(model.TopicRequest(name="plant"))


def payloads(client: LogClient) -> list[bytes]:
    return [record.payload for view in client.read("plant", 0, 0) for record in view.records()]


def test_a_batch_is_staged_and_committed_once(run: Run) -> None:
    def write(client: LogClient) -> None:
        stage = StageName("a query", 3, 0, 9)
        client.stage("plant", 0, stage, 0, chunk(b"a"))
        client.stage("plant", 0, stage, 1, chunk(b"b", b"c"))
        assert client.last_batches("plant", "a query") == {0: -1}
        parts = {0: [StagePart(0, 9, 2)]}
        assert client.commit_stages("plant", "a query", 3, parts) == {0: CommittedStage(0, 3, False)}
        assert client.commit_stages("plant", "a query", 3, parts) == {0: CommittedStage(0, 3, True)}
        assert client.commit_stages("plant", "a query", 2, {0: []}) == {0: CommittedStage(-1, -1, True)}
        assert client.commit_stages("plant", "a query", 4, {}) == {}
        assert client.last_batches("plant", "a query") == {0: 3}
        assert payloads(client) == [b"a", b"b", b"c"]

    async def check() -> None:
        async with flock() as api:
            await api.admin(create)
            await api.use(write)

    run(check())


def test_chunks_with_many_names_are_checked_too(run: Run) -> None:
    names = [b"plant/%d" % number for number in range(2_000)]
    count = len(names)
    indexes = struct.pack(f"<{count}i", *range(count))
    offsets = bytes(4 * count + 4)

    def write(client: LogClient) -> None:
        good = assemble(names, indexes, [b"c"], bytes(4 * count), bytes(count), offsets, b"")
        client.stage("plant", 0, StageName("q", 0, 0, 0), 0, good)
        bad = assemble([*names[:-1], b"home"], indexes, [b"c"], bytes(4 * count), bytes(count), offsets, b"")
        with pytest.raises(ApiError, match="'home' is no topic name of this durable topic"):
            client.stage("plant", 0, StageName("q", 0, 0, 0), 1, bad)

    async def check() -> None:
        async with flock() as api:
            await api.admin(create)
            await api.use(write)

    run(check())


def test_what_is_dropped_has_to_be_staged_again(run: Run) -> None:
    def write(client: LogClient) -> None:
        client.stage("plant", 0, StageName("q", 0, 0, 0), 0, chunk(b"a"))
        client.drop_stages("plant", "q", 0)
        with pytest.raises(ApiError, match="stage it again") as caught:
            client.commit_stages("plant", "q", 0, {0: [StagePart(0, 0, 1)]})
        assert (caught.value.status, caught.value.code) == (409, "conflict")
        with pytest.raises(FlockError, match="has 1 shard, counted from 0; there is no shard 1"):
            client.stage("plant", 1, StageName("q", 0, 0, 0), 0, chunk(b"a"))

    async def check() -> None:
        async with flock() as api:
            await api.admin(create)
            await api.use(write)

    run(check())


def test_a_commit_that_takes_long_is_asked_for_again(run: Run) -> None:
    answers = [
        CommitStatus(False, False, -1, -1, 0),
        CommitStatus(False, True, -1, -1, 1),
        CommitStatus(True, True, 0, 5, 0),
    ]

    async def slow(group: int, query: bytes, batch: int, parts: Sequence[tuple[int, int, int]]) -> CommitStatus:
        return answers.pop(0)

    async def check() -> None:
        async with flock() as api:
            await api.admin(create)
            api.port.commit_sink = slow  # type: ignore[method-assign]
            done = await api.use(lambda client: client.commit_stages("plant", "q", 0, {0: [StagePart(0, 0, 1)]}))
            assert done == {0: CommittedStage(0, 5, False)}

    run(check())


def test_a_commit_that_does_not_move_is_given_up(run: Run) -> None:
    async def stuck(group: int, query: bytes, batch: int, parts: Sequence[tuple[int, int, int]]) -> CommitStatus:
        return CommitStatus(False, False, -1, -1, 3)

    async def check() -> None:
        async with flock() as api:
            await api.admin(create)
            api.port.commit_sink = stuck  # type: ignore[method-assign]
            with pytest.raises(FlockError, match="nothing moved for 2 s; commit it again"):
                await api.use(lambda client: client.commit_stages("plant", "q", 0, {0: [StagePart(0, 0, 1)]}))

    run(check())


def test_other_nodes_take_a_chunk_when_the_leader_is_away(run: Run) -> None:
    async def check() -> None:
        async with flock(3) as api:
            await api.admin(create)

            def first(client: LogClient) -> None:
                client.metadata("plant")

            await api.use(first)
            leader = api.port.leader_of(1)
            await api.apis[leader - 1].stop()
            named = [url for number, url in enumerate(api.urls) if number != leader - 1]
            api.urls = [named[0], *api.urls]
            await api.use(lambda client: client.stage("plant", 0, StageName("q", 0, 0, 0), 0, chunk(b"a")))
            assert list(api.port.stages.values()) == [{0: chunk(b"a")}]

    run(check())


def ask(api: Flock, path: str, body: bytes, content_type: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", api.apis[0].port, timeout=10)
    fields = {"Authorization": "Bearer right", "Content-Type": content_type, **headers}
    connection.request("POST", f"/api/v1/topics/plant{path}", body, fields)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


TWO_ATTEMPTS = (
    b'{"batch":0,"shards":[{"shard":0,"parts":[{"task":1,"attempt":1,"chunks":1},{"task":1,"attempt":2,"chunks":1}]}]}'
)
STAGE = "/partitions/0/stages?query=q&batch=0&task=0&attempt=0"


@pytest.mark.parametrize(
    ("path", "body", "content_type", "status", "sentence"),
    [
        (STAGE, chunk(b"a"), "application/json", 415, b"Content-Type: application/vnd.flockmq.batches"),
        (STAGE, b"", BATCHES, 400, b"96 bytes"),
        (STAGE, bytes(200), BATCHES, 400, b"no batch"),
        (STAGE, chunk(b"a", topic=b"home/1"), BATCHES, 400, b"no topic name of this durable topic"),
        (STAGE, bytes(sinks.STAGE_BYTES_MAX + 1), BATCHES, 413, b"longer than 4128768 bytes"),
        (STAGE.replace("&task=0", ""), chunk(b"a"), BATCHES, 400, b"task"),
        (STAGE.replace("batch=0", "batch=-1"), chunk(b"a"), BATCHES, 400, b"batch"),
        (STAGE.replace("query=q", "query="), chunk(b"a"), BATCHES, 400, b"query"),
        (STAGE.replace("query=q", "query=%00"), chunk(b"a"), BATCHES, 400, b"query"),
        (STAGE + "&sequence=16384", chunk(b"a"), BATCHES, 400, b"sequence"),
        (STAGE.replace("partitions/0", "partitions/7"), chunk(b"a"), BATCHES, 404, b"there is none"),
        ("/sinks/q/commit", b'{"batch":0,"shards":[{"shard":9,"parts":[]}]}', "application/json", 404, b"none '9'"),
        (
            "/sinks/q/commit",
            b'{"batch":0,"shards":[{"shard":0,"parts":[]},{"shard":0,"parts":[]}]}',
            "application/json",
            400,
            b"named twice",
        ),
        (
            "/sinks/q/commit",
            TWO_ATTEMPTS,
            "application/json",
            400,
            b"one attempt for each task",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Run, path: str, body: bytes, content_type: str, status: int, sentence: bytes
) -> None:
    async def check() -> None:
        async with flock() as api:
            await api.admin(create)
            found, text = await asyncio.to_thread(ask, api, path, body, content_type)
            assert (found, sentence in text) == (status, True), text
            assert not api.port.stages

    run(check())
