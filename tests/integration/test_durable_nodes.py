"""Durable topics on three real nodes, through the API of any of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.client.log_client import LogClient
from flockmq.client.topic_calls import BATCHES
from flockmq.cluster.advice import Advice, LeaderAdvice
from flockmq.errors import ApiError, FlockError
from flockmq.security import credentials
from flockmq.server.state_copy import STATE_FILE
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

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


def _answers(node: NodeProcess) -> bool:
    try:
        return node.admin().cluster().state == "formed"
    except FlockError:
        return False


def _deciders(node: NodeProcess) -> int:
    """Voters of cluster state, where somebody leads them."""
    decisions = node.admin().cluster().decisions
    return len(decisions.voters) if decisions is not None and decisions.leader is not None else 0


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
    made = cluster.create_topic("shown", shards=2)
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
    cluster.create_topic("records", shards=3)
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
    cluster.create_topic("single", replication_factor=1)
    [partition] = cluster.nodes[0].admin().topic_partitions("single")
    [home] = [one.node for one in partition.replicas]
    away = next(number for number, node in enumerate(cluster.nodes) if node.name != home)
    with log_client(cluster, away) as client:
        client.publish("single", [("single", payload) for payload in PAYLOADS])
        admin = cluster.nodes[away].admin()
        assert [one.offset for one in admin.records("single", 0, offset=290).records] == list(range(290, 300))
        answer = admin.transport.request("GET", "/api/v1/topics/single/partitions/0/records?offset=0", accept=BATCHES)
        at_home = next(node for node in cluster.nodes if node.name == home)
        assert answer.headers["x-flockmq-replicas"] == f"http://{HOST}:{at_home.api_port}"
        assert answer.headers["x-flockmq-end-offset"] == "300"
        assert client.heads("single").after == "300"
        assert client.offsets_at("single", 0) == [0]


@pytest.mark.parametrize("copies", [1, 3])
def test_what_is_beyond_the_end_is_told_by_any_node(cluster: NodeCluster, copies: int) -> None:
    name = f"short{copies}"
    cluster.create_topic(name, replication_factor=copies)
    with log_client(cluster, 0) as client:
        client.publish(name, [(name, b"x")] * 3)
    for node in cluster.nodes:
        with pytest.raises(ApiError) as refusal:
            node.admin().records(name, 0, offset=9_999)
        assert (refusal.value.status, refusal.value.code) == (416, "beyond_end")
        assert refusal.value.headers["x-flockmq-end-offset"] == "3"
        assert node.admin().records(name, 0, offset=3).records == []


@pytest.mark.parametrize("copies", [1, 3])
def test_whoever_waits_hears_of_what_comes(cluster: NodeCluster, copies: int) -> None:
    name = f"waited{copies}"
    cluster.create_topic(name, replication_factor=copies)
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
    cluster.create_topic("followed", shards=2)
    with log_client(cluster, 0) as one, log_client(cluster, 2) as other:
        placed = one.publish("followed", [(f"followed/{number}", b"x") for number in range(20)])
        per_shard = [sum(1 for place in placed if place and place.shard == shard) for shard in range(2)]
        assert one.create_cursor("reader", "followed", hold=True).lag == 20
        for node in cluster.nodes:
            cluster.wait(lambda node=node: "reader" in [one.name for one in node.admin().cursors()], "the cursor")  # type: ignore[misc]
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
    cluster.create_topic("one-by-one")
    for number, node in enumerate(cluster.nodes):
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
    cluster.create_topic("survives", shards=3)
    with log_client(cluster, 0, 1, 2) as client:
        client.publish("survives", [(f"survives/{number}", PAYLOADS[number]) for number in range(100)])
        dead = cluster.nodes[1]
        dead.kill()
        client.publish("survives", [(f"survives/{number}", PAYLOADS[number]) for number in range(100, 200)])
        found = [payload for shard in range(3) for payload in read_all(client, "survives", shard)]
        assert sorted(found) == sorted(PAYLOADS[:200])
        partitions = client.metadata("survives", fresh=True)
        assert all(not one.healthy and dead.name in one.problem for one in partitions)
        cluster.wait(lambda: _deciders(cluster.nodes[0]) == 3, "a leader of cluster state, and three voters")
        dead.start()
        dead.wait_ready()
        cluster.wait(lambda: all(one.healthy for one in client.metadata("survives", fresh=True)), "all replicas")
    cluster.wait_settled()


def test_leaders_go_where_advice_says_and_stay_there(cluster: NodeCluster) -> None:
    cluster.create_topic("placed", shards=6)
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
    cluster.create_topic("another", shards=3)  # the cores look again whether all is even
    cluster.wait(lambda: admin.rebalance_progress().settled, "all to be where it should be")
    assert leaders() == [wanted] * 6
    assert admin.apply_advice(advice, dry_run=True).moves == 0


def test_without_a_majority_publishers_are_refused_with_a_code(cluster: NodeCluster) -> None:
    """Also where the node has sent to the leader that is gone now, and knew it well."""
    cluster.create_topic("lonely", shards=3)
    survivor, *others = cluster.nodes
    answers: queue.Queue[int] = queue.Queue()
    client = paho.Client(CallbackAPIVersion.VERSION2, "lonely", protocol=paho.MQTTv5)
    client.on_publish = lambda _client, _data, _mid, code, _properties: answers.put(code.value)
    client.on_disconnect = lambda _client, _data, _flags, code, _properties: answers.put(-code.value)
    client.connect(HOST, survivor.mqtt_port)
    client.loop_start()
    names = [f"lonely/{number}" for number in range(12)]
    try:
        for name in names:
            client.publish(name, b"x", 1)
        assert [answers.get(timeout=30) for _ in names] == [0] * len(names)
        for node in others:
            node.kill()
        admin = survivor.admin()
        cluster.wait(lambda: all(one.leader is None for one in admin.topic_partitions("lonely")), "nobody to lead")
        for name in names:
            client.publish(name, b"x", 1)
        assert [answers.get(timeout=30) for _ in names] == [0x80] * len(names)
    finally:
        client.disconnect()
        client.loop_stop()
        for node in others:
            if not node.is_running:
                node.start()
        for node in others:
            node.wait_ready()
    cluster.wait_settled()


def test_a_leader_that_says_nothing_moves_no_cursor(cluster: NodeCluster) -> None:
    cluster.create_topic("silent", replication_factor=1)
    [partition] = cluster.nodes[0].admin().topic_partitions("silent")
    leader = next(node for node in cluster.nodes if partition.leader == node.name)
    admin = next(node for node in cluster.nodes if node is not leader).admin()
    records = [model.RecordToPublish(topic="silent/x", payload="x") for _ in range(11)]
    admin.publish_records("silent", model.PublishRecords(records=records))
    request = tenants.CursorRequest(name="still", topic="silent")
    admin.create_cursor(request)
    admin.commit_cursor("still", {0: 10})
    leader.pause()
    try:
        [position] = admin.cursor("still").positions
        assert (position.known, position.offset, position.lag) == (False, None, None)
        with pytest.raises(ApiError) as refused:
            admin.create_cursor(request)
        assert refused.value.status == 503
    finally:
        leader.resume()
    cluster.wait_settled()
    cluster.wait(lambda: admin.cursor("still").problem == "", "the leader")
    found = admin.create_cursor(request)
    assert (found.positions[0].offset, found.lag) == (10, 1)


def test_a_node_that_can_not_know_of_its_last_changes_serves_nobody(cluster: NodeCluster) -> None:
    """All nodes lose power right after a topic was made; one of them starts alone."""
    copies = {node: (node.folder / "data" / STATE_FILE).read_bytes() for node in cluster.nodes}
    cluster.create_topic("made-last")
    for node in cluster.nodes:
        node.kill()
    for node, copy in copies.items():
        (node.folder / "data" / STATE_FILE).write_bytes(copy)
    alone, *others = cluster.nodes
    alone.start()
    cluster.wait(lambda: "waiting_for_majority" in alone.log_tail(), "word of it")
    assert alone.stop() == 0, "it can be stopped"
    alone.start()
    cluster.wait(lambda: _answers(alone), "the admin API, to see what is wrong")
    assert not alone.is_serving
    for node in others:
        node.start()
    for node in cluster.nodes:
        node.wait_ready()
    assert alone.admin().topic("made-last").name == "made-last"
    cluster.wait_settled()
