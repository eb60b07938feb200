from __future__ import annotations

import argon2
import pytest

from flockmq.admin import durable_cursors, durable_tenants, durable_topics
from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.desk import Desk
from flockmq.admin.model import PageQuery
from flockmq.cluster.commands import Command, CreateHidden, Result
from flockmq.cluster.model import SESSIONS_TOPIC
from flockmq.cluster.state import ClusterState
from flockmq.errors import ApiError
from flockmq.node.namespaces import NamespaceLimits
from flockmq.security.passwords import HashCost, make_secret, parse_secret
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import WALL_MS, MemoryDurable


def open_desk() -> tuple[Desk, MemoryDurable]:
    port = MemoryDurable()
    return make_desk(BrokerHarness(), durable=port), port


async def with_cursor(start: str = "earliest") -> tuple[Desk, MemoryDurable]:
    desk, port = open_desk()
    await durable_topics.create_topic(desk, call(body=model.TopicRequest(name="plant", shards=2)))
    port.log(1).append([(b"plant/1", b"", b"x", [])] * 10, WALL_MS)
    port.log(2).append([(b"plant/2", b"", b"x", [])] * 4, WALL_MS + 1_000)
    port.log(1).first = 3
    await durable_cursors.create_cursor(
        desk, call(body=tenants.CursorRequest(name="reader", topic="plant", hold=True, start=start))
    )
    return desk, port


async def cursor(desk: Desk) -> tenants.ReadCursor:
    return await durable_cursors.get_cursor(desk, call(model.InNamespace(), cursor="reader"))


@pytest.mark.parametrize(
    ("start", "positions", "lag"),
    [
        ("earliest", [3, 0], 11),
        ("latest", [10, 4], 0),
        ("offset:0=5,1=9", [5, 4], 5),
        ("offset:0=0,1=0", [3, 0], 11),
        ("offset:1=2", [10, 2], 2),
        (f"time:{WALL_MS + 500}", [10, 0], 4),
        ("time:2026-03-01T12:00:00Z", [0, 0], 11),
        ("time:2026-03-01", [0, 0], 11),
    ],
)
async def test_where_a_cursor_starts(start: str, positions: list[int], lag: int) -> None:
    desk, _ = await with_cursor(start)
    found = await cursor(desk)
    assert [one.offset for one in found.positions] == positions
    assert [one.end_offset for one in found.positions] == [10, 4]
    assert (found.lag, found.hold, found.topic) == (lag, True, "plant")


@pytest.mark.parametrize(
    "start", ["", "first", "offset:", "offset:-1", "offset:x", "time:soon", "offset:5", "offset:2=0", "offset:0=1,0=2"]
)
async def test_a_start_that_is_none_makes_no_cursor(start: str) -> None:
    with pytest.raises(ApiError, match="can't be"):
        await with_cursor(start)


async def test_readers_move_forwards_and_people_anywhere() -> None:
    desk, _ = await with_cursor()
    commit = tenants.CursorCommit(positions=[tenants.CommitPosition(shard=0, offset=8)])
    await durable_cursors.commit_cursor(desk, call(model.InNamespace(), commit, cursor="reader"))
    late = tenants.CursorCommit(positions=[tenants.CommitPosition(shard=0, offset=5)])
    await durable_cursors.commit_cursor(desk, call(model.InNamespace(), late, cursor="reader"))
    assert [one.offset for one in (await cursor(desk)).positions] == [8, 0]
    change = tenants.CursorChange(to="offset:4", shard=0)
    found = await durable_cursors.reset_cursor(desk, call(model.InNamespace(), change, cursor="reader"))
    assert [one.offset for one in found.positions] == [4, 0]
    some = tenants.CursorChange(to="offset:1=2")
    found = await durable_cursors.reset_cursor(desk, call(model.InNamespace(), some, cursor="reader"))
    assert [one.offset for one in found.positions] == [4, 2], "a shard that is not named stays"
    every = tenants.CursorChange(to="offset:4")
    with pytest.raises(ApiError, match="use offset:SHARD=N"):
        await durable_cursors.reset_cursor(desk, call(model.InNamespace(), every, cursor="reader"))


async def test_a_commit_to_a_shard_that_is_not_there() -> None:
    desk, _ = await with_cursor()
    commit = tenants.CursorCommit(positions=[tenants.CommitPosition(shard=7, offset=8)])
    with pytest.raises(ApiError, match="2 shards"):
        await durable_cursors.commit_cursor(desk, call(model.InNamespace(), commit, cursor="reader"))


async def test_cursors_are_listed_with_their_lags_and_forgotten() -> None:
    desk, port = await with_cursor("latest")
    port.log(2).append([(b"plant/2", b"", b"x", [])] * 6, WALL_MS)
    found = await durable_cursors.list_cursors(desk, call(tenants.NamespacedPage()))
    assert [(one.name, one.lag) for one in found.items] == [("reader", 6)]
    await durable_cursors.delete_cursor(desk, call(model.InNamespace(), cursor="reader"))
    assert (await durable_cursors.list_cursors(desk, call(tenants.NamespacedPage()))).items == []
    with pytest.raises(ApiError, match="cursor list"):
        await cursor(desk)


async def test_what_nobody_answers_for_is_left_open() -> None:
    desk, port = await with_cursor()
    port.silent = {1, 2, 3}
    found = await cursor(desk)
    assert found.lag is None
    assert [one.end_offset for one in found.positions] == [None, None]


async def test_a_cursor_that_is_there_stays_where_it_stands() -> None:
    desk, port = await with_cursor("latest")
    before = [one.offset for one in (await cursor(desk)).positions]
    await durable_topics.alter_topic(desk, call(model.InNamespace(), model.TopicChange(shards=3), name="plant"))
    again = tenants.CursorRequest(name="reader", topic="plant")
    found = await durable_cursors.create_cursor(desk, call(body=again))
    assert [one.offset for one in found.positions] == [*before, 0], "a shard that was added begins as asked"
    assert found.hold, "who only makes sure of it takes no hold away"
    freed = tenants.CursorRequest(name="reader", topic="plant", hold=False)
    assert not (await durable_cursors.create_cursor(desk, call(body=freed))).hold
    assert {name for name, _ in port.cursors} == {port.state().cursors["default/reader"].key}, "as retention calls it"
    await durable_cursors.delete_cursor(desk, call(model.InNamespace(), cursor="reader"))
    anew = await durable_cursors.create_cursor(desk, call(body=again))
    assert [one.offset for one in anew.positions] == [3, 0, 0], "another cursor of that name"


async def test_a_cursor_stays_where_it_stands_while_nobody_can_say_where_that_is() -> None:
    desk, port = await with_cursor("latest")
    before = dict(port.cursors)
    port.leaderless = {1}
    with pytest.raises(ApiError, match=r"shard 0.*again") as refusal:
        await durable_cursors.create_cursor(desk, call(body=tenants.CursorRequest(name="reader", topic="plant")))
    assert (refusal.value.kind.status, refusal.value.headers["Retry-After"]) == (503, "1")
    port.leaderless = set()
    found = await durable_cursors.create_cursor(desk, call(body=tenants.CursorRequest(name="reader", topic="plant")))
    assert port.cursors == before
    assert [one.offset for one in found.positions] == [10, 4]


class LateDurable(MemoryDurable):
    """A node that hears of what others decided only with its own next command."""

    late: ClusterState | None = None

    def state(self) -> ClusterState:
        return self.late or super().state()

    async def command(self, command: Command) -> Result:
        self.late = None
        return await super().command(command)


async def test_a_node_that_is_behind_moves_no_cursor_that_another_made() -> None:
    port = LateDurable()
    desk = make_desk(BrokerHarness(), durable=port)
    _, earlier = open_desk()
    for one in (desk, make_desk(BrokerHarness(), durable=earlier)):
        await durable_topics.create_topic(one, call(body=model.TopicRequest(name="plant")))
    port.log(1).append([(b"plant/1", b"", b"x", [])] * 10, WALL_MS)
    request = tenants.CursorRequest(name="reader", topic="plant")
    await durable_cursors.create_cursor(desk, call(body=request))
    await port.commit(port.state().cursors["default/reader"].key, 1, 8)
    port.late = earlier.state()
    found = await durable_cursors.create_cursor(desk, call(body=request))
    assert [one.offset for one in found.positions] == [8]


async def test_where_a_cursor_stands_is_not_known_without_a_leader() -> None:
    desk, port = await with_cursor("latest")
    port.leaderless = {1}
    port.log(1).first = 12
    port.log(1).append([(b"plant/1", b"", b"x", [])] * 10, WALL_MS)
    found = await cursor(desk)
    first, second = found.positions
    assert (first.known, first.offset, first.end_offset, first.lag, first.lost) == (False, None, 20, None, None)
    assert (second.known, second.offset, second.lag, second.lost) == (True, 4, 0, 0)
    assert (found.lag, found.lost) == (None, None)
    assert "shard 0" in found.problem
    [listed] = (await durable_cursors.list_cursors(desk, call(tenants.NamespacedPage()))).items
    assert listed == found
    port.leaderless = set()
    found = await cursor(desk)
    assert (found.lag, found.lost, found.problem) == (8, 2, "")


async def test_a_shard_that_a_cursor_was_not_put_in_counts_from_its_start() -> None:
    desk, _ = await with_cursor("latest")
    await durable_topics.alter_topic(desk, call(model.InNamespace(), model.TopicChange(shards=3), name="plant"))
    added = (await cursor(desk)).positions[2]
    assert (added.known, added.offset, added.lag) == (True, None, 0)


async def test_what_retention_took_from_a_cursor_is_told() -> None:
    desk, port = await with_cursor()
    log = port.log(port.state().topic("default", "plant").partitions[0].group)
    log.first = 7
    found = await cursor(desk)
    assert (found.lost, found.positions[0].lost, found.positions[1].lost) == (4, 4, 0)
    assert found.positions[0].lag == log.end - 7


async def test_a_cursor_over_nothing() -> None:
    desk, _ = open_desk()
    with pytest.raises(ApiError, match="no topic 'plant'"):
        await durable_cursors.create_cursor(desk, call(body=tenants.CursorRequest(name="reader", topic="plant")))


async def test_namespaces_come_with_limits_and_go_when_they_are_empty() -> None:
    desk, _ = open_desk()
    made = await durable_tenants.create_namespace(
        desk, call(body=tenants.NamespaceRequest(name="acme", limits={"clients_max": 5, "topics_max": None}))
    )
    assert made.limits == {"clients_max": 5}
    change = tenants.NamespaceChange(limits={"clients_max": None, "topics_max": 3})
    assert (await durable_tenants.alter_namespace(desk, call(body=change, namespace="acme"))).limits == {
        "topics_max": 3
    }
    await durable_topics.create_topic(desk, call(body=model.TopicRequest(name="plant", namespace="acme")))
    assert durable_tenants.get_namespace(desk, call(namespace="acme")).topics == 1
    listed = durable_tenants.list_namespaces(desk, call(PageQuery()))
    assert [(one.name, one.topics) for one in listed.items] == [("default", 0), ("acme", 1)]
    with pytest.raises(ApiError) as refusal:
        await durable_tenants.delete_namespace(desk, call(namespace="acme"))
    assert refusal.value.kind.status == 409
    await durable_topics.delete_topic(desk, call(model.InNamespace(namespace="acme"), name="plant"))
    await durable_tenants.delete_namespace(desk, call(namespace="acme"))
    with pytest.raises(ApiError, match="no namespace"):
        durable_tenants.get_namespace(desk, call(namespace="acme"))


async def test_a_limit_that_does_not_exist_is_named() -> None:
    desk, _ = open_desk()
    with pytest.raises(ApiError, match="no limit 'clients'"):
        await durable_tenants.create_namespace(
            desk, call(body=tenants.NamespaceRequest(name="acme", limits={"clients": 5}))
        )


async def test_a_password_is_kept_as_a_hash_and_never_shown() -> None:
    desk, port = open_desk()
    request = tenants.ClientRequest(name="alice", password="secret", publish=["plant/#"])
    made = await durable_tenants.register_client(desk, call(body=request, namespace="default"))
    assert (made.has_password, made.publish, made.subscribe) == (True, ["plant/#"], ["#"])
    secret = port.state().clients["default/alice"].secret
    user = parse_secret("alice", secret)
    assert argon2.PasswordHasher().verify(user.password_hash, "secret")
    assert user.scram is not None, "enhanced authentication works with it, too"
    assert "secret" not in repr(made).replace("has_password", "")
    change = tenants.ClientChange(password=None, subscribe=["plant/1"])
    after = await durable_tenants.alter_registered_client(desk, call(body=change, namespace="default", client="alice"))
    assert (after.has_password, after.publish, after.subscribe) == (False, ["plant/#"], ["plant/1"])


async def test_stored_bytes_are_shown_where_they_are_limited() -> None:
    harness = BrokerHarness()
    desk = make_desk(harness, durable=MemoryDurable())
    await durable_tenants.create_namespace(desk, call(body=tenants.NamespaceRequest(name="acme")))
    harness.broker.set_namespaces([NamespaceLimits("acme", stored_bytes=9)], harness.now)
    harness.broker.node.spaces.by_name["acme"].stored_bytes = 4
    harness.broker.node.spaces.by_name["acme"].tell_elsewhere(0, 0, 1, 3)
    assert durable_tenants.get_namespace(desk, call(namespace="acme")).stored_bytes == 7
    listed = durable_tenants.list_namespaces(desk, call(PageQuery())).items
    assert {one.name: one.stored_bytes for one in listed} == {"default": None, "acme": 7}


async def test_a_password_that_is_a_hash_already() -> None:
    desk, port = open_desk()
    secret = make_secret("bob", "builder", cost=HashCost(1, 8, 1))
    request = tenants.ClientRequest(name="bob", password_hash=secret)
    made = await durable_tenants.register_client(desk, call(body=request, namespace="default"))
    assert made.has_password
    assert port.state().client("default", "bob").secret == secret
    for wrong, message in (
        (tenants.ClientRequest(name="eve", password_hash=secret, password="x"), "one of them"),
        (tenants.ClientRequest(name="eve", password_hash="plain"), "not an argon2id hash"),
        (tenants.ClientRequest(name="eve", password_hash=""), "not an argon2id hash"),
        (tenants.ClientRequest(name="eve", password_hash=secret + "x"), "SCRAM keys"),
    ):
        with pytest.raises(ApiError, match=message):
            await durable_tenants.register_client(desk, call(body=wrong, namespace="default"))


async def test_clients_belong_to_their_namespace() -> None:
    desk, _ = open_desk()
    request = tenants.ClientRequest(name="alice")
    with pytest.raises(ApiError) as refusal:
        await durable_tenants.register_client(desk, call(body=request, namespace="acme"))
    assert refusal.value.kind.status == 404
    await durable_tenants.create_namespace(desk, call(body=tenants.NamespaceRequest(name="acme")))
    await durable_tenants.register_client(desk, call(body=request, namespace="acme"))
    with pytest.raises(ApiError) as refusal:
        await durable_tenants.register_client(desk, call(body=request, namespace="acme"))
    assert refusal.value.kind.status == 409
    assert [
        one.name for one in durable_tenants.list_registered_clients(desk, call(PageQuery(), namespace="acme")).items
    ] == ["alice"]
    assert durable_tenants.list_registered_clients(desk, call(PageQuery(), namespace="default")).items == []
    await durable_tenants.delete_registered_client(desk, call(namespace="acme", client="alice"))
    with pytest.raises(ApiError, match="no client 'alice'"):
        durable_tenants.get_registered_client(desk, call(namespace="acme", client="alice"))


async def test_nobody_is_altered_into_existence() -> None:
    desk, _ = open_desk()
    with pytest.raises(ApiError, match="no client"):
        await durable_tenants.alter_registered_client(
            desk, call(body=tenants.ClientChange(superuser=True), namespace="default", client="alice")
        )


async def test_an_empty_password_is_none() -> None:
    desk, _ = open_desk()
    with pytest.raises(ApiError, match="empty"):
        await durable_tenants.register_client(
            desk, call(body=tenants.ClientRequest(name="alice", password=""), namespace="default")
        )


async def test_hidden_topics_are_no_topics_of_a_namespace() -> None:
    desk, port = await with_cursor()
    port.apply(CreateHidden(SESSIONS_TOPIC))
    [listed] = durable_tenants.list_namespaces(desk, call(PageQuery())).items
    assert listed.topics == durable_tenants.get_namespace(desk, call(namespace="default")).topics == 1
    with pytest.raises(ApiError, match="no topic"):
        await durable_cursors.create_cursor(
            desk, call(body=tenants.CursorRequest(name="spy", topic=SESSIONS_TOPIC, start="earliest"))
        )
