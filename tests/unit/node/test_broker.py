from __future__ import annotations

from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Connack, Connect, Disconnect, Will
from flockmq.node.ports import Accept, AuthRequest, Identity, OpenGate, Verdict
from flockmq.testing.harness import WALL_MS, BrokerHarness


def test_the_calendar_may_be_set_while_the_broker_runs() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.publish(b"a", b"1", retain=True)
    harness.broker.set_wall(WALL_MS + 3_600_000, harness.now)
    client.publish(b"b", b"1", retain=True)
    stored = [harness.broker.retained.get(topic, harness.now) for topic in (b"a", b"b")]
    assert [one.stored_wall_ms() for one in stored if one is not None] == [WALL_MS, WALL_MS + 3_600_000]


def test_whatever_clients_retain_and_delete_is_noted_for_disk_and_other_nodes() -> None:
    harness = BrokerHarness()
    store = harness.broker.retained
    store.share(7)
    unsaved, unsent = store.keep_unsaved(), store.keep_unsent()
    client = harness.client("c", will=Will(b"will", b"gone", 0, True))
    for qos in (0, 1, 2):
        client.publish(b"q/%d" % qos, b"1", qos=qos, retain=True)
    client.publish(b"not retained", b"1")
    client.publish(b"q/0", b"", retain=True)
    client.publish(b"unknown", b"", retain=True)
    client.drop()
    harness.broker.publish_sys(harness.now)
    topics = [b"q/0", b"q/1", b"q/2", b"unknown", b"will"]
    assert sorted(unsaved.take(100)) == sorted(unsent.take(100)) == topics
    assert store.tombstones.count == 2


def test_a_node_that_moves_lets_its_clients_go_and_nobody_in_until_it_is_there() -> None:
    harness = BrokerHarness()
    watcher = harness.client("watcher")
    watcher.subscribe(b"will/#")
    harness.client("device", session_expiry_s=600, will=Will(b"will/device", b"gone"))
    away = harness.client("away", session_expiry_s=600)
    away.drop()
    harness.broker.move_out(harness.now)
    harness.flush()
    will, goodbye = watcher.received()
    assert not isinstance(will, Disconnect), "it hears of others who are gone before it is"
    assert isinstance(goodbye, Disconnect)
    assert (goodbye.reason, watcher.closed) == (reasons.USE_ANOTHER_SERVER, True)
    assert dict(harness.broker.sessions) == {}, "they belong to the cluster that was left"
    assert harness.connect(Connect(5, "early")).expect(Connack).reason == reasons.USE_ANOTHER_SERVER
    assert harness.connect(Connect(4, "early")).expect(Connack).reason == 3


def test_a_connect_is_due_from_when_its_connection_was_accepted() -> None:
    harness = BrokerHarness()
    limits = harness.settings.limits
    handshake_ms = limits.connect_timeout_ms - 1_000
    late = harness.broker.open("wss", limits, "127.0.0.1", harness.now, accepted_at=harness.now - handshake_ms)
    soon = harness.broker.open("tcp", limits, "127.0.0.1", harness.now)
    harness.advance(1_100)
    assert (late.closing, soon.closing) == (True, False)
    harness.advance(handshake_ms)
    assert soon.closing


class ThinkingGate(OpenGate):
    """Says nothing at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[AuthRequest] = []

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        """Take a note."""
        self.asked.append(request)
        return None


def test_a_client_that_goes_while_it_is_judged_needs_no_verdict() -> None:
    gate = ThinkingGate()
    harness = BrokerHarness(gate=gate)
    client = harness.connect(Connect(5, "c"))
    assert not client.connection.reading_paused, "or nobody would see that it goes"
    assert not gate.asked[0].abandoned
    client.drop()
    assert gate.asked[0].abandoned


def test_what_a_client_says_while_it_is_judged_waits_in_the_network() -> None:
    gate = ThinkingGate()
    harness = BrokerHarness(gate=gate)
    client = harness.connect(Connect(5, "c"))
    paused = [client.connection.reading_paused]
    client.send(b"\xc0\x00")
    paused.append(client.connection.reading_paused)
    harness.broker.auth_result(gate.asked[0], Accept(Identity("c")), harness.now)
    harness.flush()
    assert [*paused, client.connection.reading_paused] == [False, True, False]
    assert client.received_bytes().endswith(b"\xd0\x00")
