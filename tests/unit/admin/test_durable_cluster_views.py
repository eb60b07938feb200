"""The cluster with what its state and its partitions add."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from flockmq.admin import cluster_model as model
from flockmq.admin.cluster_views import step
from flockmq.admin.durable_cluster_views import AWAY_NOTE, MORE_AWAY_NOTE, with_away, with_decisions, with_durable
from flockmq.admin.durable_port import MetaStatus
from flockmq.admin.model import Subscription
from flockmq.cluster.commands import CreateHidden, CreateTopic, NodeSeen
from flockmq.cluster.model import CAPTURE_TOPIC, EDGE, SESSIONS_TOPIC
from unit.admin.durable_desks import WALL_MS, MemoryDurable


@dataclass
class Shown:
    cluster: model.Cluster
    decisions: model.Decisions


def member(number: int) -> model.Member:
    return model.Member(
        name=f"n{number}@host",
        id=f"{number:016x}",
        host="127.0.0.1",
        port=16000 + number,
        state="alive",
        role="core",
        version="1",
        is_self=number == 1,
        linked=True,
        rtt_ms=None,
        clock_offset_ms=None,
        clients=0,
        routes=0,
        unsent_bytes=0,
    )


async def show(
    port: MemoryDurable,
    voters: tuple[int, ...] = (1, 2, 3),
    edges: tuple[int, ...] = (),
    learners: tuple[int, ...] = (),
    later_ms: int = 60_000,
) -> Shown:
    members = [replace(member(number), role="edge" if number in edges else "core") for number in (1, 2, 3)]
    bare = model.Cluster(id="1" * 16, node="n1@host", state="formed", reason="", members=members)
    meta = MetaStatus(1, list(voters), list(learners), port.state().index)
    found = with_decisions(bare, port.state(), meta, await port.replicas(None), WALL_MS + later_ms)
    assert found.decisions is not None
    return Shown(found, found.decisions)


async def test_partitions_with_too_few_copies_and_with_a_replica_away_are_counted() -> None:
    port = MemoryDurable(3)
    port.apply(CreateTopic("plant", shards=2))
    port.apply(CreateTopic("many", shards=3, replication_factor=5))
    port.apply(CreateTopic("single", replication_factor=1))
    shown = (await show(port)).decisions
    assert (shown.few_copies, shown.replica_away, shown.without_leader) == (3, 0, 0)
    [home] = next(iter(port.state().topics["default/single"].partitions)).replicas
    port.silent = {next(number for number in (1, 2, 3) if number != home)}
    shown = (await show(port)).decisions
    assert (shown.few_copies, shown.replica_away) == (3, 5)


async def test_edge_nodes_have_no_partitions_to_count() -> None:
    port = MemoryDurable(2)
    port.apply(NodeSeen(1, "n1@host", "127.0.0.1", 16001, role=EDGE))
    port.apply(CreateTopic("plant", replication_factor=1))
    edge, core, silent = (await show(port, edges=(1,))).cluster.members
    assert (edge.leads, edge.replicas, edge.lag) == (None, None, None), "also of the one that answers"
    assert (core.leads, core.replicas, core.lag) == (1, 1, 0)
    assert silent.replicas is None


async def test_voters_are_in_the_order_of_their_names() -> None:
    port = MemoryDurable(0)
    for number, name in ((1, "c@host"), (2, "a@host"), (3, "b@host")):
        port.apply(NodeSeen(number, name, "127.0.0.1", 16000 + number))
    assert (await show(port)).decisions.voters == ["a@host", "b@host", "c@host"]


async def test_two_voters_come_with_a_warning() -> None:
    port = MemoryDurable(2)
    assert "third core node" in (await show(port, (1, 2))).decisions.warning
    for voters in ((1,), (1, 2, 3)):
        assert not (await show(port, voters)).decisions.warning


async def test_there_is_no_such_warning_while_nodes_are_joining() -> None:
    port = MemoryDurable(2)
    assert not (await show(port, (1, 2), later_ms=5_000)).decisions.warning, "a third one may be on its way"
    assert not (await show(port, (1, 2), learners=(3,))).decisions.warning, "it is about to vote"
    three = MemoryDurable(3)
    assert not (await show(three, (1, 2))).decisions.warning, "it is there already"


async def test_zones_are_those_of_cluster_state() -> None:
    port = MemoryDurable(1)
    port.apply(NodeSeen(2, "n2@host", "127.0.0.1", 16002, zone="east"))
    assert [one.zone for one in (await show(port)).cluster.members] == ["", "east", ""]


async def test_nodes_that_were_not_heard_of_since_the_start_are_shown() -> None:
    port = MemoryDurable(3)
    alone = model.Cluster(id="1" * 16, node="n1@host", state="formed", reason="", members=[member(1)])
    meta = MetaStatus(0, [1, 2, 3], [], port.state().index)
    found = with_decisions(alone, port.state(), meta, {}, WALL_MS)
    assert [(one.id, one.state, one.linked) for one in found.members] == [
        ("1".zfill(16), "alive", True),
        ("2".zfill(16), "dead", False),
        ("3".zfill(16), "dead", False),
    ]


async def test_hidden_partitions_are_no_users_partitions_and_their_health_counts() -> None:
    port = MemoryDurable(3)
    port.apply(CreateTopic("plant", shards=2))
    port.apply(CreateHidden(SESSIONS_TOPIC))
    shown = await show(port)
    found = shown.decisions
    assert (found.topics, found.partitions, found.hidden_partitions) == (1, 2, 4)
    assert (found.without_leader, found.few_copies, found.hidden_without_leader) == (0, 0, [])
    assert [one.replicas for one in shown.cluster.members] == [6, 6, 6]
    assert sum(one.leads or 0 for one in shown.cluster.members) == 6
    port.leaderless = {2, 3, 6}
    found = (await show(port)).decisions
    assert found.without_leader == 3
    assert found.hidden_without_leader == ["$sessions/0", "$sessions/3"]


async def test_one_node_alone_has_all_copies_of_hidden_topics_that_it_can_have() -> None:
    port = MemoryDurable(1)
    port.apply(CreateHidden(SESSIONS_TOPIC))
    assert (await show(port, (1,))).decisions.few_copies == 0
    port.apply(NodeSeen(2, "n2@host", "127.0.0.1", 16002))
    assert (await show(port, (1,))).decisions.few_copies == 4


def explained(captured: bool) -> model.Explanation:
    steps = [step("p", "n1@host", "Publish", "a/b"), step("n1@host", "c", "Deliver", "a/b")]
    return model.Explanation(topic="a/b", node="n1@host", steps=steps, misses=[], notes=["n"], captured=captured)


async def test_a_captured_message_is_appended_before_it_is_delivered() -> None:
    port = MemoryDurable(3)
    assert await with_durable(explained(True), port, b"a/b") == explained(True)  # the topic is being made
    port.apply(CreateHidden(CAPTURE_TOPIC))
    found = await with_durable(explained(True), port, b"a/b")
    assert [one.kind for one in found.steps] == ["Publish", "Append", "Deliver"]
    assert found.steps[1].topic.startswith("$capture/")
    assert found.durable is None
    assert await with_durable(explained(False), port, b"a/b") == explained(False)
    port.leaderless = {one.group for one in port.state().partitions()}
    assert await with_durable(explained(True), port, b"a/b") == explained(True)


def subscription(client_id: str, qos: int = 1, share_group: str | None = None) -> Subscription:
    return Subscription(
        client_id=client_id,
        namespace="default",
        filter="a/+",
        share_group=share_group,
        qos=qos,
        no_local=False,
        retain_as_published=False,
        retain_handling=0,
        identifier=None,
        away=True,
    )


async def test_sessions_that_are_away_get_it_from_the_log() -> None:
    away = [subscription("x"), subscription("lost", qos=0), subscription("shared", share_group="g")]
    found = with_away(explained(True), away, is_more=False)
    assert [(one.source, one.target, one.topic, one.qos, one.note) for one in found.steps[2:]] == [
        ("$capture", "x", "a/+", 1, AWAY_NOTE)
    ]
    assert found.notes == ["n"]
    assert with_away(explained(True), away, is_more=True).notes == ["n", MORE_AWAY_NOTE]
    port = MemoryDurable(3)
    port.apply(CreateTopic("a", shards=1))
    kept = with_away(await with_durable(explained(False), port, b"a/b"), away, is_more=False)
    assert kept.steps[-1].source == "a"
