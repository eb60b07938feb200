"""Sessions of the log in the listings of all nodes: each session once, whichever node or record has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flockmq.admin import handlers, model
from flockmq.admin.away_listings import PAGES_MAX, away_subscriptions
from flockmq.errors import NOT_FOUND, UNAVAILABLE, ApiError
from unit.admin.desks import call
from unit.admin.durable_desks import MemoryDurable
from unit.admin.session_shards import Shards
from unit.admin.test_cluster_listings import World


class LoggedWorld(World):
    """Nodes 1 and 2 with sessions in memory, and shards of ``$sessions`` that node 1 leads."""

    def __init__(self, shards: int = 2, **options: Any) -> None:
        super().__init__(2, **options)
        self.shards = Shards(self.harnesses[1], shards)
        self.durable = MemoryDurable()
        self.durable.tables = self.shards.tables
        self.durable.records = self.shards.records
        self.desk = self.desks[1]

    async def held_at(self, nodes: Sequence[int], question: bytes) -> list[bytes | None]:
        return [None if node in self.silent else self.desks[node].listings.answer_held(question) for node in nodes]

    async def end_session(self, client_id: str) -> bool:
        return self.harnesses[2].broker.end_session(client_id, self.harnesses[2].now)

    async def sessions(self, **query: Any) -> tuple[list[tuple[str, str]], list[str], int]:
        """Client id and state of all sessions, what did not answer, and the number of pages."""
        found: list[tuple[str, str]] = []
        unanswered: list[str] = []
        after = None
        pages = 0
        while pages == 0 or after is not None:
            page = await handlers.list_sessions(self.desk, call(model.SessionQuery(after=after, **query)))
            found += [(one.client_id, one.state) for one in page.items]
            unanswered += page.unanswered
            after = page.next
            pages += 1
        return sorted(found), unanswered, pages


def filled(**options: Any) -> LoggedWorld:
    """One session at each node, detached, with a record; four that only the log has."""
    world = LoggedWorld(**options)
    for number, harness in world.harnesses.items():
        harness.client(f"held{number}", session_expiry_s=60).drop()
        world.shards.add(f"held{number}", b"t", owner=number)
    for number in range(4):
        world.shards.add(f"away{number}", b"t", b"u/+")
    return world


ALL = [*((f"away{number}", "away") for number in range(4)), ("held1", "disconnected"), ("held2", "disconnected")]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_each_session_is_listed_once(limit: int) -> None:
    found, unanswered, pages = await filled().sessions(limit=limit)
    assert found == ALL
    assert not unanswered
    assert pages >= len(ALL) / limit


async def test_filters_keep_records_out_too() -> None:
    world = filled()
    assert (await world.sessions(connected=True))[0] == []
    assert (await world.sessions(client_id="away1"))[0] == [("away1", "away")]
    assert (await world.sessions(namespace="acme"))[0] == []
    assert (await world.sessions(node="n1"))[0] == [("held1", "disconnected")]


async def test_a_shard_without_a_leader_is_named() -> None:
    world = filled()
    world.durable.leaderless = {102}
    found, unanswered, _ = await world.sessions()
    assert set(found) < set(ALL)
    assert unanswered == ["$sessions/1"]


async def test_pages_of_sessions_that_nodes_have_are_passed_over() -> None:
    world = LoggedWorld(shards=1)
    count = 2 * PAGES_MAX
    for number in range(count):
        world.harnesses[2].client(f"held{number}", session_expiry_s=60).drop()
        world.shards.add(f"held{number}", b"t", owner=2)
    world.shards.add("away", b"t")
    found, _, pages = await world.sessions(limit=1)
    assert len(found) == count + 1
    assert ("away", "away") in found
    assert pages <= count + 5


async def test_one_session_is_found_with_its_subscriptions_and_deleted() -> None:
    world = filled()
    found = await handlers.get_session(world.desk, call(model.FindQuery(), client_id="away1"))
    assert (found.state, found.node, found.subscriptions) == ("away", "n9@host", 2)
    query = model.SessionSubscriptionQuery()
    listed = await handlers.list_session_subscriptions(world.desk, call(query, client_id="away1"))
    assert [(one.filter, one.away) for one in listed.items] == [("t", True), ("u/+", True)]
    with pytest.raises(ApiError) as refused:
        await handlers.get_session(world.desk, call(model.FindQuery(node="n1"), client_id="away1"))
    assert refused.value.kind is NOT_FOUND
    await handlers.delete_session(world.desk, call(model.ClientQuery(), client_id="away1"))
    with pytest.raises(ApiError) as refused:
        await handlers.delete_session(world.desk, call(model.ClientQuery(), client_id="away1"))
    assert refused.value.kind is NOT_FOUND
    assert [name for name, _ in (await world.sessions(client_id="away"))[0]] == ["away0", "away2", "away3"]


async def test_the_end_of_a_session_that_a_node_has_is_in_the_log_before_the_answer() -> None:
    world = filled()
    for name in ("held1", "held2"):
        await handlers.delete_session(world.desk, call(model.ClientQuery(), client_id=name))
    assert world.durable.ended == ["held1", "held2"]


async def test_a_session_that_its_node_forgets_meanwhile_is_listed_once() -> None:
    world = filled()
    listed = world.list_at

    async def list_and_forget(node_id: int, question: bytes) -> bytes | None:
        answer = await listed(node_id, question)
        world.harnesses[2].broker.end_session("held2", world.harnesses[2].now)
        return answer

    world.list_at = list_and_forget  # type: ignore[method-assign]
    assert (await world.sessions())[0] == ALL


async def test_a_session_is_not_ended_while_a_node_that_may_have_it_is_silent() -> None:
    world = filled()
    world.silent = {2}
    with pytest.raises(ApiError) as refused:
        await handlers.delete_session(world.desk, call(model.ClientQuery(), client_id="away1"))
    assert refused.value.kind is UNAVAILABLE
    world.silent = set()
    world.durable.leaderless = {101, 102}
    with pytest.raises(ApiError) as refused:
        await handlers.delete_session(world.desk, call(model.ClientQuery(), client_id="away1"))
    assert refused.value.kind is UNAVAILABLE


@pytest.mark.parametrize(("limit", "count", "is_more"), [(100, 4, False), (3, 3, True)])
async def test_subscriptions_that_match_a_name(limit: int, count: int, is_more: bool) -> None:
    found, more = await away_subscriptions(filled().desk, b"u/1", limit)
    assert (len(found), more) == (count, is_more)
    assert {one.filter for one in found} == {"u/+"}
