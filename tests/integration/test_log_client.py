"""The log client and the admin client against the API over real sockets; the logs behind it are in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.api import AdminApi
from flockmq.admin.desk import NodeInfo, Ports
from flockmq.client.admin import AdminClient, UnreachableError
from flockmq.client.log_client import RETRY_S, LogClient, ReadFrom
from flockmq.cluster.commands import NodeSeen
from flockmq.errors import ApiError, BeyondEnd, FlockError, OffsetGone
from flockmq.security import credentials
from flockmq.spark.cursors import positions_of
from flockmq.spark.options import ReadOptions
from flockmq.spark.planning import Offsets
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness
from integration.support.node import Run
from unit.admin.durable_desks import MemoryDurable

T = TypeVar("T")


class Flock:
    """Several APIs in front of one memory: each is a node of the cluster."""

    def __init__(self, port: MemoryDurable, apis: list[AdminApi]) -> None:
        self.port = port
        self.apis = apis
        self.urls = [f"http://127.0.0.1:{api.port}" for api in apis]

    async def use(self, action: Callable[[LogClient], T], **options: object) -> T:
        def act() -> T:
            with LogClient(self.urls[0], "right", timeout_s=5, retry_s=2, **options) as client:  # type: ignore[arg-type]
                return action(client)

        return await asyncio.to_thread(act)

    async def admin(self, action: Callable[[AdminClient], T]) -> T:
        return await asyncio.to_thread(lambda: action(AdminClient(self.urls[0], "right")))


@asynccontextmanager
async def flock(nodes: int = 1, wrong_token_on: tuple[int, ...] = ()) -> AsyncIterator[Flock]:
    harness = BrokerHarness()
    port = MemoryDurable(nodes=0)
    apis = []
    for node in range(1, nodes + 1):
        api = AdminApi(
            NodeInfo(name=f"n{node}", version="1", build="pure"),
            Ports(
                broker=lambda: harness.broker,
                clock=lambda: harness.now,
                flush=harness.flush,
                wall_clock=lambda: WALL_MS + harness.now - START_MS,
                find_durable=lambda: port,
            ),
            (lambda token: token == "another") if node in wrong_token_on else (lambda token: token == "right"),
        )
        await api.start("127.0.0.1", 0)
        api.mark_ready()
        apis.append(api)
        port.apply(NodeSeen(node, f"n{node}@host", "127.0.0.1", 1, f"http://127.0.0.1:{api.port}"))
    try:
        yield Flock(port, apis)
    finally:
        for api in apis:
            await api.stop()


def create(client: AdminClient, shards: int = 1) -> None:
    client.create_topic(model.TopicRequest(name="plant", shards=shards))


def numbers(first: int, end: int) -> list[tuple[str, bytes]]:
    return [("plant/1", b"%d" % number) for number in range(first, end)]


def payloads(client: LogClient, offset: int, shard: int = 0) -> list[bytes]:
    return [record.payload for view in client.read("plant", shard, offset) for record in view.records()]


def test_the_admin_client_reaches_every_operation(run: Run) -> None:
    def tour(client: AdminClient) -> None:
        create(client, shards=2)
        assert [one.name for one in client.topics(namespace="default")] == ["plant"]
        assert client.topic("plant").shards == 2
        assert client.alter_topic("plant", model.TopicChange(shards=3)).shards == 3
        assert [one.shard for one in client.topic_partitions("plant")] == [0, 1, 2]
        group = client.topic("plant").groups[1]
        assert client.partition(group).shard == 1
        assert len(list(client.partitions(topic="plant"))) == 3
        records = [model.RecordToPublish(topic="plant/1", payload="x")]
        [placed] = client.publish_records("plant", model.PublishRecords(records=records)).placed
        assert placed is not None
        assert client.records("plant", placed.shard).records[0].payload == "x"
        assert client.heads("plant").heads[placed.shard].end_offset == 1
        assert client.offsets_at("plant", 0) == [0, 0, 0]
        assert client.create_cursor(tenants.CursorRequest(name="c", topic="plant")).lag == 1
        client.commit_cursor("c", {placed.shard: 1})
        assert client.cursor("c").lag == 0
        assert client.reset_cursor("c", "earliest").lag == 1
        assert [one.name for one in client.cursors()] == ["c"]
        client.delete_cursor("c")
        assert client.create_namespace("acme", {"topics_max": 1}).limits == {"topics_max": 1}
        assert client.alter_namespace("acme", {"topics_max": None}).limits == {}
        assert [one.name for one in client.namespaces()] == ["default", "acme"]
        client.register_client(tenants.ClientRequest(name="alice", superuser=True), namespace="acme")
        assert client.namespace("acme").clients == 1
        assert [one.name for one in client.registered_clients("acme")] == ["alice"]
        assert client.registered_client("alice", namespace="acme").superuser
        assert not client.alter_client("alice", tenants.ClientChange(superuser=False), namespace="acme").superuser
        client.delete_client("alice", namespace="acme")
        client.delete_namespace("acme")
        assert client.rebalance(5).begun == 0
        assert client.rebalance_progress().settled
        assert client.dump()["namespaces"][0]["name"] == "default"
        client.delete_topic("plant")
        assert list(client.topics()) == []

    async def scenario() -> None:
        async with flock() as site:
            await site.admin(tour)

    run(scenario())


def test_records_are_read_as_batches_from_any_offset(run: Run) -> None:
    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            placed = await site.use(lambda client: client.publish("plant", numbers(0, 10), client="me"))
            assert [one.offset for one in placed if one is not None] == list(range(10))
            assert await site.use(lambda client: payloads(client, 0)) == [b"%d" % number for number in range(10)]
            found = await site.use(lambda client: client.read("plant", 0, 7, max_bytes=1))
            assert (len(found), found.next_offset, found.first_offset, found.end_offset) == (1, 8, 0, 10)
            at_end = await site.use(lambda client: client.read("plant", 0, 10))
            assert (len(at_end), at_end.next_offset) == (0, 10)

    run(scenario())


def test_a_read_waits_for_records(run: Run) -> None:
    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            waiting = asyncio.create_task(site.use(lambda client: client.read("plant", 0, 0, wait_ms=10_000)))
            await site.use(lambda client: client.publish("plant", numbers(0, 1)))
            assert len(await waiting) == 1

    run(scenario())


def test_a_read_goes_on_with_another_replica_when_nodes_die(run: Run) -> None:
    async def scenario() -> None:
        async with flock(nodes=3) as site:
            await site.admin(create)
            client = LogClient(site.urls[0], "right", timeout_s=5, retry_s=5)
            await asyncio.to_thread(client.publish, "plant", numbers(0, 9))
            servers = []
            for offset, dead in ((0, 0), (3, 1), (6, None)):
                found = await asyncio.to_thread(client.read, "plant", 0, offset, max_bytes=1)
                assert found.offset == offset
                servers.append(found.server_url)
                if dead is not None:
                    stopped = site.urls.index(found.server_url)
                    await site.apis[stopped].stop()
            assert len(set(servers)) == 3
            assert await asyncio.to_thread(lambda: client.topic("plant").name) == "plant"
            client.close()

    run(scenario())


def test_filters_leave_out_batches_and_the_reader_goes_on(run: Run) -> None:
    def tour(client: LogClient) -> None:
        for number in range(4):
            client.publish("plant", [(f"plant/{number % 2}", b"%d" % number)])
        found = client.read("plant", 0, 0, filters=["plant/1"])
        assert [view.base_offset for view in found] == [1, 3]
        found = client.read("plant", 0, 0, filters=["plant/7", "plant/8/#"])
        assert (len(found), found.next_offset) == (0, 4)
        with pytest.raises(ApiError, match="`filter`"):
            client.read("plant", 0, 0, filters=["a/#/b"])
        everything = client.read("plant", 0, 0, filters=[f"plant/{'x' * 60}/{number}" for number in range(64)])
        assert len(everything) == 4, "more than a request has room for"

    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            await site.use(tour)

    run(scenario())


def test_leaders_or_followers_are_asked_first_and_others_stand_in(run: Run) -> None:
    async def scenario() -> None:
        async with flock(nodes=3) as site:
            await site.admin(create)
            leader = site.urls[site.port.leader_of(1) - 1]
            client = LogClient(site.urls[0], "right", timeout_s=5, retry_s=5)
            await asyncio.to_thread(client.publish, "plant", numbers(0, 3))

            async def served_by(read_from: ReadFrom) -> str:
                found = await asyncio.to_thread(client.read, "plant", 0, 0, read_from=read_from)
                assert len(found) == 3
                return found.server_url

            assert await served_by("leader") == leader
            assert await served_by("follower") != leader
            await site.apis[site.urls.index(leader)].stop()
            assert await served_by("leader") != leader
            client.close()

    run(scenario())


def test_when_nobody_is_left_it_says_so_in_a_sentence(run: Run) -> None:
    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            client = LogClient(site.urls[0], "right", retry_s=0)
            await asyncio.to_thread(client.metadata, "plant")
            await site.apis[0].stop()
            with pytest.raises(FlockError, match="No node could serve shard 0 of topic 'plant'"):
                await asyncio.to_thread(client.read, "plant", 0, 0)
            with pytest.raises(UnreachableError, match="is it running"):
                await asyncio.to_thread(client.publish, "plant", numbers(0, 1))
            client.close()

    run(scenario())


def test_a_node_that_wants_another_token_is_passed_over(run: Run) -> None:
    async def scenario() -> None:
        async with flock(nodes=3, wrong_token_on=(2, 3)) as site:
            await site.admin(create)
            await site.use(lambda client: client.publish("plant", numbers(0, 1)))
            found = await site.use(lambda client: client.read("plant", 0, 0))
            assert found.server_url == site.urls[0]

    run(scenario())


def test_each_server_can_have_its_own_token(run: Run) -> None:
    async def scenario() -> None:
        async with flock(nodes=2, wrong_token_on=(2,)) as site:
            await site.admin(create)
            tokens = dict(zip(site.urls, ("right", "another"), strict=True))
            client = LogClient(site.urls[0], token_of=tokens.get, timeout_s=5)
            await asyncio.to_thread(client.publish, "plant", numbers(0, 1))
            await asyncio.to_thread(client.metadata, "plant")
            await site.apis[0].stop()
            found = await asyncio.to_thread(client.read, "plant", 0, 0)
            assert found.server_url == site.urls[1]
            client.close()

    run(scenario())


def test_without_a_token_it_is_that_of_the_user(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with flock(nodes=2) as site:
            await site.admin(create)
            monkeypatch.delenv("FLOCKMQ_TOKEN", raising=False)
            monkeypatch.setenv("FLOCKMQ_CREDENTIALS", str(tmp_path / "credentials.toml"))
            credentials.save(site.urls[0], "right")
            with LogClient(site.urls[0]) as client:
                await asyncio.to_thread(client.publish, "plant", numbers(0, 1))
                await asyncio.to_thread(client.metadata, "plant")
                await site.apis[0].stop()
                found = await asyncio.to_thread(client.read, "plant", 0, 0)
                assert found.server_url == site.urls[1]

    run(scenario())


def test_what_retention_took_is_told_with_the_oldest_offset(run: Run) -> None:
    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            await site.use(lambda client: client.publish("plant", numbers(0, 5)))
            site.port.log(1).first = 3
            with pytest.raises(OffsetGone) as gone:
                await site.use(lambda client: client.read("plant", 0, 0))
            assert gone.value.first == 3

    run(scenario())


def test_mistakes_are_told_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with flock() as site:
            with pytest.raises(ApiError, match="no topic 'plant'"):
                await site.use(lambda client: client.read("plant", 0, 0))
            await site.admin(create)
            with pytest.raises(FlockError, match="no shard 7"):
                await site.use(lambda client: client.read("plant", 7, 0))
            with pytest.raises(ApiError, match="no topic name of 'plant'"):
                await site.use(lambda client: client.publish("plant", [("other", b"")]))

    run(scenario())


def test_damaged_batches_are_not_believed(run: Run) -> None:
    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            await site.use(lambda client: client.publish("plant", numbers(0, 1)))
            [batch] = site.port.log(1).batches
            site.port.log(1).batches = [batch[:-9] + bytes((batch[-9] ^ 1,)) + batch[-8:]]
            client = LogClient(site.urls[0], "right", retry_s=0)
            with pytest.raises(FlockError, match="no part of a log"):
                await asyncio.to_thread(client.read, "plant", 0, 0)
            client.close()

    run(scenario())


def test_what_is_beyond_the_end_is_not_waited_for(run: Run) -> None:
    def tour(client: LogClient) -> None:
        client.publish("plant", numbers(0, 4))
        began_s = time.monotonic()
        with pytest.raises(BeyondEnd, match="beyond the end") as refusal:
            client.read("plant", 0, 9_999)
        assert refusal.value.end == 4
        assert time.monotonic() - began_s < RETRY_S / 2, "it was not tried again for retry_s"
        assert client.read("plant", 0, 4).views == []

    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            await site.use(tour)

    run(scenario())


def test_records_that_nobody_stored_are_sent_again(run: Run) -> None:
    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            site.port.refuse = "The partition has no leader now; try again."
            client = LogClient(site.urls[0], "right", retry_s=0)
            with pytest.raises(ApiError, match="no leader now") as refusal:
                await asyncio.to_thread(client.publish, "plant", numbers(0, 2))
            assert refusal.value.status == 503
            client.close()
            sending = asyncio.create_task(site.use(lambda client: client.publish("plant", numbers(0, 2))))
            await asyncio.sleep(0)
            site.port.refuse = ""
            await sending
            assert site.port.log(1).end == 2

    run(scenario())


def test_cursors_and_heads(run: Run) -> None:
    def tour(client: LogClient) -> None:
        client.publish("plant", numbers(0, 4))
        assert client.create_cursor("reader", "plant", hold=True, start="offset:1").lag == 3
        client.commit("reader", {0: 4})
        assert client.cursor("reader").lag == 0
        heads = client.heads("plant")
        assert heads.after == "4"
        assert client.heads("plant", after=heads.after, wait_ms=1).after == "4"
        assert client.offsets_at("plant", "2026-03-01T12:00:00Z") == [0]
        assert client.topic("plant").ack == "quorum"

    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            await site.use(tour)

    run(scenario())


def test_a_client_needs_a_server() -> None:
    with pytest.raises(FlockError, match="No server"):
        LogClient([])


def test_a_query_does_not_begin_at_the_start_of_a_shard_because_nobody_knows_its_cursor(run: Run) -> None:
    async def scenario() -> None:
        async with flock() as site:
            await site.admin(partial(create, shards=2))
            await site.use(lambda client: client.publish("plant", numbers(0, 5)))
            await site.use(lambda client: client.create_cursor("spark", "plant", start="latest"))
            options = ReadOptions.parse(
                {"server": site.urls[0], "token": "right", "subscribe": "plant", "cursor": "spark"}
            )

            def positions(client: LogClient) -> Offsets:
                found = positions_of(options, client, {"plant": client.heads("plant").heads})
                assert found is not None
                return found

            before = await site.use(positions)
            site.port.leaderless = {2}
            with pytest.raises(FlockError, match=r"No leader of shard 1 answers.*start the query again"):
                await site.use(positions)
            with pytest.raises(ApiError, match="Create it again"):
                await site.use(lambda client: client.create_cursor("spark", "plant"))
            site.port.leaderless = set()
            assert await site.use(positions) == before
            await site.admin(lambda client: client.alter_topic("plant", model.TopicChange(shards=3)))
            found = await site.use(positions)
            assert found == {"plant": {**before["plant"], 2: 0}}, "a shard that is new is read from its start"

    run(scenario())
