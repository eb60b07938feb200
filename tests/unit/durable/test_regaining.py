"""QoS 2: a session goes to another owner and comes back, while something that it sent here is on its way into a log."""

from __future__ import annotations

import pytest

from flockmq.durable.machine.session_record import SessionRecord
from flockmq.durable.publish.appending import Appending
from flockmq.mqtt.packets import PUBCOMP, PUBREC, PUBREL, Ack, Publish
from flockmq.node.lifecycle import drop_session
from flockmq.raft.senders import TAKEN
from flockmq.routing.durable import DurableTopic
from flockmq.session.session import Session
from flockmq.testing.harness import BrokerHarness, HarnessClient
from partition_cluster import PartitionCluster
from unit.durable.qos2.test_releases import Publisher, payloads

HERE = 4
ELSEWHERE = 5
"""Nodes without a replica."""


class Home:
    """A broker on one of five nodes; three others have the log of the topic t."""

    def __init__(self) -> None:
        self.harness = BrokerHarness(node_id=HERE)
        sessions = {HERE: self.harness.broker.sessions}
        self.cluster = PartitionCluster(nodes=5, groups=1, sessions=sessions)
        self.node = self.cluster.nodes[HERE]
        self.harness.now = self.cluster.now
        broker = self.harness.broker.node
        entry_bytes_max = self.node.engine.host.settings.entry_bytes_max
        self.appending = Appending(broker, self.node.engine.appends, entry_bytes_max, self.node.releases)
        self.harness.ports.appending = self.appending
        self.plan(0)
        self.client = self.connect()
        self.publish(self.client, 1, b"first")  # from then on the partition is open to the session
        self.run(1_000)
        assert payloads(self.cluster, 1) == [b"first"]
        self.client.send(Ack(PUBREL, 1, 0, None))
        self.run(1_000)
        assert [one.kind for one in self.client.received() if isinstance(one, Ack)] == [PUBREC, PUBCOMP]

    @property
    def session(self) -> Session:
        return self.harness.broker.node.sessions["c"]

    def plan(self, index: int) -> None:
        topic = DurableTopic(b"default", b"t", [b"t/#"], [1], 0, 0, b"", index)
        table = self.harness.broker.node.table
        table.topics.put(topic)
        table.topics.index = max(index, table.topics.index)
        table.topics_changed(topic.filters)
        self.appending.topics_changed(self.harness.now)

    def run(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.cluster.run(50)
            self.harness.now = self.cluster.now
            self.appending.tick(self.harness.now)
            self.harness.broker.tick(self.harness.now)
            self.harness.flush()

    def connect(self, ms: int = 4_000) -> HarnessClient:
        """The claim, its ids, then the client: as ``sessions/owning.py`` and ``node/connecting.py`` do it."""
        got: list[set[int]] = []
        claimed = self.cluster.records.claim("c", HERE)
        record = claimed.record
        assert isinstance(record, SessionRecord)
        if self.node.releases.wants(claimed):
            self.node.releases.collect("c", claimed).then(got.append)
            self.run(ms)
        else:
            got.append(set())
        old = self.harness.broker.node.sessions.get("c")
        if old is not None and old.record_epoch != record.before:
            drop_session(self.harness.broker.node, old, self.harness.now)
        client = self.harness.client("c", clean_start=False, session_expiry_s=3_600)
        session = self.session
        session.is_logged = True
        session.record_epoch = record.epoch
        self.node.releases.attached(session, record)
        [ids] = got
        if ids or session.received:
            session.received = ids.union(session.received or ())
        return client

    def publish(
        self, client: HarnessClient, packet_id: int, payload: bytes, qos: int = 2, topic: bytes = b"t/x"
    ) -> None:
        client.send(Publish(topic, payload, qos, packet_id=packet_id))

    def cut_off(self) -> None:
        self.cluster.lost = lambda one, other: HERE in (one, other)

    def join(self) -> None:
        self.cluster.lost = lambda one, other: False

    def lose_majority(self) -> list[int]:
        """Only the leader of the log is left; which nodes died."""
        leader = self.cluster.leader(1).id
        dead = [number for number in (1, 2, 3) if number != leader]
        for number in dead:
            self.cluster.kill(number)
        self.run(4_000)
        return dead

    def store_elsewhere(self, packet_id: int, payload: bytes) -> None:
        """Another owner has the session, stores the message and releases it."""
        other = Publisher(self.cluster)
        other.connect(ELSEWHERE, 4_000)
        other.publish(1, packet_id, payload)
        other.pubrel(packet_id)
        assert (other.pubrecs, other.pubcomps) == ([packet_id], [packet_id])


def test_what_another_owner_stored_is_not_stored_again_by_a_log_that_could_not_be_asked() -> None:
    home = Home()
    home.cut_off()
    home.publish(home.client, 5, b"once")
    home.run(11_000)
    assert home.client.closed, "nobody can say"
    home.store_elsewhere(5, b"once")
    dead = home.lose_majority()
    home.join()
    home.run(3_000)
    home.connect(6_000)
    for number in dead:
        home.cluster.restart(number)
    home.run(15_000)
    assert payloads(home.cluster, 1) == [b"first", b"once"]
    assert 5 not in (home.session.received or ())
    assert not home.session.unsettled


@pytest.mark.parametrize("is_held", [False, True])
def test_what_another_owner_stored_is_not_put_in_again_with_another_plan(is_held: bool) -> None:
    home = Home()
    for number in (1, 2, 3):
        rules = home.cluster.nodes[number].engine.host.rules
        rules.known, rules.least[1] = 100, 50
    home.harness.broker.node.table.topics.index = 10
    if is_held:
        home.publish(home.client, 4, b"given back", qos=1)
        home.run(200)
    home.publish(home.client, 5, b"once")
    home.run(500)
    [lane] = home.appending.lanes.values()
    assert (len(lane.given_back), len(lane.held)) == (1, int(is_held))
    home.cut_off()
    home.client.drop()
    home.store_elsewhere(5, b"once")
    home.join()
    home.run(500)
    home.connect(1_500)
    assert lane.is_waiting()
    home.plan(60)
    home.run(3_000)
    assert payloads(home.cluster, 1).count(b"once") == 1
    assert not home.session.unsettled


@pytest.mark.parametrize("phase_ms", range(0, 1_000, 250))
def test_what_a_log_says_late_counts_more_than_what_is_on_its_way_there(phase_ms: int) -> None:
    """Another owner stored it and did not release it; then the log could not be asked for a while."""
    home = Home()
    home.cut_off()
    home.publish(home.client, 5, b"once")
    home.run(11_000)
    other = Publisher(home.cluster)
    other.connect(ELSEWHERE, 4_000)
    other.publish(1, 5, b"once")
    dead = home.lose_majority()
    home.join()
    home.run(3_000)
    back = home.connect(6_000)
    back.send(Ack(PUBREL, 9, 0, None))
    home.run(phase_ms)
    for number in dead:
        home.cluster.restart(number)
    home.run(6_000)
    back.send(Publish(b"t/x", b"once", 2, packet_id=5, dup=True))
    home.run(3_000)
    assert payloads(home.cluster, 1) == [b"first", b"once"]


def test_an_id_of_a_log_that_can_not_be_asked_may_be_another_message_s_by_now() -> None:
    home = Home()
    home.publish(home.client, 5, b"once")
    home.run(1_000)
    home.client.drop()
    other = Publisher(home.cluster)
    other.connect(ELSEWHERE, 4_000)
    other.pubrel(5)
    assert other.pubcomps == [5]
    dead = home.lose_majority()
    back = home.connect(6_000)
    home.publish(back, 5, b"new")
    home.run(500)
    assert not [one for one in back.received() if isinstance(one, Ack)], "not taken for the old one"
    assert back.closed, "so that it comes again"
    for number in dead:
        home.cluster.restart(number)
    home.run(6_000)
    home.publish(home.connect(), 5, b"new")
    home.run(2_000)
    assert payloads(home.cluster, 1) == [b"first", b"once", b"new"]


def test_the_late_outcome_of_an_old_message_is_not_that_of_a_new_one_with_its_id() -> None:
    """Stored from here, unheard of here, released elsewhere: then its id is used again while the log can't be asked."""
    home = Home()
    home.cluster.lost = lambda sender, receiver: receiver == HERE
    home.publish(home.client, 5, b"once")
    home.run(11_000)
    assert home.client.closed, "no outcome was heard"
    home.cut_off()
    other = Publisher(home.cluster)
    other.connect(ELSEWHERE, 4_000)
    other.pubrel(5)
    assert other.pubcomps == [5]
    dead = home.lose_majority()
    home.join()
    home.run(3_000)
    back = home.connect(6_000)
    home.publish(back, 5, b"new")
    for number in dead:
        home.cluster.restart(number)
    home.run(15_000)
    assert not [one for one in back.received() if isinstance(one, Ack)], "the PUBREC of the old message"
    assert back.closed, "so that it comes again"
    assert payloads(home.cluster, 1) == [b"first", b"once"]
    home.publish(home.connect(), 5, b"new")
    home.run(2_000)
    assert payloads(home.cluster, 1) == [b"first", b"once", b"new"]


def test_a_log_that_is_back_is_asked_once_more_for_clients_that_have_nothing_there() -> None:
    home = Home()
    dead = home.lose_majority()
    home.connect(6_000)
    releases = home.node.releases
    assert not releases.may_append(home.session, 1)
    for number in dead:
        home.cluster.restart(number)
    home.run(6_000)
    assert releases.may_append(home.session, 1)


def test_what_was_acknowledged_early_is_seen_through_whatever_happens_to_its_groups() -> None:
    """Its leader lost it, the next one wanted it elsewhere, and then nobody led for longer than a publisher waits."""
    home = Home()
    for number in (1, 2, 3):
        rules = home.cluster.nodes[number].engine.host.rules
        rules.known, rules.early[1] = 100, TAKEN
    home.harness.broker.node.table.topics.index = 10
    first = home.cluster.leader(1).id
    rest = [number for number in (1, 2, 3) if number != first]
    home.cluster.lost = lambda one, other: first in (one, other) and (one in rest or other in rest)
    home.publish(home.client, 7, b"promised", qos=1)
    home.run(150)
    assert [one.packet_id for one in home.client.received() if isinstance(one, Ack)] == [7]
    home.cluster.lost = lambda one, other: first in (one, other)
    for number in rest:
        home.cluster.nodes[number].engine.host.rules.least[1] = 50
    home.run(9_000)
    for number in (1, 2, 3):
        home.cluster.kill(number)
    home.run(4_000)
    home.plan(60)
    home.run(12_000)
    home.join()
    for number in (1, 2, 3):
        home.cluster.restart(number)
        home.cluster.nodes[number].engine.host.rules.known = 100
    home.run(15_000)
    assert payloads(home.cluster, 1) == [b"first", b"promised"]


def test_what_was_given_back_while_its_session_stayed_goes_by_its_present_epoch() -> None:
    home = Home()
    for number in (1, 2, 3):
        rules = home.cluster.nodes[number].engine.host.rules
        rules.known, rules.least[1] = 100, 50
    home.harness.broker.node.table.topics.index = 10
    home.publish(home.client, 5, b"once")
    home.run(500)
    home.client.drop()
    back = home.connect(500)
    home.publish(back, 5, b"once")
    home.plan(60)
    home.run(2_000)
    assert payloads(home.cluster, 1) == [b"first", b"once"]
    assert [(one.kind, one.packet_id) for one in back.received() if isinstance(one, Ack)] == [(PUBREC, 5)]
