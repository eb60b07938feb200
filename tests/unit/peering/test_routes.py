"""Routes between brokers in one process: what is told, when SUBACK goes out, who gets a message."""

from __future__ import annotations

import pytest

from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Suback, Subscribe, SubscribeEntry, Will
from flockmq.node.settings import BrokerSettings
from flockmq.peering.channels import RETAINED
from flockmq.testing.harness import HarnessClient, make_properties
from flockmq.testing.stepped import SteppedCluster, SteppedNode


def table(node: SteppedNode) -> dict[bytes, list[str]]:
    """Filters and the other nodes they lead to."""
    subscriptions = node.broker.subscriptions
    found: dict[bytes, list[str]] = {}
    for topic_filter in subscriptions.filters():
        entry = subscriptions.entry(topic_filter)
        if entry is not None and entry.peers is not None:
            found[topic_filter] = [peer.name for peer in entry.peers]
    return found


def ask(client: HarnessClient, *filters: bytes) -> None:
    """SUBSCRIBE without waiting for the answer."""
    client.send(Subscribe(client.next_id(), [SubscribeEntry(one, 1) for one in filters], None))


def answered(client: HarnessClient) -> bool:
    return any(isinstance(packet, Suback) for packet in client.received())


def keys(node: SteppedNode) -> list[bytes]:
    return sorted(key for key, _ in node.maps.items(node.node_id))


# --- what is told ---


def test_first_and_last_subscriber_of_a_filter_are_told_and_nothing_between() -> None:
    cluster = SteppedCluster(2)
    one, two = cluster[1].client("one"), cluster[1].client("two")
    one.subscribe(b"t/+")
    version = cluster[1].maps.version
    two.subscribe(b"t/+")
    one.unsubscribe(b"t/+")
    assert cluster[1].maps.version == version
    assert table(cluster[2]) == {b"t/+": ["node1"]}
    two.drop()
    assert table(cluster[2]) == {}
    assert keys(cluster[1]) == []


def test_members_of_a_group_are_told_by_number() -> None:
    cluster = SteppedCluster(2)
    clients = [cluster[1].client(str(number)) for number in range(3)]
    for client in clients:
        client.subscribe(b"$share/g/t/+")
    (group,) = cluster[2].broker.subscriptions.plan(b"t/a").groups
    assert group.remote_members == [3]
    clients[0].unsubscribe(b"$share/g/t/+")
    clients[1].drop()
    assert group.remote_members == [1]
    clients[2].drop()
    assert cluster[2].broker.subscriptions.filters() == []


def test_a_turn_is_one_delta_and_what_came_and_went_in_it_is_never_told() -> None:
    cluster = SteppedCluster(2, auto=False)
    client = cluster[1].client("a")
    ask(client, b"a/+", b"b", b"c/#")
    client.unsubscribe(b"b")
    cluster.wire.parts = 0
    cluster[1].turn()
    assert len(cluster.wire.queues[1, 2]) == 1
    cluster.settle()
    assert sorted(table(cluster[2])) == [b"a/+", b"c/#"]


def test_sys_is_each_nodes_own() -> None:
    cluster = SteppedCluster(2, settings=BrokerSettings(sys_interval_ms=1_000))
    client = cluster[1].client("a")
    client.subscribe(b"$SYS/#")
    client.subscribe(b"$share/g/$SYS/broker/node")
    assert keys(cluster[1]) == []
    client.received()
    cluster.advance(2_000)
    values = {message.topic: message.payload for message in client.messages()}
    assert values[b"$SYS/broker/clients/connected"] == b"1"
    assert cluster[2].forwarding.peer(1).messages_out == 0


def test_routes_of_before_the_cluster_are_told() -> None:
    cluster = SteppedCluster(1)
    client = cluster[1].client("a")
    client.subscribe(b"t/+")
    cluster.start(2, 1_000)
    cluster.settle()
    assert table(cluster[2]) == {b"t/+": ["node1"]}


@pytest.mark.parametrize("key", [b"r/", b"r/a#", b"r/\xff", b"s/", b"s/\x05\x00g", b"s/\x01\x00ga/#/b"])
def test_routes_that_make_no_sense_are_counted(key: bytes) -> None:
    cluster = SteppedCluster(2)
    assert cluster[1].routes.apply(2, key, b"\x01\0\0\0")
    assert cluster[1].routes.malformed == 1
    assert cluster[1].broker.subscriptions.filters() == []


def test_other_keys_are_left_to_others() -> None:
    assert not SteppedCluster(2)[1].routes.apply(2, b"n/address", b"x")


# --- life and death ---


def test_routes_vanish_with_a_node_and_come_back_with_it() -> None:
    cluster = SteppedCluster(3)
    for node_id in (2, 3):
        cluster[node_id].client(f"client{node_id}").subscribe(b"t/+")
    cluster[2].client("member").subscribe(b"$share/g/t/+")
    cluster.kill(2)
    assert table(cluster[1]) == {b"t/+": ["node2", "node3"]}
    cluster.bury(2)
    assert table(cluster[1]) == {b"t/+": ["node3"]}
    assert cluster[1].broker.subscriptions.plan(b"t/a").groups == []
    returned = cluster.start(2, 2_000)
    cluster.settle()
    returned.client("client2").subscribe(b"t/+")
    assert table(cluster[1]) == table(cluster[3]) | {b"t/+": ["node2", "node3"]}
    publisher = cluster[1].client("publisher")
    assert publisher.publish(b"t/a", b"x", qos=1) == 0


def test_a_node_wrongly_buried_gets_its_routes_back() -> None:
    cluster = SteppedCluster(2)
    client = cluster[2].client("a")
    client.subscribe(b"t/+", 1)
    cluster.cut(1, 2)
    cluster[1].lose(2)
    cluster.settle()
    assert table(cluster[1]) == {}
    cluster[1].meet(cluster[2])
    cluster.link(1, 2)
    cluster.settle()
    assert table(cluster[1]) == {b"t/+": ["node2"]}
    cluster[1].client("publisher").publish(b"t/a", b"x", qos=1)
    assert client.payloads() == [b"x"]


# --- SUBACK ---


def test_suback_waits_for_every_node_that_is_alive() -> None:
    cluster = SteppedCluster(3, auto=False)
    client = cluster[1].client("a")
    ask(client, b"t/+")
    cluster[1].turn()
    assert not answered(client)
    for other in (2, 3):
        while cluster.wire.queues[1, other]:
            cluster.deliver((1, other))
        cluster[other].turn()
        cluster[1].turn()
        assert not answered(client), "node3 has not heard, or has not said so"
        while cluster.wire.queues[other, 1]:
            cluster.deliver((other, 1))
    cluster[1].turn()
    assert answered(client)
    assert cluster[1].routes.waiting() == 0


def test_a_mark_is_known_when_all_have_it() -> None:
    cluster = SteppedCluster(2, auto=False)
    client = cluster[1].client("a")
    routes = cluster[1].routes
    assert routes.is_known(routes.mark())
    ask(client, b"t/+")
    assert routes.mark() == -1, "the others are told at the end of the turn"
    cluster[1].turn()
    mark = routes.mark()
    assert not routes.is_known(mark)
    cluster.settle()
    assert routes.is_known(mark)


def test_nothing_waits_where_nobody_else_is() -> None:
    cluster = SteppedCluster(1, auto=False)
    client = cluster[1].client("a")
    ask(client, b"t/+")
    assert answered(client)


def test_a_filter_that_all_know_does_not_wait() -> None:
    cluster = SteppedCluster(2)
    first = cluster[1].client("first")
    first.subscribe(b"t/+")
    cluster.auto = False
    first.subscribe(b"t/+", 1)
    second = cluster[1].client("second")
    ask(second, b"t/+")
    cluster[1].turn()
    assert answered(second), "it is told in the same turn"
    cluster.start(3, 1_000)
    ask(second, b"t/+")
    assert not answered(second), "the new node does not know anything yet"
    cluster.settle()
    assert answered(second)


def test_nobody_waits_for_suspects_and_the_dead() -> None:
    cluster = SteppedCluster(3, auto=False)
    client = cluster[1].client("a", session_expiry_s=100)
    ask(client, b"t/+")
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    cluster[1].turn()
    cluster.advance(5_000)
    assert not answered(client), "a session that is to miss nothing waits"
    cluster[1].routes.peer_suspect(2, cluster.now)
    cluster[1].turn()
    assert not answered(client)
    cluster[1].routes.peer_dead(3, cluster.now)
    cluster[1].turn()
    assert answered(client)


def test_a_clean_session_waits_for_a_second_at_most() -> None:
    cluster = SteppedCluster(2, auto=False)
    client = cluster[1].client("a")
    cluster.cut(1, 2)
    ask(client, b"t/+")
    cluster.advance(900)
    assert not answered(client)
    cluster.advance(200)
    assert answered(client)


def test_nobody_waits_for_ever_for_a_node_that_lives_out_of_reach() -> None:
    cluster = SteppedCluster(3)
    client = cluster[1].client("a", session_expiry_s=100)
    cluster.cut(1, 2)  # node3 reaches both, so that nobody suspects anybody
    cluster.auto = False
    ask(client, b"t/+")
    cluster.settle()
    cluster.advance(29_000)
    assert not answered(client)
    cluster.advance(2_000)
    assert answered(client)


def test_unsuback_never_waits() -> None:
    cluster = SteppedCluster(2)
    client = cluster[1].client("a")
    client.subscribe(b"t/+")
    cluster.auto = False
    assert client.unsubscribe(b"t/+") == 0


def test_who_left_meanwhile_is_forgotten() -> None:
    cluster = SteppedCluster(2, auto=False)
    client = cluster[1].client("a", session_expiry_s=100)
    cluster.cut(1, 2)
    ask(client, b"t/+")
    cluster[1].turn()
    assert cluster[1].routes.waiting() == 1
    client.drop()
    cluster.advance(100)
    assert cluster[1].routes.waiting() == 0


def test_too_many_waiting_subscriptions_stop_the_reading() -> None:
    cluster = SteppedCluster(2, auto=False)
    cluster[1].routes.pending_max = 2
    client = cluster[1].client("a")
    for number in range(5):
        ask(client, b"t/%d" % number)
    assert cluster[1].routes.waiting() == 3, "the third one is where reading stops"
    cluster.settle()
    cluster.settle()
    assert len([packet for packet in client.received() if isinstance(packet, Suback)]) == 5


def test_retained_messages_follow_the_suback() -> None:
    cluster = SteppedCluster(2, auto=False)
    publisher, client = cluster[1].client("publisher"), cluster[1].client("a")
    publisher.publish(b"t/a", b"kept", retain=True)
    ask(client, b"t/+")
    cluster[1].turn()
    publisher.publish(b"t/b", b"live")
    assert client.payloads() == [b"live"], "messages may come before the SUBACK"
    cluster.settle()
    client.expect(Suback)
    assert client.payloads() == [b"kept"]


# --- messages ---


def test_a_message_goes_to_the_nodes_that_want_it_and_to_no_other() -> None:
    cluster = SteppedCluster(3)
    two, three = cluster[2].client("two"), cluster[3].client("three")
    two.subscribe(b"t/+")
    three.subscribe(b"x/+")
    publisher = cluster[1].client("publisher")
    publisher.publish(b"t/a", b"1")
    assert two.payloads() == [b"1"]
    assert three.payloads() == []
    assert cluster[1].forwarding.peer(3).messages_out == 0


def test_one_copy_to_a_node_however_many_want_it_there() -> None:
    cluster = SteppedCluster(2)
    clients = [cluster[2].client(str(number)) for number in range(10)]
    for client in clients:
        client.subscribe(b"t/+")
        client.subscribe(b"t/#")
    cluster[1].client("publisher").publish(b"t/a", b"1")
    assert [client.payloads() for client in clients] == [[b"1"]] * 10
    assert cluster[1].forwarding.peer(2).messages_out == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_know_of_subscribers_elsewhere(qos: int) -> None:
    cluster = SteppedCluster(2)
    publisher = cluster[1].client("publisher")
    assert publisher.publish(b"t/a", b"x", qos) == reasons.NO_MATCHING_SUBSCRIBERS
    client = cluster[2].client("a")
    client.subscribe(b"t/+", 2)
    assert publisher.publish(b"t/a", b"y", qos) == reasons.SUCCESS
    assert [(message.payload, message.qos) for message in client.consume()] == [(b"y", qos)]
    client.unsubscribe(b"t/+")
    cluster[2].client("member").subscribe(b"$share/g/t/+")
    assert publisher.publish(b"t/a", b"z", qos) == reasons.SUCCESS


def test_wills_delayed_and_admin_messages_reach_all_nodes() -> None:
    cluster = SteppedCluster(2)
    client = cluster[2].client("a")
    client.subscribe(b"#", 1)
    dying = cluster[1].client("dying", will=Will(b"w", b"will", 1, False, make_properties()))
    dying.drop()
    cluster[1].client("late").publish(b"$delayed/1/d", b"later", qos=1)
    cluster.advance(1_200)
    assert cluster[1].broker.publish(b"p", b"admin", 1, False, cluster.now) == 1
    cluster.settle()
    assert [(message.topic, message.payload, message.qos) for message in client.consume()] == [
        (b"w", b"will", 1),
        (b"d", b"later", 1),
        (b"p", b"admin", 1),
    ]


def test_a_forwarded_message_keeps_its_retain_flag_and_is_not_retained_by_forwarding() -> None:
    cluster = SteppedCluster(2)
    plain, as_published = cluster[2].client("plain"), cluster[2].client("as published")
    plain.subscribe(b"t/+")
    as_published.subscribe(b"t/+", retain_as_published=True)
    publisher = cluster[1].client("publisher")
    cluster.auto = False
    publisher.publish(b"t/a", b"x", retain=True)
    cluster[1].turn()
    cluster.drop(1, 2, lambda channel, _: channel == RETAINED)
    cluster.settle()
    assert [message.retain for message in plain.messages()] == [False]
    assert [message.retain for message in as_published.messages()] == [True]
    assert cluster[2].broker.retained.get(b"t/a", cluster.now) is None


def test_versions_properties_and_expiry_survive_the_way() -> None:
    cluster = SteppedCluster(2)
    five, four = cluster[2].client("five"), cluster[2].client("four", version=4)
    five.subscribe(b"t/+", 1, identifier=7)
    four.subscribe(b"t/+", 1)
    properties = make_properties(message_expiry_s=60, user=[("a", "b")], payload_format=1, content_type="x")
    cluster[1].client("publisher").publish(b"t/a", "ü".encode(), 1, properties=properties)
    (message,) = five.consume()
    assert message.properties is not None
    assert message.properties.message_expiry_s == 60
    assert message.properties.user == [("a", "b")]
    assert message.properties.payload_format == 1
    assert message.properties.subscription_identifiers == [7]
    assert [one.payload for one in four.consume()] == ["ü".encode()]
    cluster[1].client("old", version=4).publish(b"t/a", b"from 3.1.1", 1)
    assert [one.payload for one in five.consume()] == [b"from 3.1.1"]


def test_a_persistent_session_that_is_away_gets_it_later() -> None:
    cluster = SteppedCluster(2)
    cluster[2].client("a", session_expiry_s=100).subscribe(b"t/+", 1)
    cluster[2].broker.kick("a", cluster.now)
    cluster.settle()
    assert cluster[1].client("publisher").publish(b"t/a", b"x", 1) == reasons.SUCCESS
    back = cluster[2].client("a", clean_start=False, session_expiry_s=100)
    assert [message.payload for message in back.consume()] == [b"x"]


# --- shared groups ---


@pytest.mark.parametrize("strategy", ["random", "round_robin", "sticky", "hash_client", "hash_topic"])
def test_one_member_of_all_nodes_gets_each_message(strategy: str) -> None:
    cluster = SteppedCluster(3, settings=BrokerSettings(sys_interval_ms=0, shared_strategy=strategy))
    members = [cluster[node].client(f"{node}-{number}") for node in (1, 2, 3) for number in range(node)]
    for member in members:
        member.subscribe(b"$share/g/t/+", 1)
    sent = []
    for number in range(72):
        publisher = cluster[number % 3 + 1].client(f"publisher {number}")
        sent.append(b"%d" % number)
        publisher.publish(b"t/%d" % number, sent[-1], qos=number % 3)
    got = [[message.payload for message in member.consume()] for member in members]
    assert sorted(payload for each in got for payload in each) == sorted(sent)
    if strategy == "round_robin":
        assert [len(each) for each in got] == [12] * 6
    elif strategy == "sticky":
        assert sum(bool(each) for each in got) == 1
    else:
        assert sum(bool(each) for each in got) > 3


def test_members_of_the_publishers_node_first_if_set() -> None:
    cluster = SteppedCluster(2, settings=BrokerSettings(sys_interval_ms=0, shared_local_first=True))
    here, there = cluster[1].client("here"), cluster[2].client("there")
    for client in (here, there):
        client.subscribe(b"$share/g/t")
    publisher = cluster[1].client("publisher")
    for number in range(4):
        publisher.publish(b"t", b"%d" % number)
    assert (here.payloads(), there.payloads()) == ([b"0", b"1", b"2", b"3"], [])
    here.unsubscribe(b"$share/g/t")
    publisher.publish(b"t", b"x")
    assert there.payloads() == [b"x"]


def test_a_group_that_vanished_under_way_sends_the_message_on() -> None:
    cluster = SteppedCluster(3)
    gone, stays = cluster[2].client("gone"), cluster[3].client("stays")
    for client in (gone, stays):
        client.subscribe(b"$share/g/t", 1)
    cluster.auto = False
    publisher = cluster[1].client("publisher")
    gone.unsubscribe(b"$share/g/t")
    for number in range(4):
        publisher.publish(b"t", b"%d" % number, 1)
    cluster.settle()
    assert sorted(stays.payloads()) == [b"0", b"1", b"2", b"3"]
    gone.received()
    gone.expect_nothing()


def test_messages_that_find_no_member_anywhere_are_counted_after_two_hops() -> None:
    cluster = SteppedCluster(3)
    members = [cluster[2].client("two"), cluster[3].client("three")]
    for client in members:
        client.subscribe(b"$share/g/t", 1)
    publisher = cluster[1].client("publisher")
    cluster.auto = False
    for client in members:
        client.unsubscribe(b"$share/g/t")
    # No node hears of it: to every node it looks as if the other one had the member.
    publisher.publish(b"t", b"x", 1)
    for _ in range(100):
        for node in cluster.nodes.values():
            node.forwarding.flush(cluster.now)
            node.speak()
        for pair, queue in cluster.wire.queues.items():
            while queue:
                cluster.deliver(pair)
    lost = sum(stream.lost_shared for node in cluster.nodes.values() for stream in node.forwarding.streams.values())
    assert lost == 1


def test_members_that_are_connected_go_before_those_that_are_away_on_other_nodes() -> None:
    cluster = SteppedCluster(3)
    for node in (1, 2):
        away = cluster[node].client(f"away{node}", session_expiry_s=100)
        away.subscribe(b"$share/g/t", 1)
        away.drop()
    there = cluster[3].client("there")
    there.subscribe(b"$share/g/t", 1)
    publisher = cluster[1].client("publisher")
    for number in range(6):
        publisher.publish(b"t", b"%d" % number, 1)
    assert sorted(message.payload for message in there.consume()) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    there.drop()
    assert publisher.publish(b"t", b"waits", 1) == reasons.SUCCESS
    backs = [cluster[node].client(f"away{node}", clean_start=False) for node in (1, 2)]
    assert sorted(message.payload for back in backs for message in back.consume()) == [b"waits"]


def test_what_an_ended_member_had_not_acknowledged_goes_to_another_node() -> None:
    cluster = SteppedCluster(2)
    here, there = cluster[1].client("here"), cluster[2].client("there")
    here.subscribe(b"$share/g/t", 1)
    publisher = cluster[1].client("publisher")
    publisher.publish(b"t", b"x", 1)
    assert here.payloads() == [b"x"]
    there.subscribe(b"$share/g/t", 1)
    here.drop()
    assert there.payloads() == [b"x"]


def test_no_local_holds_for_the_session_on_its_node() -> None:
    cluster = SteppedCluster(2)
    one, two = cluster[1].client("one"), cluster[2].client("two")
    one.subscribe(b"t", no_local=True)
    two.subscribe(b"t", no_local=True)
    one.publish(b"t", b"from one")
    two.publish(b"t", b"from two")
    assert (one.payloads(), two.payloads()) == ([b"from two"], [b"from one"])
