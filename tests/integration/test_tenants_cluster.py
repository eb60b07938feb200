"""Namespaces, registered clients and rules on real nodes: asked for on one, in force on all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

import pytest

from flockmq.admin.durable_model import TopicRequest
from flockmq.admin.durable_tenants_model import AccessRequest, AccessRule, ClientChange, ClientRequest
from flockmq.client.admin import AdminClient
from flockmq.client.mqtt import MqttClient, MqttError, Options
from flockmq.errors import ApiError
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster

NODES = 2
REFUSED = reasons.NOT_AUTHORIZED
UNHEARD = reasons.NO_MATCHING_SUBSCRIBERS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("tenants"), NODES) as nodes:
        nodes.wait(lambda: len(list(nodes.nodes[0].admin().dump()["nodes"])) == NODES, "all nodes in cluster state")
        nodes.nodes[0].admin().create_namespace("acme")
        nodes.nodes[0].admin().create_namespace("umbrella")
        yield nodes


def options(cluster: NodeCluster, number: int, client_id: str, user: str, password: bytes) -> Options:
    return Options(
        host=HOST, port=cluster.nodes[number].mqtt_port, client_id=client_id, username=user, password=password
    )


async def connected(cluster: NodeCluster, number: int, client_id: str, user: str, password: bytes) -> MqttClient:
    return await MqttClient.connect(options(cluster, number, client_id, user, password))


def all_know(cluster: NodeCluster, index: int) -> bool:
    """Whether every node has cluster state up to here."""
    return all(node.admin().dump()["index"] >= index for node in cluster.nodes)


def ask(cluster: NodeCluster, number: int, what: Callable[[AdminClient], object]) -> None:
    """Have a node change cluster state, and wait until all know."""
    admin = cluster.nodes[number].admin()
    what(admin)
    index = admin.dump()["index"]
    cluster.wait(lambda: all_know(cluster, index), "the state on all nodes")


async def end_of(client: MqttClient) -> int | None:
    """Why the broker ended a connection."""
    async with asyncio.timeout(20):
        with pytest.raises(MqttError) as ended:
            async for _message in client.messages():
                pass
    return ended.value.reason_code


async def next_message(client: MqttClient) -> tuple[str, bytes]:
    async with asyncio.timeout(20):
        async for message in client.messages():
            return message.topic, message.payload
    raise AssertionError("the connection has ended")


async def test_a_ban_holds_on_all_nodes_and_after_a_restart(cluster: NodeCluster) -> None:
    """Given on one node: clients of both go, none comes back, not even when the node was started again."""
    there = [
        await MqttClient.connect(Options(host=HOST, port=node.mqtt_port, client_id=f"noisy{number}", username="noisy"))
        for number, node in enumerate(cluster.nodes)
    ]
    banned = await asyncio.to_thread(lambda: cluster.nodes[0].admin().ban("username", "noisy", reason="noise"))
    assert banned.kicked == NODES
    assert [await end_of(client) for client in there] == [reasons.ADMINISTRATIVE_ACTION] * NODES
    found = await asyncio.to_thread(lambda: [list(node.admin().bans()) for node in cluster.nodes])
    assert [[(one.kind, one.value, one.reason) for one in each] for each in found] == [
        [("username", "noisy", "noise")]
    ] * NODES
    dumped = await asyncio.to_thread(lambda: cluster.nodes[1].admin().dump())
    assert [one["value"] for one in dumped["bans"]] == ["noisy"]

    def start_again() -> None:
        cluster.nodes[1].stop()
        cluster.nodes[1].start()
        cluster.nodes[1].wait_ready()
        cluster.wait(cluster.sees_all, "both nodes to see each other")

    await asyncio.to_thread(start_again)
    for node in cluster.nodes:
        with pytest.raises(MqttError) as refused:
            await MqttClient.connect(Options(host=HOST, port=node.mqtt_port, client_id="again", username="noisy"))
        assert refused.value.reason_code == reasons.BANNED
    await asyncio.to_thread(lambda: cluster.nodes[1].admin().unban("username", "noisy"))
    for number, node in enumerate(cluster.nodes):
        client = await MqttClient.connect(
            Options(host=HOST, port=node.mqtt_port, client_id=f"back{number}", username="noisy")
        )
        await client.disconnect()
    for client in there:
        await client.disconnect()


async def test_tenants_over_nodes(cluster: NodeCluster) -> None:
    for namespace in ("acme", "umbrella"):
        request = ClientRequest(name="bob", password=f"of {namespace}")
        register = partial(AdminClient.register_client, request=request, namespace=namespace)
        await asyncio.to_thread(ask, cluster, 1, register)
    acme = [await connected(cluster, number, f"c{number}", "acme/bob", b"of acme") for number in range(NODES)]
    umbrella = await connected(cluster, 1, "c1", "umbrella/bob", b"of umbrella")
    for client in (acme[1], umbrella):
        await client.subscribe(SubscribeEntry(b"#", 1))
    async with asyncio.timeout(20):
        # A SUBACK does not wait for a node that stands still: whether the first one knows the route, it says itself.
        while await acme[0].publish("plant/1", b"of acme", qos=1) != 0:
            pass
    assert await next_message(acme[1]) == ("plant/1", b"of acme")
    await umbrella.publish("plant/1", b"of umbrella", qos=1)
    assert await next_message(umbrella) == ("plant/1", b"of umbrella"), "the first it hears of"
    with pytest.raises(MqttError):
        await connected(cluster, 0, "x", "acme/bob", b"of umbrella")

    found = await asyncio.to_thread(lambda: list(cluster.nodes[1].admin().connections(namespace="acme")))
    assert sorted((one.node, one.client_id, one.username, one.namespace) for one in found) == [
        (node.name, f"c{number}", "bob", "acme") for number, node in enumerate(cluster.nodes)
    ]

    change = partial(AdminClient.alter_client, name="bob", change=ClientChange(password="another"), namespace="acme")
    await asyncio.to_thread(ask, cluster, 0, change)
    assert [await end_of(client) for client in acme] == [reasons.NOT_AUTHORIZED] * NODES
    back = await connected(cluster, 1, "c1", "acme/bob", b"another")
    await asyncio.to_thread(ask, cluster, 0, partial(AdminClient.delete_client, name="bob", namespace="acme"))
    assert await end_of(back) == reasons.ADMINISTRATIVE_ACTION
    await umbrella.publish("still", b"here", qos=1)
    for client in (*acme, umbrella, back):
        await client.disconnect()


async def test_clients_and_sessions_are_listed_shown_and_kicked_from_any_node(cluster: NodeCluster) -> None:
    there = [
        await MqttClient.connect(Options(host=HOST, port=node.mqtt_port, client_id=f"seen{number}"))
        for number, node in enumerate(cluster.nodes)
    ]
    await there[1].subscribe(SubscribeEntry(b"a/+", 1))
    names = [node.name for node in cluster.nodes]

    def look() -> None:
        for node in cluster.nodes:
            admin = node.admin()
            unanswered: list[str] = []
            found = list(admin.connections(client_id_prefix="seen", unanswered=unanswered))
            assert sorted((one.client_id, one.node) for one in found) == [("seen0", names[0]), ("seen1", names[1])]
            assert not unanswered
            assert [one.client_id for one in admin.connections(client_id_prefix="seen", node="n2")] == ["seen1"]
            assert sorted(one.node for one in admin.sessions(client_id_prefix="seen")) == names
            assert admin.connection("seen1").node == admin.session("seen1").node == names[1]
            assert [one.filter for one in admin.session_subscriptions("seen1")] == ["a/+"]
            assert [one.node for one in admin.subscriptions(match="a/b")] == [names[1]]
        cluster.nodes[1].pause()
        try:
            found = list(cluster.nodes[0].admin().connections(client_id_prefix="seen", unanswered=unanswered))
            assert [one.client_id for one in found] == ["seen0"]
            assert unanswered == [names[1]]
        finally:
            cluster.nodes[1].resume()
        cluster.wait(cluster.sees_all, "both nodes to see each other")
        cluster.nodes[0].admin().kick("seen1")

    await asyncio.to_thread(look)
    assert await end_of(there[1]) == reasons.ADMINISTRATIVE_ACTION
    for client in there:
        await client.disconnect()


async def test_a_tenant_stores_no_more_than_it_may_on_all_nodes_together(cluster: NodeCluster) -> None:
    """Publishing through either node ends for both, and goes on when the limit is raised."""
    admins = [node.admin() for node in cluster.nodes]

    def prepare() -> None:
        admins[0].create_topic(TopicRequest(name="kept", namespace="umbrella", shards=2, replication_factor=1))
        partitions = partial(admins[0].topic_partitions, "kept", namespace="umbrella")
        cluster.wait(lambda: all(one.leader is not None for one in partitions()), "leaders")
        register = partial(
            AdminClient.register_client, request=ClientRequest(name="eve", password="p"), namespace="umbrella"
        )
        ask(cluster, 0, register)
        ask(cluster, 1, lambda admin: admin.alter_namespace("umbrella", {"stored_bytes_max": 20_000}))

    async def until(client: MqttClient, code: int) -> None:
        async with asyncio.timeout(20):
            while await client.publish("kept/a", b"x" * 1_000, qos=1) != code:  # noqa: ASYNC110  (the broker tells nobody)
                await asyncio.sleep(0.05)

    await asyncio.to_thread(prepare)
    clients = [await connected(cluster, number, f"s{number}", "umbrella/eve", b"p") for number in range(NODES)]
    for client in clients:
        await until(client, reasons.QUOTA_EXCEEDED)
    for admin in admins:
        shown = await asyncio.to_thread(admin.namespace, "umbrella")
        assert shown.stored_bytes is not None
        assert shown.stored_bytes >= 20_000
        with pytest.raises(ApiError, match="shorten retention") as refused:
            await asyncio.to_thread(partial(admin.publish, "kept/a", b"x", namespace="umbrella"))
        assert refused.value.status == 422
    await asyncio.to_thread(admins[0].alter_namespace, "umbrella", {"stored_bytes_max": None})
    for client in clients:
        await until(client, 0)
        await client.disconnect()


def rules(*denied: tuple[str, Literal["publish", "subscribe", "capture"], str]) -> AccessRequest:
    """All is allowed but this."""
    made = [AccessRule(allow=False, who=[who], action=action, topics=[topic]) for who, action, topic in denied]
    return AccessRequest(default="allow", rules=made)


async def until(client: MqttClient, topic: str, answer: int) -> None:
    """Publish until that is the answer."""
    async with asyncio.timeout(20):
        while await client.publish(topic, b"x", qos=1) != answer:
            pass


async def test_rules_hold_for_connections_of_all_nodes(cluster: NodeCluster) -> None:
    first = cluster.nodes[0].admin()
    register = partial(AdminClient.register_client, request=ClientRequest(name="carol", password="x"))
    await asyncio.to_thread(ask, cluster, 0, partial(register, namespace="acme"))
    carol = await connected(cluster, 1, "ruled", "acme/carol", b"x")
    await carol.subscribe(SubscribeEntry(b"secret/#", 1), SubscribeEntry(b"public/#", 1))
    await until(carol, "locked", UNHEARD)
    await until(carol, "secret/1", 0)
    put = partial(first.put_acl, namespace="acme")

    await asyncio.to_thread(put, rules(("user:carol", "publish", "locked"), ("all", "subscribe", "secret/#")))
    await until(carol, "locked", REFUSED)
    await until(carol, "secret/1", UNHEARD)
    assert await carol.subscribe(SubscribeEntry(b"secret/1", 1), SubscribeEntry(b"b", 1)) == [REFUSED, 1]
    await until(carol, "public/1", 0)

    await asyncio.to_thread(put, rules(("ip:192.0.2.0/24", "publish", "#"), ("user:bob", "publish", "#")))
    await until(carol, "locked", UNHEARD)
    await asyncio.to_thread(put, rules((f"ip:{HOST}", "publish", "other")))
    await until(carol, "other", REFUSED)
    assert (await asyncio.to_thread(cluster.nodes[1].admin().acl, "acme")).rules[0].who == [f"ip:{HOST}"]
    await asyncio.to_thread(first.delete_acl, "acme")
    await until(carol, "other", UNHEARD)
    await carol.disconnect()


async def test_persistent_sessions_of_a_tenant_are_limited_on_all_nodes(cluster: NodeCluster) -> None:
    def prepare() -> None:
        request = ClientRequest(name="fay", password="p")
        ask(cluster, 0, partial(AdminClient.register_client, request=request, namespace="umbrella"))
        limits = {"persistent_sessions_max": 2, "sessions_per_user_max": 1, "captured_bytes_per_second_max": 2_000}
        ask(cluster, 1, lambda admin: admin.alter_namespace("umbrella", limits))
        ask(cluster, 0, lambda admin: admin.put_acl(rules(("all", "capture", "wide/#")), namespace="umbrella"))

    def persistent(number: int, client_id: str) -> Options:
        lasting = Properties()
        lasting.session_expiry_s = 60
        asked = options(cluster, number, client_id, "umbrella/fay", b"p")
        return replace(asked, properties=lasting, clean_start=False)

    await asyncio.to_thread(prepare)
    fay = await MqttClient.connect(persistent(0, "fay1"))
    with pytest.raises(MqttError) as refused:
        await MqttClient.connect(persistent(1, "fay2"))
    assert refused.value.reason_code == reasons.QUOTA_EXCEEDED
    assert await fay.subscribe(SubscribeEntry(b"#", 1), SubscribeEntry(b"own/+", 1)) == [REFUSED, 1]
    assert await fay.publish("own/1", b"x" * 200_000, qos=1) == 0
    assert await fay.publish("own/1", b"x", qos=1) == reasons.QUOTA_EXCEEDED, "it owes many seconds' worth"
    assert await fay.publish("other", b"x" * 1_000, qos=1) == UNHEARD
    assert await next_message(fay) == ("own/1", b"x" * 200_000)
    await fay.disconnect()
    await (await MqttClient.connect(persistent(1, "fay1"))).disconnect()
    await asyncio.to_thread(cluster.nodes[0].admin().delete_acl, "umbrella")


def test_the_token_of_the_founder_opens_every_node(cluster: NodeCluster) -> None:
    def opens(token: str | None, number: int) -> bool:
        admin = AdminClient(f"http://{HOST}:{cluster.nodes[number].api_port}", token)
        try:
            return admin.node() is not None
        except ApiError:
            return False

    tokens = [
        credentials.load(
            f"http://{HOST}:{node.api_port}", {"FLOCKMQ_CREDENTIALS": str(node.folder / "credentials.toml")}
        )
        for node in cluster.nodes
    ]
    cluster.wait(lambda: any(all(opens(token, number) for number in range(NODES)) for token in tokens), "one for all")
    assert all(opens(token, number) for number, token in enumerate(tokens)), "and each node has its own"
