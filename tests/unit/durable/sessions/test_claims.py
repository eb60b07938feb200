"""Claims of client ids: one owner at a time, in the order of the log, and none that its client has left."""

from __future__ import annotations

from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.durable.machine.session_bodies import ClaimStatement
from flockmq.durable.sessions.marking import MARK_MS
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Disconnect
from session_nodes import SessionNodes, connect_packet


def test_the_first_client_of_several_nodes_makes_the_hidden_topics() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "clean")
    assert len(nodes.groups()) == 4
    assert len(nodes.groups(CAPTURE_TOPIC)) == 8
    nodes.connect(1, "c")
    record = nodes.record("c")
    assert (record.owner, record.boot, record.is_connected, record.had_session) == (1, 1, True, False)


def test_sessions_that_end_with_their_connections_write_nothing_on_a_node_alone() -> None:
    nodes = SessionNodes(1)
    nodes.clean(1, "first").client.disconnect()
    assert nodes.groups() == []
    nodes.connect(1, "persistent")
    nodes.run(2 * MARK_MS)
    before = nodes.entries()
    for number in range(5):
        nodes.clean(1, f"clean{number}").client.disconnect()
    nodes.run(1_000)
    assert nodes.entries() == before


def test_a_clean_session_has_a_record_while_it_is_connected() -> None:
    nodes = SessionNodes()
    device = nodes.clean(1, "c")
    record = nodes.record("c")
    assert (record.owner, record.is_connected, record.expiry_s) == (1, True, 0)
    device.client.drop()
    nodes.until(lambda: not nodes.has_record("c"))
    nodes.clean(3, "d")
    nodes[3].kill()
    nodes.until(lambda: not nodes.has_record("d"))


def test_claims_of_a_turn_are_one_entry_per_shard() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "first")
    nodes.run(2_000)
    before = nodes.entries()
    clients = [nodes[1].harness.connect(connect_packet(f"c{number}", expiry_s=0)) for number in range(200)]
    nodes.until(lambda: all(client.has_received for client in clients))
    assert nodes.entries() - before <= 4 * 2, "the first of a shard alone, then all that waited"


def test_mqtt_3_1_1_sessions_are_persistent_without_a_clean_start() -> None:
    nodes = SessionNodes()
    device = nodes.connect(1, "c", version=4)
    assert nodes.subscribe(device, b"a/#") == 1
    nodes.drop(device)
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/b", [b"1"])
    device = nodes.connect(3, "c", version=4)
    assert device.connack.session_present
    assert nodes.got(device) == [b"1"]


def test_a_clean_start_drops_what_the_record_had() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.subscriber(1, "c", b"a/#"))
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"1"])
    device = nodes.connect(3, "c", clean_start=True)
    assert not device.connack.session_present
    assert nodes.record("c").subscriptions == {}
    assert nodes.got(device) == []
    assert nodes.table("c").filters == {}


def test_an_expiry_of_0_takes_the_record_over_and_ends_it() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.subscriber(1, "c", b"a/#"))
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"1"])
    device = nodes.connect(3, "c", expiry_s=0)
    assert device.connack.session_present
    assert nodes.got(device) == [b"1"]
    device.client.drop()
    nodes.until(lambda: not nodes.has_record("c"))


def test_epochs_grow_with_each_connection() -> None:
    nodes = SessionNodes()
    epochs: list[int] = []
    for number in (1, 2, 3, 3, 1):
        device = nodes.connect(number, "c")
        epochs.append(nodes.record("c").epoch)
        nodes.drop(device)
    assert epochs == sorted(set(epochs))


def test_of_two_claims_at_once_one_wins() -> None:
    nodes = SessionNodes()
    nodes.connect(1, "other")
    clients = [nodes[number].harness.connect(connect_packet("c")) for number in (1, 2, 3)]
    nodes.run(8_000)
    owner = nodes.record("c").owner
    open_at = [number for number, client in zip((1, 2, 3), clients, strict=True) if not client.closed]
    assert open_at == [owner]


def test_a_takeover_by_another_node_closes_the_first_connection() -> None:
    nodes = SessionNodes()
    first = nodes.subscriber(1, "c", b"a/#")
    second = nodes.connect(2, "c")
    assert second.connack.session_present
    farewell = nodes.answer(first, Disconnect)
    assert farewell.reason == reasons.SESSION_TAKEN_OVER
    nodes.publish_all(nodes.clean(3, "p"), b"a/b", [b"1"])
    assert nodes.got(second) == [b"1"]


def test_without_a_majority_persistent_sessions_are_refused_and_clean_ones_are_let_in() -> None:
    nodes = SessionNodes()
    nodes.connect(2, "known")
    nodes.isolate(1)
    nodes.run(2_000)
    assert nodes.ask(1, connect_packet("c")).connack.reason == reasons.SERVER_UNAVAILABLE
    assert nodes.clean(1, "clean").connack.reason == 0


def test_a_copy_in_memory_that_is_older_than_the_record_is_dropped() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    device.holds = True
    nodes.publish_all(publisher, b"a/b", [b"1"])
    nodes.run(1_000)
    nodes.isolate(1)
    device.client.drop()
    nodes.run(5_000)
    assert "c" in nodes[1].harness.broker.sessions
    device = nodes.connect(2, "c")
    assert nodes.got(device) == [b"1"]
    nodes.publish_all(publisher, b"a/b", [b"2"])
    assert nodes.got(device) == [b"2"]
    nodes.drop(device)
    nodes[2].kill()
    nodes.heal()
    nodes.run(5_000)
    device = nodes.connect(1, "c")
    assert device.connack.session_present
    assert b"1" not in nodes.got(device), "acknowledged at another node since"


def test_marks_say_nothing_of_a_client_whose_claim_is_under_way() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.subscriber(1, "c", b"a/#"))
    uncertain = nodes[2].durable.session_room.uncertain
    client = nodes[2].harness.connect(connect_packet("c"))
    nodes.settle_until(lambda: bool(nodes[2].durable.session_room.log._busy))
    assert b"c" in uncertain.unknown, "from now on the claim may be applied"
    nodes.until(lambda: client.has_received)
    assert not uncertain.unknown
    assert not uncertain.pending


def test_a_client_that_goes_while_its_node_makes_sure_of_its_session_is_away() -> None:
    nodes = SessionNodes()
    device = nodes.connect(3, "c", expiry_s=20)
    nodes.subscribe(device, b"a/#")
    nodes.isolate(3)
    nodes.until(lambda: not nodes.record("c").is_connected)
    nodes.heal()
    nodes.until(lambda: nodes.record("c").is_connected, 20_000)
    device.client.drop()
    nodes.run(5_000)
    assert not nodes.record("c").is_connected
    nodes.until(lambda: not nodes.has_record("c"))


def test_a_claim_that_comes_late_does_not_take_the_session_back() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.subscriber(1, "c", b"a/#"))
    log = nodes[1].durable.session_room.log
    late = ClaimStatement(b"c", 99, 0, 1, 1, None, 60, 5, 0)
    late.seen = log.known(b"c")
    device = nodes.connect(2, "c")
    assert device.connack.session_present
    told = log.say(b"c", late)
    nodes.until(lambda: told.is_set)
    assert nodes.record("c").owner == 2
    nodes.publish_all(nodes.clean(3, "p"), b"a/b", [b"1"])
    assert nodes.got(device) == [b"1"]


def test_a_client_that_moves_at_once_finds_its_session_though_its_node_has_not_heard_of_the_last_claim() -> None:
    nodes = SessionNodes()
    nodes.subscriber(1, "c", b"a/#")
    for number in (2, 3, 1, 2):
        device = nodes.connect(number, "c")
        assert device.connack.session_present
        assert nodes.record("c").owner == number


def test_nodes_hear_how_far_shards_are() -> None:
    nodes = SessionNodes()
    nodes.connect(1, "c")
    nodes.run(2_000)
    claimed = nodes.record("c").claimed_index
    assert all(nodes[number].durable.session_room.log.known(b"c") >= claimed for number in (1, 2, 3))
