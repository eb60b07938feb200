"""A CONNACK that waits for QoS 2 ids in logs. (Claims without them: ``test_ownership``.)"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Connack, Packet
from flockmq.session.session import Session
from flockmq.testing.harness_client import HarnessClient
from session_cluster import SessionCluster, SimNode

Reply = Callable[[set[int] | None, int], None]


class Logs:
    """What logs know; answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Reply]] = []
        self.anew: list[tuple[str, int]] = []
        self.over: list[str] = []

    def wants(self) -> bool:
        return True

    def collect(self, client_id: str, epoch: int, reply: Reply, now: int) -> None:
        self.asked.append((client_id, epoch, reply))

    def begins_anew(self, client_id: str, epoch: int, now: int) -> None:
        self.anew.append((client_id, epoch))

    def ended(self, session: Session) -> None:
        self.over.append(session.client_id)


class Log(Logs):
    """One that answers before it returns."""

    def collect(self, client_id: str, epoch: int, reply: Reply, now: int) -> None:
        self.asked.append((client_id, epoch, reply))
        reply({3}, now)


def cluster_of(count: int, kind: type[Logs] = Logs) -> tuple[SessionCluster, list[SimNode], list[Logs]]:
    logs = [kind() for _ in range(count)]
    cluster = SessionCluster(0, count, delay_ms=(1, 10), collectors=list(logs))
    cluster.settle()
    return cluster, list(cluster.nodes.values()), logs


def received(cluster: SessionCluster, client: HarnessClient, ms: int = 1_000) -> list[Packet]:
    cluster.run(ms)
    return client.received()


def test_the_connack_waits_and_the_session_gets_the_ids() -> None:
    for count in (1, 3):
        cluster, nodes, logs = cluster_of(count)
        client = cluster.connect(nodes[0], "c")
        assert received(cluster, client, 2_900) == []
        client_id, epoch, reply = logs[0].asked[0]
        assert client_id == "c"
        reply({5, 9}, cluster.now)
        (connack,) = received(cluster, client)
        assert isinstance(connack, Connack)
        assert connack.reason == 0
        session = nodes[0].sessions["c"]
        assert session.received == {5, 9}
        assert session.epoch == epoch
        assert nodes[0].ownership.claimant.claims == {}


def test_an_answer_that_is_there_at_once() -> None:
    for count in (1, 3):
        cluster, nodes, _ = cluster_of(count, Log)
        client = cluster.connect(nodes[0], "c")
        (connack,) = received(cluster, client)
        assert isinstance(connack, Connack)
        assert nodes[0].sessions["c"].received == {3}


def test_when_nobody_can_say_the_client_is_to_come_later() -> None:
    for count in (1, 3):
        cluster, nodes, logs = cluster_of(count)
        client = cluster.connect(nodes[0], "c")
        cluster.run(500)
        logs[0].asked[0][2](None, cluster.now)
        (connack,) = received(cluster, client)
        assert isinstance(connack, Connack)
        assert connack.reason == reasons.SERVER_UNAVAILABLE
        assert "c" not in nodes[0].sessions
        again = cluster.connect(nodes[0], "c")
        cluster.run(500)
        logs[0].asked[1][2](set(), cluster.now)
        assert received(cluster, again)
        assert nodes[0].sessions["c"].received is None


def test_a_clean_start_asks_for_nothing_and_voids_what_was() -> None:
    for count in (1, 3):
        cluster, nodes, logs = cluster_of(count)
        client = cluster.connect(nodes[0], "c", clean=True)
        assert received(cluster, client)
        assert logs[0].asked == []
        assert logs[0].anew == [("c", nodes[0].sessions["c"].epoch)]


def test_alone_a_session_that_is_here_need_not_ask() -> None:
    cluster, nodes, logs = cluster_of(1)
    client = cluster.connect(nodes[0], "c")
    cluster.run(500)
    logs[0].asked[0][2](set(), cluster.now)
    assert received(cluster, client)
    client.drop()
    client = cluster.connect(nodes[0], "c")
    assert received(cluster, client), "nobody else can have had it"


def test_among_others_every_resumed_session_asks() -> None:
    cluster, nodes, logs = cluster_of(3)
    client = cluster.connect(nodes[0], "c")
    cluster.run(500)
    logs[0].asked[0][2](set(), cluster.now)
    assert received(cluster, client)
    client.drop()
    client = cluster.connect(nodes[0], "c")
    assert received(cluster, client) == [], "another node may have had it meanwhile"
    logs[0].asked[1][2](set(), cluster.now)
    assert received(cluster, client)
    nodes[0].sessions["c"].received = {7}
    client = cluster.connect(nodes[1], "c")
    assert received(cluster, client) == []
    assert nodes[1].sessions["c"].received == {7}, "it has moved"
    logs[1].asked[0][2]({7, 8}, cluster.now)
    assert received(cluster, client)
    assert nodes[1].sessions["c"].received == {7, 8}


def test_a_session_that_came_without_its_client_has_to_ask_when_that_comes() -> None:
    cluster, nodes, logs = cluster_of(3)
    client = cluster.connect(nodes[0], "c")
    cluster.run(500)
    logs[0].asked[0][2](set(), cluster.now)
    assert received(cluster, client)
    client.drop()
    gone = cluster.connect(nodes[1], "c")
    cluster.run(5)
    gone.drop()
    cluster.settle()
    assert cluster.owners("c") == [nodes[1].node_id]
    assert logs[1].asked == []
    client = cluster.connect(nodes[1], "c")
    assert received(cluster, client) == []
    logs[1].asked[0][2]({4}, cluster.now)
    assert received(cluster, client)
    assert nodes[1].sessions["c"].received == {4}


def test_another_node_that_claims_meanwhile_gets_the_client() -> None:
    cluster, nodes, logs = cluster_of(3)
    first = cluster.connect(nodes[0], "c")
    cluster.run(500)
    second = cluster.connect(nodes[1], "c")
    cluster.run(500)
    (connack,) = first.received()
    assert isinstance(connack, Connack)
    assert connack.reason == reasons.SERVER_BUSY, "it was overtaken"
    logs[0].asked[0][2]({5}, cluster.now)
    cluster.run(3_000)
    assert logs[1].asked[0][1] > logs[0].asked[0][1]
    logs[1].asked[0][2]({5}, cluster.now)
    (connack,) = received(cluster, second)
    assert isinstance(connack, Connack)
    assert connack.reason == 0
    cluster.settle()
    assert cluster.owners("c") == [nodes[1].node_id]


def test_a_client_that_gave_up_leaves_nothing_behind() -> None:
    cluster, nodes, logs = cluster_of(3)
    client = cluster.connect(nodes[0], "c")
    cluster.run(500)
    client.drop()
    logs[0].asked[0][2]({5}, cluster.now)
    cluster.settle()
    assert cluster.owners("c") == []
    assert nodes[0].ownership.claimant.claims == {}
