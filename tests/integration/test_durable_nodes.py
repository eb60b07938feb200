"""Durable topics on three real nodes, through the API of any of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.client.log_client import LogClient
from flockmq.cluster.advice import Advice, LeaderAdvice
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster

PAYLOADS = [b"%d" % number for number in range(300)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("nodes"), 3) as nodes:
        nodes.wait_settled()
        yield nodes


def log_client(cluster: NodeCluster, *named: int) -> LogClient:
    files = {f"http://{HOST}:{node.api_port}": node.folder / "credentials.toml" for node in cluster.nodes}

    def token_of(url: str) -> str | None:
        file: Path = files[url]
        return credentials.load(url, {"FLOCKMQ_CREDENTIALS": str(file)})

    urls = list(files)
    return LogClient([urls[number] for number in named], token_of=token_of, timeout_s=5)


def create(cluster: NodeCluster, name: str, **fields: object) -> model.DataTopic:
    made = cluster.nodes[0].admin().create_topic(model.TopicRequest(name=name, **fields))  # type: ignore[arg-type]
    cluster.wait(lambda: _all_led(cluster, name), f"leaders of {name}")
    return made


def _all_led(cluster: NodeCluster, name: str) -> bool:
    return all(
        topic == name and one.leader is not None
        for topic in (name,)
        for one in cluster.nodes[0].admin().topic_partitions(name)
    )


def read_all(client: LogClient, topic: str, shard: int) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while batches := client.read(topic, shard, offset).views:
        for view in batches:
            assert view.base_offset == offset
            found += [record.payload for record in view.records()]
            offset = view.next_offset
    return found


def test_what_one_node_decides_all_of_them_show(cluster: NodeCluster) -> None:
    made = create(cluster, "shown", shards=2)
    dumps = []
    for node in cluster.nodes:
        admin = node.admin()
        cluster.wait(lambda admin=admin: admin.dump()["index"] >= made.changed_index, "the state everywhere")  # type: ignore[misc]
        assert admin.topic("shown") == made
        dumps.append({name: value for name, value in admin.dump().items() if name != "segments"})
    assert dumps[0]["index"] != dumps[1]["index"] or dumps[0] == dumps[1]
    found = cluster.nodes[2].admin().explain("shown/x")
    assert found.durable is not None
    assert (found.durable.topic, found.durable.leader is not None) == ("shown", True)
    assert "Append" in [step.kind for step in found.steps]


def test_records_published_on_one_node_are_read_from_another(cluster: NodeCluster) -> None:
    create(cluster, "records", shards=3)
    with log_client(cluster, 1) as writer, log_client(cluster, 2) as reader:
        placed = writer.publish("records", [(f"records/{number % 7}", PAYLOADS[number]) for number in range(300)])
        assert all(one is not None for one in placed)
        found = [read_all(reader, "records", shard) for shard in range(3)]
        assert sorted(payload for one in found for payload in one) == sorted(PAYLOADS)
        for number, one in enumerate(placed):
            assert one is not None
            assert found[one.shard][one.offset] == PAYLOADS[number]
        people = cluster.nodes[0].admin().records("records", placed[0].shard if placed[0] else 0, limit=1)
        assert people.records[0].topic.startswith("records/")


def test_a_node_without_a_replica_fetches(cluster: NodeCluster) -> None:
    create(cluster, "single", replication_factor=1)
    [partition] = cluster.nodes[0].admin().topic_partitions("single")
    [home] = [one.node for one in partition.replicas]
    away = next(number for number, node in enumerate(cluster.nodes) if node.name != home)
    with log_client(cluster, away) as client:
        client.publish("single", [("single", payload) for payload in PAYLOADS])
        admin = cluster.nodes[away].admin()
        assert [one.offset for one in admin.records("single", 0, offset=290).records] == list(range(290, 300))
        answer = admin.read_batches("single", 0, offset=0, max_bytes=1_000_000, wait_ms=0)
        at_home = next(node for node in cluster.nodes if node.name == home)
        assert answer.headers["x-flockmq-replicas"] == f"http://{HOST}:{at_home.api_port}"
        assert answer.headers["x-flockmq-end-offset"] == "300"
        assert client.heads("single").after == "300"
        assert client.offsets_at("single", 0) == [0]


@pytest.mark.parametrize("copies", [1, 3])
def test_whoever_waits_hears_of_what_comes(cluster: NodeCluster, copies: int) -> None:
    name = f"waited{copies}"
    create(cluster, name, replication_factor=copies)
    found: list[int] = []

    def wait(number: int) -> None:
        with log_client(cluster, number) as client:
            after = client.heads(name, after="0", wait_ms=15_000).after
            batches = client.read(name, 0, 0, wait_ms=15_000)
            found.append(int(after) * len(batches))

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
    for thread in waiting:
        thread.start()
    with log_client(cluster, 0) as client:
        client.publish(name, [(name, b"x")])
    for thread in waiting:
        thread.join()
    assert found == [1, 1, 1]


def test_a_cursor_is_where_any_node_put_it(cluster: NodeCluster) -> None:
    create(cluster, "followed", shards=2)
    with log_client(cluster, 0) as one, log_client(cluster, 2) as other:
        placed = one.publish("followed", [(f"followed/{number}", b"x") for number in range(20)])
        per_shard = [sum(1 for place in placed if place and place.shard == shard) for shard in range(2)]
        assert one.create_cursor("reader", "followed", hold=True).lag == 20
        other.commit("reader", {0: per_shard[0]})
        assert one.cursor("reader").lag == per_shard[1]
        admin = cluster.nodes[1].admin()
        assert admin.reset_cursor("reader", "latest").lag == 0
        assert admin.reset_cursor("reader", "earliest", shard=1).lag == per_shard[1]
        other.commit("reader", {1: per_shard[1]})
        other.commit("reader", {1: 0})
        assert one.cursor("reader").lag == 0
        admin.delete_cursor("reader")


def test_a_single_publish_says_where_it_is(cluster: NodeCluster) -> None:
    create(cluster, "one-by-one")
    for number, node in enumerate(cluster.nodes):
        cluster.wait(lambda node=node: "one-by-one" in [one.name for one in node.admin().topics()], "the topic")  # type: ignore[misc]
        kept = node.admin().publish("one-by-one/x", "payload", qos=1)
        assert (kept.durable_topic, kept.shard, kept.offset) == ("one-by-one", 0, number)


def test_registered_clients_are_known_everywhere(cluster: NodeCluster) -> None:
    cluster.nodes[0].admin().create_namespace("acme")
    request = tenants.ClientRequest(name="alice", password="secret")
    cluster.nodes[1].admin().register_client(request, namespace="acme")
    for node in cluster.nodes:
        cluster.wait(lambda node=node: "acme" in [one.name for one in node.admin().namespaces()], "the namespace")  # type: ignore[misc]
        cluster.wait(
            lambda node=node: [one.name for one in node.admin().registered_clients("acme")] == ["alice"],  # type: ignore[misc]
            "the client",
        )
        assert "$argon2" not in str(node.admin().dump())


def test_reading_and_writing_go_on_when_a_leader_dies(cluster: NodeCluster) -> None:
    create(cluster, "survives", shards=3)
    with log_client(cluster, 0, 1, 2) as client:
        client.publish("survives", [(f"survives/{number}", PAYLOADS[number]) for number in range(100)])
        dead = cluster.nodes[1]
        dead.kill()
        client.publish("survives", [(f"survives/{number}", PAYLOADS[number]) for number in range(100, 200)])
        found = [payload for shard in range(3) for payload in read_all(client, "survives", shard)]
        assert sorted(found) == sorted(PAYLOADS[:200])
        partitions = client.metadata("survives", fresh=True)
        assert all(not one.healthy and dead.name in one.problem for one in partitions)
        decisions = cluster.nodes[0].admin().cluster().decisions
        assert decisions is not None
        assert (decisions.leader is not None, len(decisions.voters)) == (True, 3)
        dead.start()
        dead.wait_ready()
        cluster.wait(lambda: all(one.healthy for one in client.metadata("survives", fresh=True)), "all replicas")
    cluster.wait_settled()


def test_leaders_go_where_advice_says_and_stay_there(cluster: NodeCluster) -> None:
    create(cluster, "placed", shards=6)
    cluster.wait_settled()  # what moves takes no advice
    admin = cluster.nodes[1].admin()
    wanted = cluster.nodes[2].name

    def leaders() -> list[str | None]:
        return [one.leader for one in admin.topic_partitions("placed")]

    advice = Advice(leaders=[LeaderAdvice(topic="placed", shard=shard, to_node=wanted) for shard in range(6)])
    found = admin.apply_advice(advice)
    assert [step.reason for step in found.steps if step.outcome == "refused"] == []
    assert found.moves >= 3, "by number each node led about two"
    cluster.wait(lambda: leaders() == [wanted] * 6, "leaders where they should be")
    create(cluster, "another", shards=3)  # the cores look again whether all is even
    cluster.wait(lambda: admin.rebalance_progress().settled, "all to be where it should be")
    assert leaders() == [wanted] * 6
    assert admin.apply_advice(advice, dry_run=True).moves == 0
