from __future__ import annotations

from typing import Any

import pytest

from flockmq.admin.readiness import ClusterFacts, NodeFacts, assess, missing


def found(**cluster: Any) -> dict[str, str]:
    """What a node of a cluster can't do, and why."""
    told = assess(NodeFacts(state="ready", cluster=ClusterFacts(**cluster)))
    abilities = {name: getattr(told, name) for name in ("clients", "cluster", "durable", "sessions")}
    assert all(one.reason.endswith(".") for one in abilities.values())
    return {name: one.reason for name, one in abilities.items() if not one.ok}


def test_a_node_that_can_do_everything() -> None:
    told = assess(NodeFacts(state="ready", cluster=ClusterFacts()))
    assert not found()
    assert told.required == ["clients", "cluster", "durable"]
    assert not missing(told, tuple(told.required))


@pytest.mark.parametrize(
    ("facts", "unable", "text"),
    [
        (
            {"waits_for": "It waits for a core."},
            ["cluster", "durable", "sessions"],
            "belongs to no cluster yet. It waits",
        ),
        (
            {"waits_for": "It waits.", "refusal": "n2 refuses this node."},
            ["cluster", "durable", "sessions"],
            "n2 refuses",
        ),
        ({"is_current": False}, ["cluster", "durable"], "No majority has confirmed cluster state"),
        ({"has_leader": False, "away": ("n2", "n3")}, ["cluster", "durable"], "can be reached. Away: n2, n3."),
        ({"store_problem": "The disk is full."}, ["durable"], "The disk is full."),
        ({"unlinked": ("n2",)}, ["sessions"], "from n2"),
    ],
)
def test_what_a_node_can_not_do(facts: dict[str, Any], unable: list[str], text: str) -> None:
    told = found(**facts)
    assert sorted(told) == unable
    assert text in told[unable[0]]


def test_many_names_are_cut() -> None:
    assert (
        "n0, n1, n2, n3, n4 and 5 more"
        in found(has_leader=False, away=tuple(f"n{one}" for one in range(10)))["cluster"]
    )


def test_a_node_that_starts_or_stops_takes_no_clients_and_says_what_it_waits_for() -> None:
    waiting = NodeFacts(state="starting", cluster=ClusterFacts(waits_for="It waits for a core."))
    told = assess(waiting)
    assert missing(told, tuple(told.required)) == [
        "The broker is starting and takes no clients yet.",
        "Durable topics need the cluster. This node belongs to no cluster yet. It waits for a core.",
    ]
    assert "stopping" in assess(NodeFacts(state="stopping", cluster=ClusterFacts())).clients.reason
    kept = assess(NodeFacts(state="ready", keeps_out="It moves.", cluster=ClusterFacts()))
    assert (kept.clients.ok, kept.clients.reason) == (False, "It moves.")


def test_a_node_that_is_meant_to_be_alone_is_ready_alone() -> None:
    told = assess(NodeFacts(state="ready", why_alone="It is meant to be alone.", is_meant_alone=True))
    assert told.required == ["clients"]
    assert (told.cluster.ok, told.durable.ok, told.sessions.ok) == (True, False, True)
