"""Namespaces in the broker: what is in one stays there, and nobody reaches into another."""

from __future__ import annotations

import pytest

from flockmq.mqtt import reasons
from flockmq.mqtt.packets import PUBACK, Ack, Connack, Connect, Disconnect, Publish, Will
from flockmq.mqtt.properties import Properties
from flockmq.node.namespaces import NamespaceLimits, inside_filter, inside_topic, is_foreign, names_inside
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.session.space import Space
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties

VERSIONS = pytest.mark.parametrize("version", [4, 5])
ACME = Space("acme")


@pytest.fixture
def harness() -> BrokerHarness:
    found = BrokerHarness(settings=BrokerSettings(limits=Limits(connect_bytes_max=70_000)))
    found.broker.set_namespaces([NamespaceLimits("acme"), NamespaceLimits("umbrella")], found.now)
    return found


def in_acme(harness: BrokerHarness, client_id: str, version: int = 5, **options: object) -> HarnessClient:
    return harness.client(client_id, version, username="acme/u", **options)  # type: ignore[arg-type]


def in_umbrella(harness: BrokerHarness, client_id: str, version: int = 5, **options: object) -> HarnessClient:
    return harness.client(client_id, version, username="umbrella/u", **options)  # type: ignore[arg-type]


def messages(client: HarnessClient) -> list[tuple[bytes, bytes]]:
    return [(one.topic, one.payload) for one in client.consume()]


def refusal(harness: BrokerHarness, connect: Connect, **where: str) -> int:
    return harness.connect(connect, **where).expect(Connack).reason  # type: ignore[arg-type]


# --- isolation ---


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topic_filter", [b"plant/1", b"plant/+", b"#", b"+/1", b"$share/g/plant/#"])
def test_a_topic_is_another_one_in_another_namespace(
    harness: BrokerHarness, version: int, qos: int, topic_filter: bytes
) -> None:
    watchers = [
        in_acme(harness, "w", version),
        in_umbrella(harness, "w", version),
        harness.client("w", version),
    ]
    for watcher in watchers:
        assert watcher.subscribe(topic_filter, qos=qos) == qos
    publishers = [in_acme(harness, "p", version), in_umbrella(harness, "p", 9 - version), harness.client("p", version)]
    for number, publisher in enumerate(publishers):
        assert publisher.publish(b"plant/1", b"%d" % number, qos=qos) == 0
    for number, watcher in enumerate(watchers):
        assert messages(watcher) == [(b"plant/1", b"%d" % number)]


@VERSIONS
def test_a_run_of_messages_keeps_its_bytes(harness: BrokerHarness, version: int) -> None:
    watcher = in_acme(harness, "w", version)
    watcher.subscribe(b"#", qos=2)
    publisher = in_acme(harness, "p", version)
    payloads = [b"x" * size for size in (0, 1, 1, 200, 16_000, 3)]
    for qos in (0, 1, 2):
        for number, payload in enumerate(payloads):
            publisher.send(Publish(b"a/b", payload, qos, False, False, number + 1 if qos else 0))
        publisher.received()
    assert messages(watcher) == [(b"a/b", payload) for payload in payloads * 3]


def test_the_same_client_id_lives_once_in_each(harness: BrokerHarness) -> None:
    clients = [in_acme(harness, "sensor"), in_umbrella(harness, "sensor"), harness.client("sensor")]
    assert not any(client.closed for client in clients)
    assert sorted(harness.broker.sessions) == ["$ns/acme/sensor", "$ns/umbrella/sensor", "sensor"]
    again = in_acme(harness, "sensor")
    assert [client.closed for client in (*clients, again)] == [True, False, False, False]


@VERSIONS
def test_shared_groups_of_one_name_share_nothing(harness: BrokerHarness, version: int) -> None:
    members = [in_acme(harness, "m", version), in_umbrella(harness, "m", version)]
    for member in members:
        member.subscribe(b"$share/workers/jobs/#", qos=1)
    publisher = in_acme(harness, "p", version)
    for number in range(4):
        publisher.publish(b"jobs/1", b"%d" % number, qos=1)
    assert len(messages(members[0])) == 4
    assert messages(members[1]) == []


@VERSIONS
def test_retained_messages_stay_inside(harness: BrokerHarness, version: int) -> None:
    in_acme(harness, "p", version).publish(b"state", b"acme", qos=1, retain=True)
    in_umbrella(harness, "p", version).publish(b"state", b"umbrella", qos=1, retain=True)
    for make, expected in ((in_acme, [b"acme"]), (in_umbrella, [b"umbrella"])):
        watcher = make(harness, "w", version)
        watcher.subscribe(b"#", qos=1)
        assert messages(watcher) == [(b"state", payload) for payload in expected]
    outsider = harness.client("w", version)
    outsider.subscribe(b"#")
    assert messages(outsider) == []


@VERSIONS
def test_wills_are_published_inside(harness: BrokerHarness, version: int) -> None:
    watchers = [in_acme(harness, "w"), in_umbrella(harness, "w"), harness.client("w")]
    for watcher in watchers:
        watcher.subscribe(b"#")
    in_acme(harness, "p", version, will=Will(b"gone", b"p")).drop()
    assert [messages(watcher) for watcher in watchers] == [[(b"gone", b"p")], [], []]


def test_delayed_messages_arrive_inside(harness: BrokerHarness) -> None:
    watchers = [in_acme(harness, "w"), harness.client("w")]
    for watcher in watchers:
        watcher.subscribe(b"#")
    assert in_acme(harness, "p").publish(b"$delayed/5/later", b"1", qos=1) < 0x80
    harness.advance(6_000)
    assert [messages(watcher) for watcher in watchers] == [[(b"later", b"1")], []]


def test_a_session_is_found_again(harness: BrokerHarness) -> None:
    watcher = in_acme(harness, "w", session_expiry_s=600)
    watcher.subscribe(b"a", qos=1)
    watcher.drop()
    in_acme(harness, "p").publish(b"a", b"while away", qos=1)
    assert not in_umbrella(harness, "w", clean_start=False).connack.session_present
    back = in_acme(harness, "w", clean_start=False, session_expiry_s=600)
    assert back.connack.session_present
    assert messages(back) == [(b"a", b"while away")]
    assert back.unsubscribe(b"a") == 0
    assert back.unsubscribe(b"a") == reasons.NO_SUBSCRIPTION_EXISTED


def test_topic_aliases_both_ways(harness: BrokerHarness) -> None:
    watcher = in_acme(harness, "w", properties=make_properties(topic_alias_maximum=5))
    watcher.subscribe(b"#")
    publisher = in_acme(harness, "p")
    publisher.publish(b"a/b", b"1", properties=make_properties(topic_alias=1))
    publisher.publish(b"", b"2", properties=make_properties(topic_alias=1))
    first, second = watcher.received()
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert (first.topic, first.payload) == (b"a/b", b"1")
    assert (second.topic, second.payload) == (b"", b"2"), "the alias stands for the name"
    assert not publisher.closed


def test_properties_pass_through(harness: BrokerHarness) -> None:
    watcher = in_acme(harness, "w")
    watcher.subscribe(b"#", identifier=7)
    asked = make_properties(response_topic=b"answers/1", user=[("a", "b")], message_expiry_s=60)
    in_acme(harness, "p").publish(b"a", b"1", qos=1, properties=asked)
    (found,) = watcher.consume()
    assert found.properties is not None
    assert found.properties.response_topic == b"answers/1", "both sides are in one namespace"
    assert found.properties.user == [("a", "b")]
    assert found.properties.message_expiry_s == 60
    assert found.properties.subscription_identifiers == [7]


# --- who is where ---


def test_clients_are_shown_their_own_names(harness: BrokerHarness) -> None:
    client = in_acme(harness, "", properties=make_properties(request_response_information=1))
    told = client.connack.properties
    assert told.assigned_client_id is not None
    assert told.assigned_client_id.startswith("flockmq-")
    assert told.response_information == f"response/{told.assigned_client_id}"
    assert list(harness.broker.sessions) == [f"$ns/acme/{told.assigned_client_id}"]


def test_a_listener_has_a_namespace(harness: BrokerHarness) -> None:
    harness.broker.set_listener_namespace("tls", "hooli")
    watcher = harness.client("w", listener="tls")
    watcher.subscribe(b"#")
    harness.client("p", username="hooli/u").publish(b"a", b"named")
    harness.client("p2", username="u", listener="tls").publish(b"a", b"of the listener")
    harness.client("p3", username="acme/u", listener="tls").publish(b"a", b"named another")
    harness.client("p4", username="default/u", listener="tls").publish(b"a", b"named the default one")
    assert messages(watcher) == [(b"a", b"named"), (b"a", b"of the listener")]
    harness.broker.set_namespaces([], harness.now)
    assert not watcher.closed, "a listener's namespace exists as long as the listener"


def test_a_node_that_does_not_know_the_namespaces_yet_puts_nobody_in_the_wrong_one(harness: BrokerHarness) -> None:
    harness.broker.node.spaces.is_known = False
    assert refusal(harness, Connect(5, "c", username="hooli/u")) == reasons.SERVER_UNAVAILABLE
    assert refusal(harness, Connect(4, "c", username="hooli/u")) == 3
    harness.client("c", username="u")
    harness.broker.node.spaces.is_known = True
    harness.client("c", username="hooli/u")


def test_a_name_with_a_slash_is_a_name(harness: BrokerHarness) -> None:
    harness.client("c", username="building/3")
    assert harness.broker.sessions["c"].username == "building/3"


@VERSIONS
@pytest.mark.parametrize(
    "topic", [b"$ns/acme/a", b"$ns", b"$delayed/1/$ns/acme/a", b"$delayed/1/$delayed/1/$ns/acme/a"]
)
def test_nobody_publishes_into_another_namespace(harness: BrokerHarness, version: int, topic: bytes) -> None:
    watcher = in_acme(harness, "w")
    watcher.subscribe(b"#")
    outsider = harness.client("o", version)
    expected = reasons.NOT_AUTHORIZED if version == 5 else 0
    for qos in (0, 1):
        assert outsider.publish(topic, b"x", qos=qos, retain=True) == (expected if qos else 0)
    # the slow way in: DUP
    outsider.send(Publish(topic, b"x", 1, False, True, 77))
    assert outsider.expect(Ack) == Ack(PUBACK, 77, expected, outsider_text(version))
    harness.advance(5_000)
    assert messages(watcher) == []
    assert not outsider.closed


def outsider_text(version: int) -> Properties | None:
    return make_properties(reason_string="This client may not publish to this topic") if version == 5 else None


def test_an_alias_is_no_way_in(harness: BrokerHarness) -> None:
    watcher = in_acme(harness, "w")
    watcher.subscribe(b"#")
    outsider = harness.client("o")
    outsider.publish(b"$ns/acme/a", b"x", properties=make_properties(topic_alias=1))
    outsider.send(Publish(b"", b"x", 0, False, False, 0, make_properties(topic_alias=1)))
    assert outsider.closed, "the alias was never set"
    assert messages(watcher) == []


@VERSIONS
def test_nobody_reads_another_namespace(harness: BrokerHarness, version: int) -> None:
    refused = reasons.NOT_AUTHORIZED if version == 5 else 0x80
    outsider = harness.client("o", version)
    for topic_filter in (b"$ns/#", b"$ns/acme/#", b"$ns", b"$share/g/$ns/acme/#", b"$ns/+/a"):
        assert outsider.subscribe(topic_filter) == refused
    neighbour = in_umbrella(harness, "n", version)
    for topic_filter in (b"$ns/acme/#", b"$share/g/$ns/acme/#", b"$SYS/#"):
        assert neighbour.subscribe(topic_filter) == refused
    in_acme(harness, "p").publish(b"a", b"1")
    assert messages(outsider) == messages(neighbour) == []


@VERSIONS
def test_topics_with_a_dollar_are_not_for_tenants(harness: BrokerHarness, version: int) -> None:
    """So that # of a namespace never matches one. [MQTT-4.7.2-1]"""
    watcher = in_acme(harness, "w", version)
    watcher.subscribe(b"#")
    refused = reasons.NOT_AUTHORIZED if version == 5 else 0
    for topic in (b"$SYS/broker/uptime", b"$x", b"$delayed/1/$x"):
        assert in_acme(harness, "p", version).publish(topic, b"1", qos=1) == refused
    harness.advance(3_000)
    assert messages(watcher) == []


def test_strange_client_ids_are_refused(harness: BrokerHarness) -> None:
    in_acme(harness, "sensor")
    invalid = reasons.CLIENT_IDENTIFIER_NOT_VALID
    assert refusal(harness, Connect(5, "$ns/acme/sensor")) == invalid
    assert refusal(harness, Connect(5, "x" * 65_530, username="acme/u")) == invalid
    assert refusal(harness, Connect(5, "x" * 65_530)) == 0


@pytest.mark.parametrize("topic", [b"$ns/acme/a", b"$ns"])
def test_a_will_can_not_reach_in(harness: BrokerHarness, topic: bytes) -> None:
    assert refusal(harness, Connect(5, "o", will=Will(topic, b"x"))) == reasons.NOT_AUTHORIZED
    assert refusal(harness, Connect(5, "o", will=Will(topic, b"x"), username="umbrella/u")) == reasons.NOT_AUTHORIZED


def test_malformed_filters_stay_malformed(harness: BrokerHarness) -> None:
    client = in_acme(harness, "c")
    for topic_filter in (b"a/#/b", b"a+", b"$share/g", b"$share//a", b"$share/g/", b"x" * 65_535):
        assert client.subscribe(topic_filter) == reasons.TOPIC_FILTER_INVALID
    assert not client.closed


def test_bans_name_the_namespace(harness: BrokerHarness) -> None:
    harness.broker.bans.add("username", "acme/u", 0, "no", harness.now)
    harness.broker.bans.add("client", "$ns/umbrella/x", 0, "no", harness.now)
    assert refusal(harness, Connect(5, "c", username="acme/u")) == reasons.BANNED
    assert refusal(harness, Connect(5, "c", username="u")) == 0
    assert refusal(harness, Connect(5, "x", username="umbrella/u")) == reasons.BANNED
    assert refusal(harness, Connect(5, "x")) == 0


# --- limits ---


def limited(harness: BrokerHarness, **limits: int) -> None:
    wanted = [NamespaceLimits("acme", **limits), NamespaceLimits("umbrella"), NamespaceLimits("default")]
    harness.broker.set_namespaces(wanted, harness.now)


def test_connections_of_a_namespace(harness: BrokerHarness) -> None:
    limited(harness, connections=2)
    first = in_acme(harness, "1")
    in_acme(harness, "2")
    assert refusal(harness, Connect(5, "3", username="acme/u")) == reasons.QUOTA_EXCEEDED
    assert refusal(harness, Connect(4, "3", username="acme/u")) == 3, "3.1.1 says: server unavailable"
    in_umbrella(harness, "3")
    in_acme(harness, "2")  # takes its own place
    first.drop()
    in_acme(harness, "3")
    space = harness.broker.node.spaces.by_name["acme"]
    assert space.connections == 2
    space.tell_elsewhere(connections=1, sessions=0, nodes=1)
    harness.client("4", username="umbrella/u")
    assert refusal(harness, Connect(5, "4", username="acme/u")) == reasons.QUOTA_EXCEEDED


def test_sessions_of_a_namespace(harness: BrokerHarness) -> None:
    limited(harness, sessions=1)
    in_acme(harness, "1", session_expiry_s=60).drop()
    assert refusal(harness, Connect(5, "2", username="acme/u")) == reasons.QUOTA_EXCEEDED
    in_acme(harness, "1", session_expiry_s=60).drop()
    harness.advance(61_000)
    in_acme(harness, "2")


def test_retained_messages_of_a_namespace(harness: BrokerHarness) -> None:
    limited(harness, retained=2)
    client = in_acme(harness, "c")
    for topic in (b"a", b"b", b"b"):
        assert client.publish(topic, b"1", qos=1, retain=True) < 0x80
    client.send(Publish(b"c", b"1", 1, True, False, 99))
    why = "The namespace acme holds 2 retained messages, as many as it may: clear some, or raise its limit retained"
    assert client.expect(Ack) == Ack(PUBACK, 99, reasons.QUOTA_EXCEEDED, make_properties(reason_string=why))
    assert in_umbrella(harness, "c").publish(b"c", b"1", qos=1, retain=True) < 0x80
    client.publish(b"a", b"", qos=1, retain=True)
    assert client.publish(b"c", b"1", qos=1, retain=True) < 0x80


def test_the_default_namespace_has_limits_too(harness: BrokerHarness) -> None:
    early = harness.client("early")
    wanted = [NamespaceLimits("acme"), NamespaceLimits("default", connections=2, retained=1, messages_per_s=5)]
    harness.broker.set_namespaces(wanted, harness.now)
    second = harness.client("2")
    assert refusal(harness, Connect(5, "3")) == reasons.QUOTA_EXCEEDED
    in_acme(harness, "3").publish(b"x", b"1", qos=1, retain=True)
    assert second.publish(b"x", b"1", qos=1, retain=True) < 0x80
    assert second.publish(b"y", b"1", qos=1, retain=True) == reasons.QUOTA_EXCEEDED
    assert second.publish(b"$ns/acme/x", b"1", qos=1) == reasons.NOT_AUTHORIZED
    assert second.subscribe(b"$ns/acme/x") == reasons.NOT_AUTHORIZED
    early.subscribe(b"#")
    second.publish(b"z", b"1")
    assert messages(early) == [(b"x", b"1"), (b"z", b"1")]


def test_message_rate_of_a_namespace(harness: BrokerHarness) -> None:
    limited(harness, messages_per_s=3)
    watcher = in_acme(harness, "w")
    watcher.subscribe(b"#", qos=1)
    first, second = in_acme(harness, "1"), in_acme(harness, "2")
    for pid in (1, 2):
        first.send(Publish(b"a", b"x", 1, packet_id=pid))
    second.send(b"".join(b"\x32\x06\x00\x01a\x00" + bytes([pid]) + b"\x00" for pid in (1, 2, 3)))
    codes = [answer.reason for answer in (*first.received(), *second.received()) if isinstance(answer, Ack)]
    assert codes == [0, 0, 0, reasons.QUOTA_EXCEEDED, reasons.QUOTA_EXCEEDED], "the first of a run still pass"
    alias = make_properties(topic_alias=1)
    second.publish(b"b", b"dropped", properties=alias)
    harness.advance(1_000)
    second.publish(b"", b"y", properties=alias)
    assert [payload for _, payload in messages(watcher)][3:] == [b"y"], "the alias was learnt"
    assert harness.broker.node.spaces.by_name["acme"].refused == 3


def test_a_311_publisher_beyond_the_rate_is_closed(harness: BrokerHarness) -> None:
    limited(harness, messages_per_s=1)
    client = in_acme(harness, "1", 4)
    client.publish(b"a", b"x", qos=0)
    client.publish(b"a", b"x", qos=0)
    assert not client.closed, "at QoS 0 nothing is promised"
    client.send(Publish(b"a", b"x", 1, packet_id=1))
    assert client.closed


# --- coming and going ---


def test_a_deleted_namespace_is_empty(harness: BrokerHarness) -> None:
    client = in_acme(harness, "c", will=Will(b"will", b"x"))
    client.publish(b"a", b"1", qos=1, retain=True)
    in_acme(harness, "away", session_expiry_s=600).drop()
    other = in_umbrella(harness, "c")
    harness.broker.set_namespaces([NamespaceLimits("umbrella")], harness.now)
    harness.flush()
    assert client.closed
    assert client.expect(Disconnect).reason == reasons.ADMINISTRATIVE_ACTION
    assert not other.closed
    assert list(harness.broker.sessions) == ["$ns/umbrella/c"]
    assert harness.broker.retained.usage.count == 0
    harness.broker.set_namespaces([NamespaceLimits("acme"), NamespaceLimits("umbrella")], harness.now)
    again = in_acme(harness, "c")
    again.subscribe(b"#")
    assert messages(again) == []


def test_sessions_that_were_there_first_are_counted(harness: BrokerHarness) -> None:
    harness.client("1")
    in_acme(harness, "1")
    wanted = [NamespaceLimits("acme", sessions=1), NamespaceLimits("umbrella"), NamespaceLimits("default", sessions=9)]
    harness.broker.set_namespaces(wanted, harness.now)
    spaces = harness.broker.node.spaces
    assert spaces.default is not None
    assert (spaces.by_name["acme"].sessions, spaces.by_name["umbrella"].sessions, spaces.default.sessions) == (1, 0, 1)
    assert refusal(harness, Connect(5, "2", username="acme/u")) == reasons.QUOTA_EXCEEDED


# --- names ---


@pytest.mark.parametrize(
    ("topic", "inside"),
    [
        (b"a", b"$ns/acme/a"),
        (b"/", b"$ns/acme//"),
        (b"$delayed/5/a/b", b"$delayed/5/$ns/acme/a/b"),
        (b"$delayed/5/$x", b""),
        (b"$delayed/5", b"$delayed/5"),
        (b"$delayed/5/", b"$delayed/5/"),
        (b"$ns/acme/a", b""),
        (b"$SYS/a", b""),
    ],
)
def test_inside_topic(topic: bytes, inside: bytes) -> None:
    assert inside_topic(ACME, topic) == inside


@pytest.mark.parametrize(
    ("topic_filter", "inside"),
    [
        (b"#", b"$ns/acme/#"),
        (b"$share/g/#", b"$share/g/$ns/acme/#"),
        (b"$replay/earliest/a/#", b"$replay/earliest/$ns/acme/a/#"),
        (b"$share/g/$replay/earliest/a", b"$share/g/$replay/earliest/$ns/acme/a"),
        (b"$share/g", b"$share/g"),
        (b"$share/g/", b"$share/g/"),
        (b"$replay/earliest", b"$replay/earliest"),
        (b"", b""),
    ],
)
def test_inside_filter(topic_filter: bytes, inside: bytes) -> None:
    assert inside_filter(ACME, topic_filter) == inside


def test_what_is_foreign() -> None:
    assert not is_foreign(ACME, b"$ns/acme/a")
    assert not is_foreign(ACME, b"$replay/earliest/$ns/acme/a")
    assert is_foreign(ACME, b"$ns/acme/$x")
    assert is_foreign(ACME, b"$ns/acme2/a")
    assert is_foreign(None, b"$replay/earliest/$ns/acme/a")
    assert not is_foreign(None, b"$SYS/#")
    assert names_inside(b"$delayed/1/$ns/acme/a")
    assert not names_inside(b"$delayed/1")
