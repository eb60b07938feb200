"""Listings over several nodes: real brokers, whose answers travel as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flockmq.admin import handlers, model
from flockmq.admin.cluster_port import LiveNode
from flockmq.admin.desk import Desk
from flockmq.errors import CURSOR_EXPIRED, INVALID_PARAMETER, NOT_FOUND, UNAVAILABLE, ApiError
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk


class World:
    """Nodes 1, 2, ... and how node 1 sees them: a ``ClusterPort`` as far as listings go."""

    def __init__(self, nodes: int, scan_max: int = 10_000) -> None:
        self.harnesses = {number: BrokerHarness() for number in range(1, nodes + 1)}
        self.desks: dict[int, Desk] = {
            number: make_desk(
                harness,
                name=f"n{number}@host",
                scan_max=scan_max,
                cluster=self if number == 1 else None,  # type: ignore[arg-type]
            )
            for number, harness in self.harnesses.items()
        }
        self.silent: set[int] = set()
        self.dead: set[int] = set()
        self.asked: list[int] = []
        self.durable: Any = None

    def live_nodes(self) -> list[LiveNode]:
        return [LiveNode(number, f"n{number}@host", number == 1) for number in self.desks if number not in self.dead]

    def name_of(self, node_id: int) -> str:
        return f"n{node_id}@host"

    async def list_at(self, node_id: int, question: bytes) -> bytes | None:
        self.asked.append(node_id)
        return None if node_id in self.silent else self.desks[node_id].listings.answer_page(question)

    async def find_at(self, nodes: Sequence[int], question: bytes) -> list[bytes | None]:
        return [None if node in self.silent else self.desks[node].listings.answer_find(question) for node in nodes]

    async def connections(self, **query: Any) -> model.NodesPage[model.Connection]:
        return await handlers.list_connections(self.desks[1], call(model.ConnectionQuery(**query)))

    async def all_pages(self, **query: Any) -> tuple[list[tuple[str, str]], list[str], int]:
        """Node and client id of all entries, nodes that did not answer, and the number of pages."""
        found: list[tuple[str, str]] = []
        unanswered: list[str] = []
        page = await self.connections(**query)
        pages = 1
        while True:
            found += [(one.node, one.client_id) for one in page.items]
            unanswered += page.unanswered
            if page.next is None:
                return found, unanswered, pages
            page = await self.connections(**query, after=page.next)
            pages += 1


def filled(clients: int = 3, nodes: int = 3, **options: Any) -> World:
    world = World(nodes, **options)
    for number, harness in world.harnesses.items():
        for index in range(clients):
            harness.client(f"c{number}{index}", username=f"u{index}")
    return world


EVERYBODY = [(f"n{number}@host", f"c{number}{index}") for number in (1, 2, 3) for index in range(3)]


@pytest.mark.parametrize(("limit", "pages"), [(100, 1), (9, 2), (4, 3), (3, 4), (1, 10)])
async def test_pages_go_over_all_nodes_in_a_stable_order(limit: int, pages: int) -> None:
    found, unanswered, counted = await filled().all_pages(limit=limit)
    assert found == EVERYBODY
    assert not unanswered
    assert counted == pages


async def test_filters_hold_on_every_node() -> None:
    found, _, _ = await filled().all_pages(username="u1")
    assert found == [("n1@host", "c11"), ("n2@host", "c21"), ("n3@host", "c31")]


async def test_a_page_that_looked_at_enough_goes_on_where_it_was() -> None:
    found, _, pages = await filled(clients=5, scan_max=2).all_pages(username="u4")
    assert found == [("n1@host", "c14"), ("n2@host", "c24"), ("n3@host", "c34")]
    assert pages > 3


@pytest.mark.parametrize("name", ["n2@host", "n2"])
async def test_one_node_alone(name: str) -> None:
    world = filled()
    found, _, _ = await world.all_pages(node=name, limit=2)
    assert found == [("n2@host", f"c2{index}") for index in range(3)]
    assert set(world.asked) == {2}
    with pytest.raises(ApiError) as refused:
        await world.connections(node="n7")
    assert refused.value.kind is NOT_FOUND
    assert "n1@host, n2@host, n3@host" in str(refused.value)


async def test_a_node_that_does_not_answer_is_named_and_the_others_are_listed() -> None:
    world = filled()
    world.silent = {2}
    found, unanswered, _ = await world.all_pages(limit=2)
    assert found == [one for one in EVERYBODY if one[0] != "n2@host"]
    assert unanswered == ["n2@host"]


async def test_a_node_that_dies_between_two_pages_is_named() -> None:
    world = filled()
    page = await world.connections(limit=4)
    world.dead = {2}
    rest = await world.connections(limit=100, after=page.next)
    assert [one.client_id for one in rest.items] == ["c30", "c31", "c32"]
    assert rest.unanswered == ["n2@host"]


async def test_cursors_that_are_none_or_not_known_any_more_are_told() -> None:
    world = filled()
    for after in ("walk0.1", "n2.0", "n00000000000000zz.0"):
        with pytest.raises(ApiError) as refused:
            await world.connections(after=after)
        assert refused.value.kind is INVALID_PARAMETER
    with pytest.raises(ApiError) as refused:
        await world.connections(after="n0000000000000002-gone.1")
    assert refused.value.kind is CURSOR_EXPIRED


async def test_long_names_make_short_pages() -> None:
    world = World(2)
    for index in range(20):
        world.harnesses[2].client(f"{index}" + "x" * 60_000)
    page = await world.connections()
    assert 0 < len(page.items) < 20
    found, _, _ = await world.all_pages()
    assert len(found) == 20


async def test_a_client_and_its_session_are_found_wherever_they_are() -> None:
    world = filled()
    harness = world.harnesses[3]
    client = harness.client("away", session_expiry_s=60)
    client.subscribe(b"a", qos=1)
    query = model.FindQuery()
    found = await handlers.get_connection(world.desks[1], call(query, client_id="c20"))
    assert (found.node, found.username) == ("n2@host", "u0")
    client.drop()
    session = await handlers.get_session(world.desks[1], call(query, client_id="away"))
    assert (session.node, session.connected) == ("n3@host", False)
    listed = await handlers.list_session_subscriptions(
        world.desks[1], call(model.SessionSubscriptionQuery(), client_id="away")
    )
    assert [(one.node, one.filter) for one in listed.items] == [("n3@host", "a")]
    with pytest.raises(ApiError) as refused:
        await handlers.get_connection(world.desks[1], call(query, client_id="away"))
    assert refused.value.kind is NOT_FOUND
    with pytest.raises(ApiError) as refused:
        await handlers.get_session(world.desks[1], call(model.FindQuery(node="n2"), client_id="away"))
    assert refused.value.kind is NOT_FOUND
    world.silent = {3}
    with pytest.raises(ApiError) as refused:
        await handlers.get_session(world.desks[1], call(query, client_id="away"))
    assert refused.value.kind is UNAVAILABLE
    assert "n3@host did not answer" in str(refused.value)


async def test_without_a_cluster_it_is_the_node_itself() -> None:
    harness = BrokerHarness()
    harness.client("c")
    desk = make_desk(harness)
    for node in (None, "n1@host", "n1"):
        page = await handlers.list_connections(desk, call(model.ConnectionQuery(node=node)))
        assert [(one.node, one.client_id) for one in page.items] == [("n1@host", "c")]
    with pytest.raises(ApiError) as refused:
        await handlers.list_connections(desk, call(model.ConnectionQuery(node="n2")))
    assert refused.value.kind is NOT_FOUND
