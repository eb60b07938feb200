"""A CONNACK that waits for QoS 2 ids in logs. (Claims without them: ``test_ownership``.)"""

from __future__ import annotations

from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Connack, Packet, Will
from flockmq.node.ports import Claimed
from flockmq.session.connection import Connection
from flockmq.session.session import Session
from flockmq.tasks import Promise, promised
from flockmq.testing.harness_client import HarnessClient
from session_cluster import SessionCluster, SimNode


class Logs:
    """What logs know; answers when the test says so. Every record touches partitions, but for those of ``quiet``."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Promise[set[int]]]] = []
        self.over: list[str] = []
        self.quiet: set[str] = set()

    def wants(self, claimed: Claimed) -> bool:
        return claimed.record not in self.quiet

    def collect(self, client_id: str, claimed: Claimed) -> Promise[set[int]]:
        ids: Promise[set[int]] = Promise()
        self.asked.append((client_id, claimed.epoch, ids))
        return ids

    def ended(self, session: Session) -> None:
        self.over.append(session.client_id)


class Granting:
    """The log of records: grants every claim at once."""

    def wants(self, expiry_s: int, has_will: bool) -> bool:
        return True

    def claim(
        self,
        connection: Connection,
        client_id: str,
        username: str | None,
        epoch: int,
        expiry_s: int,
        version: int,
        clean_start: bool,
        will: Will | None,
    ) -> Promise[Claimed]:
        return promised(Claimed(0, "", epoch, client_id))


class Log(Logs):
    """One that answers before it returns."""

    def collect(self, client_id: str, claimed: Claimed) -> Promise[set[int]]:
        return promised({3})


def cluster_of(count: int, kind: type[Logs] = Logs) -> tuple[SessionCluster, list[SimNode], list[Logs]]:
    logs = [kind() for _ in range(count)]
    cluster = SessionCluster(0, count, delay_ms=(1, 10), collectors=list(logs), records=Granting())
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
        client_id, epoch, ids = logs[0].asked[0]
        assert client_id == "c"
        ids.set({5, 9})
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


def test_a_session_that_touches_no_partition_asks_for_nothing() -> None:
    for count in (1, 3):
        cluster, nodes, logs = cluster_of(count)
        logs[0].quiet.add("c")
        client = cluster.connect(nodes[0], "c")
        assert received(cluster, client)
        assert logs[0].asked == []


def test_every_resumed_session_that_touches_partitions_asks() -> None:
    cluster, nodes, logs = cluster_of(3)
    client = cluster.connect(nodes[0], "c")
    cluster.run(500)
    logs[0].asked[0][2].set(set())
    assert received(cluster, client)
    client.drop()
    client = cluster.connect(nodes[0], "c")
    assert received(cluster, client) == [], "another node may have had it meanwhile"
    logs[0].asked[1][2].set(set())
    assert received(cluster, client)
    nodes[0].sessions["c"].received = {7}
    client = cluster.connect(nodes[1], "c")
    assert received(cluster, client) == []
    assert nodes[1].sessions["c"].received == {7}, "it has moved"
    logs[1].asked[0][2].set({7, 8})
    assert received(cluster, client)
    assert nodes[1].sessions["c"].received == {7, 8}


def test_another_node_that_claims_meanwhile_gets_the_client() -> None:
    cluster, nodes, logs = cluster_of(3)
    first = cluster.connect(nodes[0], "c")
    cluster.run(500)
    second = cluster.connect(nodes[1], "c")
    cluster.run(500)
    (connack,) = first.received()
    assert isinstance(connack, Connack)
    assert connack.reason == reasons.SERVER_BUSY, "it was overtaken"
    logs[0].asked[0][2].set({5})
    cluster.run(3_000)
    assert logs[1].asked[0][1] > logs[0].asked[0][1]
    logs[1].asked[0][2].set({5})
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
    logs[0].asked[0][2].set({5})
    cluster.settle()
    assert cluster.owners("c") == []
    assert nodes[0].ownership.claimant.claims == {}
