"""One broker that knows of another node: what it puts into that node's buffer, and what it does with what comes."""

from __future__ import annotations

import pytest

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons
from flockmq.mqtt.run import make_run
from flockmq.node.delivering import route, take_run, take_shared
from flockmq.node.settings import BrokerSettings
from flockmq.routing.parcel import Parcel, read_parcels
from flockmq.routing.peer import Peer
from flockmq.testing.harness import BrokerHarness, make_properties


def harness_with_peer() -> tuple[BrokerHarness, Peer]:
    harness = BrokerHarness(settings=BrokerSettings(sys_interval_ms=0))
    node = harness.broker.node
    peer = Peer(9, "node9", 1_000_000, harness.settings.limits, harness.now, node.dirty_peers, node.stats)
    peer.linked = True
    return harness, peer


def parcels(harness: BrokerHarness, peer: Peer) -> list[Parcel]:
    return read_parcels(b"".join(peer.out), 0, harness.now)


def test_a_run_goes_to_a_peer_as_the_publisher_sent_it() -> None:
    harness, peer = harness_with_peer()
    harness.broker.subscriptions.add_route(b"t/+", peer)
    client = harness.client("a", version=4)
    assert client.publish(b"t/a", b"one", 1) == reasons.SUCCESS
    client.publish(b"t/a", b"two")
    client.publish(b"other", b"three")
    assert [(parcel.run.payload(0), parcel.run.qos, parcel.run.version) for parcel in parcels(harness, peer)] == [
        (b"one", 1, 4),
        (b"two", 0, 4),
    ]
    assert harness.broker.node.dirty_peers == [peer]
    assert harness.broker.stats.publishes_unmatched == 1


def test_what_has_expired_is_not_sent_on() -> None:
    harness, peer = harness_with_peer()
    harness.broker.subscriptions.add_route(b"t", peer)
    node = harness.broker.node
    run = make_run(5, 1, False, b"t", b"x", expires_at=harness.now)
    assert route(node, node.table.plan(b"t"), run, None, harness.now)
    assert peer.out == []
    harness.client("a").publish(b"t", b"y", 1, properties=make_properties(message_expiry_s=5))
    (parcel,) = parcels(harness, peer)
    assert parcel.run.expires_at == harness.now + 5_000


def test_what_a_peer_sends_reaches_clients_here_and_goes_no_further() -> None:
    harness, peer = harness_with_peer()
    client, member = harness.client("a"), harness.client("b")
    client.subscribe(b"t/+", 1)
    member.subscribe(b"$share/g/t/+", 1)
    harness.broker.subscriptions.add_route(b"t/+", peer)
    take_run(harness.broker.node, make_run(5, 1, True, b"t/a", b"x"), peer, harness.now)
    harness.flush()
    assert client.payloads() == [b"x"]
    assert member.payloads() == [], "members of groups are chosen by the publisher's node"
    assert peer.out == []
    assert harness.broker.retained.get(b"t/a", harness.now) is None


@pytest.mark.parametrize("topic", [b"a/+", b"\xff", b"#"])
def test_names_from_other_nodes_are_checked(topic: bytes) -> None:
    harness, peer = harness_with_peer()
    run = make_run(5, 0, False, topic, b"x")
    with pytest.raises(RemoteProtocolError):
        take_run(harness.broker.node, run, peer, harness.now)
    with pytest.raises(RemoteProtocolError):
        take_shared(harness.broker.node, Parcel(run, 0, b"g", b"#", ""), peer, harness.now)


def test_a_shared_run_is_for_a_member_here() -> None:
    harness, peer = harness_with_peer()
    members = [harness.client(str(number)) for number in range(2)]
    for member in members:
        member.subscribe(b"$share/g/t", 1)
    run = make_run(5, 1, False, b"t", b"x", packet_id=1)
    assert take_shared(harness.broker.node, Parcel(run, 0, b"g", b"t", "p"), peer, harness.now)
    harness.flush()
    assert sorted(member.payloads() for member in members) == [[], [b"x"]]
    assert not take_shared(harness.broker.node, Parcel(run, 0, b"h", b"t", "p"), peer, harness.now)


@pytest.mark.parametrize(("hops", "goes_on"), [(0, True), (1, True), (2, False)])
def test_a_shared_run_goes_on_twice_at_most(hops: int, goes_on: bool) -> None:
    harness, peer = harness_with_peer()
    harness.broker.subscriptions.set_share(b"g", b"t", peer, 1)
    run = make_run(5, 1, False, b"t", b"x", packet_id=1)
    assert take_shared(harness.broker.node, Parcel(run, hops, b"g", b"t", "p"), peer, harness.now) == goes_on
    assert [(parcel.hops, parcel.publisher_id) for parcel in parcels(harness, peer)] == [(hops + 1, "p")] * goes_on


def test_a_run_for_a_group_is_divided_between_nodes_in_few_pieces() -> None:
    harness, peer = harness_with_peer()
    here = harness.client("here")
    here.subscribe(b"$share/g/t")
    harness.broker.subscriptions.set_share(b"g", b"t", peer, 3)
    publisher = harness.client("publisher")
    publisher.send(b"".join([b"\x30\x05\x00\x01t\x00" + b"%d" % number for number in range(8)]))
    (parcel,) = parcels(harness, peer)
    assert parcel.run.count == 6
    together = here.payloads() + [parcel.run.payload(index) for index in range(6)]
    assert sorted(together) == [b"%d" % number for number in range(8)]
