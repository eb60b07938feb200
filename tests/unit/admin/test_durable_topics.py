from __future__ import annotations

import pytest
from msgspec import UNSET

from flockmq.admin import durable_cluster, durable_topics
from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.desk import Desk
from flockmq.cluster.advice import Advice, LeaderAdvice
from flockmq.cluster.commands import CreateHidden, CreateTopic, NodeSeen, SetTarget
from flockmq.cluster.model import CAPTURE_TOPIC, SESSIONS_TOPIC
from flockmq.errors import ApiError
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import MemoryDurable


def open_desk(nodes: int = 3) -> tuple[Desk, MemoryDurable]:
    port = MemoryDurable(nodes)
    return make_desk(BrokerHarness(), durable=port), port


async def create(desk: Desk, name: str, **fields: object) -> model.DataTopic:
    return await durable_topics.create_topic(desk, call(body=model.TopicRequest(name=name, **fields)))  # type: ignore[arg-type]


async def test_a_topic_is_what_was_asked_for() -> None:
    desk, _ = open_desk()
    made = await create(desk, "plant", shards=2, ack="leader", key="machine", retention_ms=None, exchange="headers")
    assert made.filters == ["plant/#"]
    assert (made.shards, made.ack, made.key, made.exchange) == (2, "leader", "machine", "headers")
    assert (made.retention_ms, made.retention_bytes) == (None, None)
    assert len(made.groups) == 2
    assert durable_topics.get_topic(desk, call(model.TopicQuery(), name="plant")) == made


async def test_what_is_there_is_a_conflict_and_what_is_not_is_not_found() -> None:
    desk, _ = open_desk()
    await create(desk, "plant")
    with pytest.raises(ApiError, match="exists") as refusal:
        await create(desk, "plant")
    assert refusal.value.kind.status == 409
    with pytest.raises(ApiError, match="plant") as refusal:
        await create(desk, "other", filters=["plant/1/+"])
    assert refusal.value.kind.status == 409
    with pytest.raises(ApiError, match="topic list") as refusal:
        durable_topics.get_topic(desk, call(model.TopicQuery(), name="nothing"))
    assert refusal.value.kind.status == 404


async def test_a_name_that_can_not_be_is_refused() -> None:
    desk, _ = open_desk()
    with pytest.raises(ApiError, match="name of a topic") as refusal:
        await create(desk, "a/b")
    assert refusal.value.kind.status == 422


async def test_without_a_majority_nothing_is_decided() -> None:
    desk, port = open_desk()
    port.no_quorum = True
    with pytest.raises(ApiError, match="majority") as refusal:
        await create(desk, "plant")
    assert (refusal.value.kind.status, refusal.value.kind.code) == (503, "no_quorum")


async def test_a_node_without_durable_topics_says_so() -> None:
    desk = make_desk(BrokerHarness())
    with pytest.raises(ApiError, match="no durable topics") as refusal:
        await create(desk, "plant")
    assert refusal.value.kind.status == 503


async def test_only_what_is_given_is_changed() -> None:
    desk, _ = open_desk()
    before = await create(desk, "plant", retention_bytes=1_000)
    change = model.TopicChange(shards=3, retention_ms=None, key="client")
    after = await durable_topics.alter_topic(desk, call(model.InNamespace(), change, name="plant"))
    assert (after.shards, after.retention_ms, after.key) == (3, None, "client")
    assert (after.filters, after.retention_bytes, after.ack) == (before.filters, 1_000, before.ack)
    assert after.groups[:1] == before.groups
    assert model.TopicChange().filters is UNSET


async def test_shards_are_never_taken_away() -> None:
    desk, _ = open_desk()
    await create(desk, "plant", shards=3)
    with pytest.raises(ApiError, match="shards"):
        await durable_topics.alter_topic(desk, call(model.InNamespace(), model.TopicChange(shards=2), name="plant"))


async def test_a_deleted_topic_is_gone() -> None:
    desk, _ = open_desk()
    await create(desk, "plant")
    await durable_topics.delete_topic(desk, call(model.InNamespace(), name="plant"))
    assert durable_topics.list_topics(desk, call(tenants.TopicPage())).items == []


async def test_topics_are_listed_by_namespace() -> None:
    desk, port = open_desk()
    await create(desk, "plant")
    port.apply(CreateTopic("other", filters=("other/#",)))
    found = durable_topics.list_topics(desk, call(tenants.TopicPage(namespace="default")))
    assert [one.name for one in found.items] == ["plant", "other"]
    assert durable_topics.list_topics(desk, call(tenants.TopicPage(namespace="acme"))).items == []


async def test_partitions_tell_leaders_replicas_and_where_to_read() -> None:
    desk, port = open_desk()
    made = await create(desk, "plant", shards=3)
    port.log(made.groups[1]).append([(b"plant/1", b"me", b"x", [])], 0)
    found = await durable_topics.list_topic_partitions(desk, call(model.TopicQuery(), name="plant"))
    assert [one.shard for one in found] == [0, 1, 2]
    assert [one.end_offset for one in found] == [0, 1, 0]
    assert all(one.healthy and one.leader == one.preferred for one in found)
    assert {one.leader for one in found} == {"n1@host", "n2@host", "n3@host"}
    ports = (18001, 18002, 18003)
    assert {replica.api for replica in found[0].replicas} == {f"http://127.0.0.1:{port}" for port in ports}
    assert {replica.lag for replica in found[1].replicas} == {0}


async def test_a_partition_with_a_silent_node_is_not_healthy() -> None:
    desk, port = open_desk()
    [group] = (await create(desk, "plant")).groups
    followers = [node for node in port.state().partition(group).replicas if node != port.leader_of(group)]
    port.silent = {followers[0]}
    found = await durable_topics.get_partition(desk, call(group=str(group)))
    assert not found.healthy
    assert f"n{followers[0]}@host" in found.problem
    assert [one.role for one in found.replicas].count("unknown") == 1
    port.silent = {1, 2, 3}
    found = await durable_topics.get_partition(desk, call(group=str(group)))
    assert (found.leader, found.end_offset) == (None, None)
    assert "no leader" in found.problem


async def test_fewer_copies_than_wanted_are_not_healthy() -> None:
    desk, port = open_desk(nodes=1)
    made = await create(desk, "plant")
    assert (made.replication_factor, made.copies_possible) == (3, 1)
    [found] = await durable_topics.list_topic_partitions(desk, call(model.TopicQuery(), name="plant"))
    assert not found.healthy
    assert found.problem == "Few copies: 1 of 3, with 1 core node alive; more are made when nodes join."
    assert len((await durable_topics.list_partitions(desk, call(tenants.PartitionPage(unhealthy=True)))).items) == 1
    for node in (2, 3):
        port.apply(NodeSeen(node, f"n{node}@host", "127.0.0.1", 16000 + node))
    [found] = await durable_topics.list_topic_partitions(desk, call(model.TopicQuery(), name="plant"))
    assert found.problem == "Few copies: 1 of 3; more are being made."
    assert durable_topics.get_topic(desk, call(model.TopicQuery(), name="plant")).copies_possible == 3


@pytest.mark.parametrize("text", ["99", "x", "-1", "1" * 30])
async def test_a_partition_that_is_not_there(text: str) -> None:
    desk, _ = open_desk()
    with pytest.raises(ApiError, match="no partition"):
        await durable_topics.get_partition(desk, call(group=text))


async def test_unhealthy_partitions_alone() -> None:
    desk, port = open_desk()
    await create(desk, "plant", shards=3)
    everything = await durable_topics.list_partitions(desk, call(tenants.PartitionPage()))
    assert len(everything.items) == 3
    port.silent = {1, 2, 3}
    unhealthy = await durable_topics.list_partitions(desk, call(tenants.PartitionPage(unhealthy=True, topic="plant")))
    assert len(unhealthy.items) == 3
    assert (await durable_topics.list_partitions(desk, call(tenants.PartitionPage(topic="no")))).items == []


async def test_the_progress_of_a_move() -> None:
    desk, port = open_desk(nodes=4)
    [group] = (await create(desk, "plant", replication_factor=1)).groups
    [home] = port.state().partition(group).replicas
    before = await durable_cluster.get_rebalance(desk, call())
    assert before.settled
    other = next(node for node in (1, 2, 3, 4) if node != home)
    port.apply(SetTarget(group, (other,)))
    found = await durable_cluster.get_rebalance(desk, call())
    assert (found.moves_left, found.settled) == (1, False)
    assert found.moving[0].target == [f"n{other}@host"]


async def test_a_rebalance_begins_moves() -> None:
    desk, port = open_desk(nodes=1)
    await create(desk, "plant", shards=4, replication_factor=1)
    port.apply(NodeSeen(9, "n9@host", "127.0.0.1", 16009))
    found = await durable_cluster.start_rebalance(desk, call(tenants.RebalanceQuery(moves_max=1)))
    assert found.begun == 1
    assert found.remaining is not None
    assert found.moves_left == 1


async def test_the_dump_shows_state_and_segments() -> None:
    desk, port = open_desk()
    await create(desk, "plant")
    found = await durable_cluster.get_dump(desk, call())
    assert found["index"] == port.state().index
    assert list(found)[-1] == "segments"


async def test_advice_is_followed_as_far_as_it_can_be() -> None:
    desk, port = open_desk()
    await create(desk, "plant")
    partition = port.state().topic("default", "plant").partitions[0]
    other = next(node for node in partition.target if node != partition.preferred)
    name = port.state().nodes[other].name
    advice = Advice(
        made_at="2026-03-01T12:00:00Z",
        leaders=[
            LeaderAdvice(topic="plant", shard=0, to_node=name, why="hot"),
            LeaderAdvice(topic="plant", shard=9, to_node=name),
        ],
    )
    seen = await durable_cluster.apply_advice(desk, call(tenants.AdviceQuery(dry_run=True), advice))
    assert port.state().partition(partition.group) == partition, "only looked at"
    done = await durable_cluster.apply_advice(desk, call(tenants.AdviceQuery(), advice))
    assert done.steps == seen.steps
    assert (done.moves, done.refused, done.made_at) == (1, 1, "2026-03-01T12:00:00Z")
    assert [(one.what, one.to_node, one.outcome, one.why) for one in done.steps] == [
        ("leader", name, "move", "hot"),
        ("leader", name, "refused", ""),
    ]
    assert "1 shard," in done.steps[1].reason
    assert port.state().partition(partition.group).preferred == other
    again = await durable_cluster.apply_advice(desk, call(tenants.AdviceQuery(), advice))
    assert [one.outcome for one in again.steps] == ["done", "refused"]
    with pytest.raises(ApiError, match="format 7"):
        await durable_cluster.apply_advice(desk, call(tenants.AdviceQuery(), Advice(format=7)))
    port.no_quorum = True
    advice = Advice(
        leaders=[LeaderAdvice(topic="plant", shard=0, to_node=port.state().nodes[partition.preferred].name)]
    )
    failed = await durable_cluster.apply_advice(desk, call(tenants.AdviceQuery(), advice))
    assert [(one.outcome, "majority" in one.reason) for one in failed.steps] == [("refused", True)]


async def test_a_node_that_has_not_heard_from_the_others_does_not_say_that_there_is_no_such_topic() -> None:
    desk, port = open_desk()
    port.has_heard = False
    with pytest.raises(ApiError, match="ask another") as refusal:
        durable_topics.get_topic(desk, call(model.TopicQuery(), name="plant"))
    assert (refusal.value.kind.status, refusal.value.headers["Retry-After"]) == (503, "1")
    port.has_heard = True
    with pytest.raises(ApiError) as refusal:
        durable_topics.get_topic(desk, call(model.TopicQuery(), name="plant"))
    assert refusal.value.kind.status == 404


async def open_hidden(nodes: int = 3) -> tuple[Desk, MemoryDurable]:
    """A topic of a user (group 1) and both hidden ones (groups 2 to 5, 6 to 13)."""
    desk, port = open_desk(nodes)
    await create(desk, "plant")
    port.apply(CreateHidden(SESSIONS_TOPIC))
    port.apply(CreateHidden(CAPTURE_TOPIC))
    return desk, port


async def test_hidden_topics_are_listed_for_callers_that_ask() -> None:
    desk, _ = await open_hidden()
    assert [one.name for one in durable_topics.list_topics(desk, call(tenants.TopicPage())).items] == ["plant"]
    found = durable_topics.list_topics(desk, call(tenants.TopicPage(with_hidden=True))).items
    assert [(one.name, one.hidden) for one in found] == [("plant", False), ("$sessions", True), ("$capture", True)]
    assert (found[1].filters, found[1].shards, found[1].retention_ms) == ([], 4, None)
    acme = tenants.TopicPage(with_hidden=True, namespace="acme")
    assert durable_topics.list_topics(desk, call(acme)).items == []


async def test_a_hidden_topic_is_shown_to_callers_that_ask() -> None:
    desk, _ = await open_hidden()
    with pytest.raises(ApiError, match="no topic") as refusal:
        durable_topics.get_topic(desk, call(model.TopicQuery(), name=SESSIONS_TOPIC))
    assert refusal.value.kind.status == 404
    with pytest.raises(ApiError, match="no topic"):
        await durable_topics.list_topic_partitions(desk, call(model.TopicQuery(), name=SESSIONS_TOPIC))
    asked = model.TopicQuery(with_hidden=True)
    assert durable_topics.get_topic(desk, call(asked, name=SESSIONS_TOPIC)).hidden
    partitions = await durable_topics.list_topic_partitions(desk, call(asked, name=SESSIONS_TOPIC))
    assert [one.group for one in partitions] == [2, 3, 4, 5]


async def test_partitions_of_hidden_topics_are_listed_when_asked_for_or_unwell() -> None:
    desk, port = await open_hidden()

    async def listed(**query: object) -> list[int]:
        page = await durable_topics.list_partitions(desk, call(tenants.PartitionPage(**query)))  # type: ignore[arg-type]
        return [one.group for one in page.items]

    assert await listed() == [1]
    assert await listed(topic=SESSIONS_TOPIC) == []
    assert await listed(with_hidden=True) == list(range(1, 14))
    assert await listed(with_hidden=True, topic=SESSIONS_TOPIC) == [2, 3, 4, 5]
    assert await listed(unhealthy=True) == []
    port.leaderless = {1, 3}
    assert await listed(unhealthy=True) == [1, 3]
    shown = await durable_topics.get_partition(desk, call(group="3"))
    assert (shown.topic, shown.shard, shown.leader) == (SESSIONS_TOPIC, 1, None)


async def test_a_hidden_topic_has_as_many_copies_as_the_nodes_allow() -> None:
    desk, port = await open_hidden(nodes=1)
    asked = model.TopicQuery(with_hidden=True)
    assert all(
        one.healthy for one in await durable_topics.list_topic_partitions(desk, call(asked, name=SESSIONS_TOPIC))
    )
    port.apply(NodeSeen(2, "n2@host", "127.0.0.1", 16002))
    found = await durable_topics.list_topic_partitions(desk, call(asked, name=SESSIONS_TOPIC))
    assert {one.problem for one in found} == {"Few copies: 1 of 3; more are being made."}


async def test_hidden_topics_are_refused_in_a_sentence() -> None:
    desk, _ = await open_hidden()
    with pytest.raises(ApiError, match="name of a topic"):
        await create(desk, CAPTURE_TOPIC)
    with pytest.raises(ApiError, match="the cluster's own") as refusal:
        await durable_topics.alter_topic(
            desk, call(model.InNamespace(), model.TopicChange(shards=9), name=CAPTURE_TOPIC)
        )
    assert refusal.value.kind.status == 422
    with pytest.raises(ApiError, match="the cluster's own"):
        await durable_topics.delete_topic(desk, call(model.InNamespace(), name=CAPTURE_TOPIC))


async def test_all_replicas_are_scrubbed_also_those_of_hidden_topics() -> None:
    desk, _ = await open_hidden()
    assert (await durable_topics.start_scrub(desk, call(tenants.ScrubQuery()))).replicas == 13
