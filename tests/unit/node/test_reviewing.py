"""Users and rules that change under connected clients."""

from __future__ import annotations

import pytest

from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Disconnect, Will
from flockmq.node.namespaces import NamespaceLimits
from flockmq.node.ports import Accept, AuthRequest, Identity, OpenGate, Refuse, Verdict
from flockmq.node.reviewing import CHECKS_PER_TICK, SESSIONS_AT_ONCE, Review
from flockmq.session.session import Session
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties


class RuledGate:
    """Lets everybody in under the name they give; ``closed`` topics are for nobody, and from ``peers`` nothing is."""

    def __init__(self) -> None:
        self.version = 1
        self.closed: set[bytes] = set()
        self.peers: set[str] = set()
        self.checks = 0

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        namespace, peer = request.namespace, request.peer
        return Accept(Identity(request.client_id, request.username, namespace=namespace, peer=peer))

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
        return Refuse(0x8C, "no")

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        return topic not in self.closed and identity.peer not in self.peers

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        self.checks += 1
        return topic_filter not in self.closed and identity.peer not in self.peers

    def identify(self, client_id: str, username: str | None, namespace: str, peer: str) -> Identity | None:
        return Identity(client_id, username, namespace=namespace, peer=peer)

    def close(self, *topics: bytes) -> None:
        self.closed.update(topics)
        self.version += 1


@pytest.fixture
def gate() -> RuledGate:
    return RuledGate()


@pytest.fixture
def harness(gate: RuledGate) -> BrokerHarness:
    found = BrokerHarness(gate=gate)
    found.broker.set_namespaces([NamespaceLimits("acme")], found.now)
    return found


def review(harness: BrokerHarness, gate: RuledGate, **changes: frozenset[str] | None) -> None:
    harness.broker.review(Review(gate.identify, **changes), harness.now)  # type: ignore[arg-type]
    harness.flush()


def names(*found: str) -> frozenset[str]:
    return frozenset(found)


def filters(harness: BrokerHarness, client_id: str) -> list[bytes]:
    return list(harness.broker.sessions[client_id].subscriptions)


def revoked(harness: BrokerHarness) -> list[object]:
    return [one.fields["filter"] for one in harness.broker.take_events() if one.kind == "subscription_revoked"]


def left_with(client: HarnessClient) -> int:
    assert client.closed
    return client.expect(Disconnect).reason


def test_a_removed_client_goes_and_so_does_its_session(harness: BrokerHarness, gate: RuledGate) -> None:
    watcher = harness.client("w", username="watcher")
    watcher.subscribe(b"will")
    gone = harness.client("1", username="bob", session_expiry_s=600, will=Will(b"will", b"x"))
    harness.client("2", username="bob", session_expiry_s=600).drop()
    other = harness.client("3", username="acme/bob")
    review(harness, gate, removed=names("bob"))
    assert left_with(gone) == reasons.ADMINISTRATIVE_ACTION
    assert sorted(harness.broker.sessions) == ["$ns/acme/3", "w"]
    assert not other.closed
    assert [one.topic for one in watcher.consume()] == [b"will"]


def test_other_credentials_must_be_proved_again(harness: BrokerHarness, gate: RuledGate) -> None:
    client = harness.client("1", username="acme/bob", session_expiry_s=600)
    client.subscribe(b"a")
    review(harness, gate, changed=names("acme/bob"))
    assert left_with(client) == reasons.NOT_AUTHORIZED
    back = harness.client("1", username="acme/bob", clean_start=False, session_expiry_s=600)
    assert back.connack.session_present
    assert filters(harness, "$ns/acme/1") == [b"$ns/acme/a"]


def test_subscriptions_that_are_not_allowed_any_more_end(harness: BrokerHarness, gate: RuledGate) -> None:
    here, away = harness.client("1", username="bob"), harness.client("2", username="bob", session_expiry_s=600)
    other = harness.client("3", username="eve")
    for client in (here, away, other):
        for topic_filter in (b"a", b"b", b"$share/g/a"):
            client.subscribe(topic_filter)
    away.drop()
    gate.close(b"a")
    review(harness, gate, rights=names("bob"))
    assert filters(harness, "1") == filters(harness, "2") == [b"b"]
    assert revoked(harness) == [b"a", b"$share/g/a"] * 2
    assert filters(harness, "3") == [b"a", b"b", b"$share/g/a"], "nothing was said to have changed for eve"
    assert not here.closed
    harness.broker.publish(b"a", b"x", 0, False, harness.now)
    harness.flush()
    assert here.received() == []
    here.subscribe(b"b2")
    here.subscribe(b"a")
    assert filters(harness, "1") == [b"b", b"b2"]


def test_rules_of_a_namespace_reach_all_in_it(harness: BrokerHarness, gate: RuledGate) -> None:
    for number in range(30):
        client = harness.client(f"c{number}", username=f"acme/user{number}")
        client.subscribe(b"a")
    outsider = harness.client("o")
    outsider.subscribe(b"a")
    gate.close(b"$ns/acme/a", b"a")
    review(harness, gate, namespaces=names("acme"))
    harness.advance(100)
    assert not any(filters(harness, f"$ns/acme/c{number}") for number in range(30))
    assert filters(harness, "o") == [b"a"]
    review(harness, gate, namespaces=None)
    harness.advance(100)
    assert filters(harness, "o") == []


def test_many_are_judged_one_after_the_other(harness: BrokerHarness, gate: RuledGate) -> None:
    client = harness.client("many")
    for number in range(CHECKS_PER_TICK // 2 + 1):
        client.subscribe(b"%d" % number)
    for number in range(10):
        harness.client(f"c{number}").subscribe(b"a")
    review(harness, gate, namespaces=None)
    before = gate.checks
    harness.broker.tick(harness.now)
    assert 0 < gate.checks - before <= 2 * CHECKS_PER_TICK
    harness.advance(1_000)
    assert harness.broker.node.reviews.waiting == []


def test_among_many_sessions_changes_are_acted_on_together(harness: BrokerHarness, gate: RuledGate) -> None:
    for number in range(SESSIONS_AT_ONCE + 1):
        harness.broker.sessions[f"s{number}"] = Session(f"s{number}", 5, harness.now)
    clients = [harness.client(f"c{number}", username=f"user{number}") for number in range(5)]
    clients[4].subscribe(b"a")
    gate.close(b"a")
    for number in range(3):
        review(harness, gate, removed=names(f"user{number}"))
    review(harness, gate, changed=names("user3"))
    review(harness, gate, rights=names("user4"))
    assert not any(client.closed for client in clients)
    harness.advance(100)
    assert [client.closed for client in clients] == [True, True, True, True, False]
    assert filters(harness, "c4") == []
    review(harness, gate, removed=names("user4"))
    harness.advance(500)
    assert clients[4].closed, "within a second"


def test_a_session_that_comes_back_is_judged_by_the_rules_of_now(harness: BrokerHarness, gate: RuledGate) -> None:
    client = harness.client("1", session_expiry_s=600)
    client.subscribe(b"a")
    client.subscribe(b"b")
    client.drop()
    gate.close(b"a")
    back = harness.client("1", clean_start=False, session_expiry_s=600)
    assert back.connack.session_present
    assert filters(harness, "1") == [b"b"]


def test_a_session_that_comes_back_is_judged_by_where_it_comes_from(harness: BrokerHarness, gate: RuledGate) -> None:
    gate.peers.add("192.0.2.9")
    client = harness.client("1", session_expiry_s=600, peer="192.0.2.1")
    client.subscribe(b"a")
    client.drop()
    back = harness.client("1", clean_start=False, session_expiry_s=600, peer="192.0.2.9")
    assert back.connack.session_present
    assert filters(harness, "1") == []
    assert revoked(harness) == [b"a"]


def test_a_session_that_is_away_is_judged_by_where_it_came_from(harness: BrokerHarness, gate: RuledGate) -> None:
    for number in (1, 2):
        client = harness.client(str(number), session_expiry_s=600, peer=f"192.0.2.{number}")
        client.subscribe(b"a")
        client.drop()
    gate.peers.update(("", "192.0.2.1"))
    review(harness, gate, namespaces=None)
    harness.advance(100)
    assert filters(harness, "1") == []
    assert filters(harness, "2") == [b"a"]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_will_that_is_not_allowed_any_more_is_not_published(
    harness: BrokerHarness, gate: RuledGate, is_away: bool
) -> None:
    watcher = harness.client("w")
    watcher.subscribe(b"#")
    properties = make_properties(will_delay_s=60)
    client = harness.client("1", will=Will(b"alarm", b"!", 0, False, properties), session_expiry_s=600)
    if is_away:
        client.drop()
    gate.close(b"alarm")
    review(harness, gate, namespaces=None)
    harness.advance(100)
    assert "will_revoked" in [one.kind for one in harness.broker.take_events()]
    client.drop()
    harness.advance(601_000)
    assert watcher.received() == []


def test_from_an_open_gate_to_another(gate: RuledGate) -> None:
    harness = BrokerHarness(gate=OpenGate())
    harness.broker.set_namespaces([NamespaceLimits("acme")], harness.now)
    somebody = harness.client("1", username="alice", session_expiry_s=600)
    inside = harness.client("2", username="acme/bob", session_expiry_s=600)
    harness.broker.use_gate(gate, names("acme"), harness.now)
    harness.flush()
    assert left_with(inside) == reasons.NOT_AUTHORIZED, "it has never proved to belong there"
    assert not somebody.closed
    identity = harness.broker.sessions["1"].connection
    assert identity is not None
    assert identity.identity is not None
    assert identity.identity.username is None
    back = harness.client("2", username="acme/bob", clean_start=False, session_expiry_s=600)
    assert back.connack.session_present, "now it has"
    gate.close(b"a")
    assert somebody.publish(b"a", b"x", qos=1) == reasons.NOT_AUTHORIZED
