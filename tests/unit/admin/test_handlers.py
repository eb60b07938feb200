from __future__ import annotations

import inspect
from collections.abc import Sequence

import msgspec
import pytest

from flockmq.admin import handlers, model
from flockmq.admin.operations import Handler
from flockmq.errors import INVALID_PARAMETER, NOT_FOUND, REFUSED, UNAVAILABLE, ApiError, ConfigError
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Disconnect
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk


def test_the_node_tells_who_it_is() -> None:
    harness = BrokerHarness()
    listener = model.Listener(name="tcp:default", protocol="tcp", host="127.0.0.1", port=1883, connections=0)
    desk = make_desk(harness, listeners=[listener])
    harness.advance(1_500)
    node = handlers.get_node(desk, call())
    assert (node.name, node.version, node.build, node.state) == ("n1@host", "1.2.3", "pure", "starting")
    assert (node.uptime_s, node.started_at) == (1.5, "2023-11-14T22:13:20.000Z")
    assert node.listeners == [listener]


HERE = model.FindQuery()
PartQuery = model.SessionSubscriptionQuery


async def answer(found: object) -> object:
    """What a handler gives, now or later."""
    return await found if inspect.isawaitable(found) else found


async def test_a_kicked_client_hears_why_and_may_come_back() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness)
    client = harness.client("c")
    await handlers.kick_connection(desk, call(HERE, client_id="c"))
    assert client.closed
    assert client.expect(Disconnect).reason == reasons.ADMINISTRATIVE_ACTION
    harness.client("c")


async def test_a_kicked_311_client_is_closed_without_a_word() -> None:
    harness = BrokerHarness()
    client = harness.client("c", version=4)
    await handlers.kick_connection(make_desk(harness), call(HERE, client_id="c"))
    assert client.closed
    client.expect_nothing()


@pytest.mark.parametrize(
    "handler",
    [
        handlers.kick_connection,
        handlers.get_connection,
        handlers.get_session,
        handlers.delete_session,
    ],
)
async def test_a_stranger_is_not_found(handler: Handler) -> None:
    with pytest.raises(ApiError) as refused:
        await answer(handler(make_desk(BrokerHarness()), call(HERE, client_id="nobody")))
    assert refused.value.kind is NOT_FOUND
    assert "'nobody'" in str(refused.value)


async def test_who_is_away_has_a_session_and_no_connection() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness)
    harness.client("c", session_expiry_s=60).drop()
    assert (await handlers.get_session(desk, call(HERE, client_id="c"))).connected is False
    away: tuple[Handler, ...] = (handlers.get_connection, handlers.kick_connection)
    for handler in away:
        with pytest.raises(ApiError) as refused:
            await answer(handler(desk, call(HERE, client_id="c")))
        assert refused.value.kind is NOT_FOUND


async def test_a_deleted_session_is_forgotten_with_its_subscriptions_and_its_client_disconnected() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness)
    client = harness.client("c", session_expiry_s=60)
    client.subscribe(b"a", qos=1)
    await handlers.delete_session(desk, call(HERE, client_id="c"))
    assert client.closed
    assert harness.broker.subscriptions.count == 0
    assert harness.client("c", clean_start=False, session_expiry_s=60).connack.session_present is False


async def test_clients_of_a_namespace_are_found_in_it() -> None:
    harness = BrokerHarness()
    harness.broker.set_listener_namespace("tls", "acme")
    desk = make_desk(harness)
    client = harness.client("c", listener="tls", session_expiry_s=60, username="bob")
    client.subscribe(b"a/b", qos=1)
    other = harness.client("c", session_expiry_s=60)
    other.subscribe(b"a/b")
    acme = model.FindQuery(namespace="acme")
    assert (await handlers.get_connection(desk, call(acme, client_id="c"))).listener == "tls"
    assert (await handlers.get_session(desk, call(acme, client_id="c"))).username == "bob"
    query = PartQuery(namespace="acme")
    assert [
        one.filter for one in (await handlers.list_session_subscriptions(desk, call(query, client_id="c"))).items
    ] == ["a/b"]
    for namespace in ("acme", "default"):
        for wanted in (
            model.SubscriptionQuery(filter="a/b", namespace=namespace),
            model.SubscriptionQuery(match="a/b", namespace=namespace),
            model.SubscriptionQuery(client_id="c", namespace=namespace),
            model.SubscriptionQuery(namespace=namespace),
        ):
            found = (await handlers.list_subscriptions(desk, call(wanted))).items
            assert [one.namespace for one in found] == [namespace]
    sessions = (await handlers.list_sessions(desk, call(model.SessionQuery(namespace="acme", client_id="c")))).items
    assert [one.namespace for one in sessions] == ["acme"]
    users = (await handlers.list_connections(desk, call(model.ConnectionQuery(username="bob")))).items
    assert [(one.namespace, one.client_id) for one in users] == [("acme", "c")]
    await handlers.kick_connection(desk, call(acme, client_id="c"))
    assert (client.closed, other.closed) == (True, False)
    await handlers.delete_session(desk, call(acme, client_id="c"))
    assert list(harness.broker.sessions) == ["c"]


async def test_subscriptions_of_a_session_come_in_pages() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness)
    client = harness.client("c")
    for number in range(5):
        client.subscribe(b"t/%d" % number)
    first = await handlers.list_session_subscriptions(desk, call(PartQuery(limit=3), client_id="c"))
    second = await handlers.list_session_subscriptions(desk, call(PartQuery(limit=3, after=first.next), client_id="c"))
    assert [one.filter for one in first.items + second.items] == [f"t/{number}" for number in range(5)]
    assert second.next is None


async def test_a_cursor_of_one_session_is_none_of_another() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness)
    for client_id in ("one", "two"):
        client = harness.client(client_id)
        for number in range(3):
            client.subscribe(b"t/%d" % number)
    first = await handlers.list_session_subscriptions(desk, call(PartQuery(limit=1), client_id="one"))
    with pytest.raises(ApiError) as refused:
        await handlers.list_session_subscriptions(desk, call(PartQuery(limit=1, after=first.next), client_id="two"))
    assert refused.value.kind is INVALID_PARAMETER


@pytest.mark.parametrize(
    "query",
    [
        model.SubscriptionQuery(filter="a/#/b"),
        model.SubscriptionQuery(filter="$share/g"),
        model.SubscriptionQuery(filter=""),
        model.SubscriptionQuery(match="a/+"),
        model.SubscriptionQuery(match=""),
    ],
)
async def test_filters_that_mean_nothing_are_refused(query: model.SubscriptionQuery) -> None:
    with pytest.raises(ApiError) as refused:
        await handlers.list_subscriptions(make_desk(BrokerHarness()), call(query))
    assert refused.value.kind is INVALID_PARAMETER


def test_a_retained_message_is_deleted_quietly() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness)
    client = harness.client("c")
    client.publish(b"a/b", b"x", retain=True)
    client.subscribe(b"a/b")
    client.received()
    handlers.delete_retained(desk, call(topic="a/b"))
    client.expect_nothing()
    for handler in (handlers.get_retained, handlers.delete_retained):
        with pytest.raises(ApiError) as refused:
            handler(desk, call(topic="a/b"))
        assert refused.value.kind is NOT_FOUND


def test_the_brokers_own_messages_can_be_read_and_not_deleted() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness)
    harness.broker.publish_sys(harness.now)
    topic = harness.broker.retained.match(b"$SYS/#", harness.now)[0].topic.decode()
    assert handlers.get_retained(desk, call(topic=topic)).topic == topic
    with pytest.raises(ApiError) as refused:
        handlers.delete_retained(desk, call(topic=topic))
    assert refused.value.kind is REFUSED


async def test_reload_tells_what_it_read() -> None:
    async def reload() -> Sequence[str]:
        return ["acl"]

    result = await handlers.reload(make_desk(BrokerHarness(), reload=reload), call())
    assert result == model.ReloadResult(reloaded=["acl"])


async def test_a_reload_that_fails_says_why_and_that_nothing_changed() -> None:
    async def reload() -> Sequence[str]:
        raise ConfigError("line 3 of the ACL is wrong")

    with pytest.raises(ApiError) as refused:
        await handlers.reload(make_desk(BrokerHarness(), reload=reload), call())
    assert refused.value.kind is REFUSED
    assert str(refused.value).startswith("line 3 of the ACL is wrong; nothing was changed")


async def test_what_the_node_has_not_is_unavailable() -> None:
    desk = make_desk(BrokerHarness())
    with pytest.raises(ApiError) as refused:
        await handlers.reload(desk, call())
    assert refused.value.kind is UNAVAILABLE
    with pytest.raises(ApiError) as refused:
        handlers.get_config(desk, call())
    assert refused.value.kind is UNAVAILABLE


def test_the_configuration_is_given_as_it_is() -> None:
    desk = make_desk(BrokerHarness(), config=lambda: {"mqtt": {"sessions_max": 5}})
    assert handlers.get_config(desk, call()) == {"mqtt": {"sessions_max": 5}}


def test_readiness_follows_the_state() -> None:
    desk = make_desk(BrokerHarness())
    assert handlers.get_live(desk, call()).status == "live"
    found = []
    for state in ("starting", "ready", "stopping"):
        desk.state = state
        answered = handlers.get_ready(desk, call(model.ReadyQuery()))
        told = msgspec.json.decode(answered.body)
        found.append((answered.status, told["status"], told["clients"]["ok"], told.get("error", {}).get("code")))
    assert found == [
        (503, "not_ready", False, "unavailable"),
        (200, "ready", True, None),
        (503, "not_ready", False, "unavailable"),
    ]


def test_a_probe_says_what_it_requires() -> None:
    desk = make_desk(BrokerHarness())
    desk.state = "ready"
    statuses = {
        require: handlers.get_ready(desk, call(model.ReadyQuery(require=require))).status
        for require in ("clients", "clients,sessions", "durable", "clients,durable")
    }
    assert statuses == {"clients": 200, "clients,sessions": 200, "durable": 503, "clients,durable": 503}
    for require in ("", "all", "clients,,durable"):
        with pytest.raises(ApiError) as refused:
            handlers.get_ready(desk, call(model.ReadyQuery(require=require)))
        assert refused.value.kind is INVALID_PARAMETER


def test_stats_are_numbers_by_name() -> None:
    harness = BrokerHarness()
    harness.client("c")
    stats = handlers.get_stats(make_desk(harness), call())
    assert (stats.gauges["clients"], stats.counters["connects_accepted"]) == (1, 1)


async def test_a_million_sessions_are_not_copied_for_a_page_of_one_client() -> None:
    """Only the keys are copied once; a page looks at no more than the scan bound, whatever the filter."""
    harness = BrokerHarness()
    for number in range(50):
        harness.client(f"c{number}")
    desk = make_desk(harness, scan_max=10)
    after: str | None = None
    sizes = []
    while True:
        page = await handlers.list_sessions(desk, call(model.SessionQuery(client_id="c49", after=after)))
        sizes.append(len(page.items))
        after = page.next
        if after is None:
            break
    assert sizes == [0, 0, 0, 0, 1, 0]
