"""Advice makes nodes carry about the same, with few moves, and only such as can be done."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.cluster.advice import ENTRIES_MAX, Advice
from flockmq.spark.pipelines.placing import Measured, advise, even_leaders, node_loads, skew

NODES = ("n1", "n2", "n3")


def measured(shard: int, leader: str, bytes_per_s: float, copies: tuple[str, ...] = NODES) -> Measured:
    return Measured(
        namespace="default",
        topic="plant",
        shard=shard,
        group=shard + 10,
        leader=leader,
        copies=copies,
        bytes_per_s=bytes_per_s,
    )


def loads(partitions: list[Measured], leaders: list[str]) -> dict[str, float]:
    return node_loads(dict(zip(partitions, leaders, strict=True)), NODES)


def test_what_one_node_leads_alone_is_spread() -> None:
    partitions = [measured(shard, "n1", 100.0) for shard in range(6)]
    leaders = even_leaders(partitions, NODES)
    assert loads(partitions, leaders) == {"n1": 200.0, "n2": 200.0, "n3": 200.0}


def test_what_is_even_stays() -> None:
    partitions = [measured(shard, NODES[shard % 3], 100.0) for shard in range(6)]
    assert even_leaders(partitions, NODES) == [one.leader for one in partitions]


def test_even_in_number_but_not_in_bytes() -> None:
    rates = [600.0, 500.0, 10.0, 10.0, 10.0, 10.0]
    partitions = [measured(shard, NODES[shard // 2], rate) for shard, rate in enumerate(rates)]
    leaders = even_leaders(partitions, NODES)
    found = loads(partitions, leaders)
    assert leaders[0] != leaders[1]
    assert max(found.values()) < 650


def test_a_swap_helps_where_no_move_does() -> None:
    rates = [60.0, 50.0, 40.0, 30.0]
    partitions = [measured(shard, NODES[shard // 2], rate, ("n1", "n2")) for shard, rate in enumerate(rates)]
    leaders = even_leaders(partitions)
    found = node_loads(dict(zip(partitions, leaders, strict=True)))
    assert found == {"n1": 90.0, "n2": 90.0}


def test_out_of_a_corner_where_no_single_move_helps() -> None:
    rates = [20.0, 51.0, 51.0, 51.0, 20.0, 20.0, 15.0, 15.0, 15.0]
    leaders_now = ["n1", "n2", "n1", "n2", "n1", "n2", "n1", "n2", "n1"]
    partitions = [measured(shard, leaders_now[shard], rate) for shard, rate in enumerate(rates)]
    assert max(loads(partitions, even_leaders(partitions, NODES)).values()) == 86.0


def test_only_nodes_with_a_copy_lead() -> None:
    partitions = [measured(shard, "n1", 100.0, ("n1", "n2")) for shard in range(4)]
    leaders = even_leaders(partitions, NODES)
    assert sorted(leaders) == ["n1", "n1", "n2", "n2"]


def test_a_move_for_little_is_not_advised() -> None:
    partitions = [measured(0, "n1", 101.0), measured(1, "n2", 100.0), measured(2, "n3", 100.0), measured(3, "n1", 0.5)]
    assert even_leaders(partitions, NODES) == ["n1", "n2", "n3", "n1"]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["", *NODES]), st.floats(0, 1e9), st.sets(st.sampled_from(NODES))), max_size=20)
)
def test_advice_never_makes_the_busiest_busier(found: list[tuple[str, float, set[str]]]) -> None:
    partitions = [
        measured(shard, leader, rate, tuple(sorted(copies))) for shard, (leader, rate, copies) in enumerate(found)
    ]
    leaders = even_leaders(partitions, NODES)
    before = loads(partitions, [one.leader for one in partitions])
    after = loads(partitions, leaders)
    assert max(after.values()) <= max(before.values()) * (1 + 1e-9)
    assert sum(after.values()) == pytest.approx(sum(before.values()))
    for one, leader in zip(partitions, leaders, strict=True):
        assert leader == one.leader or leader in one.copies


def test_advice_is_what_the_cluster_reads_and_names_those_that_stay() -> None:
    partitions = [measured(0, "n1", 100.0), measured(1, "n1", 100.0), measured(2, "", 1.0)]
    written = msgspec.json.encode(advise(partitions, ["n1", "n2", ""], "2026-05-01T12:00:00Z"))
    read = msgspec.json.decode(written, type=Advice)
    assert [(one.shard, one.group, one.to_node) for one in read.leaders] == [(1, 11, "n2"), (0, 10, "n1")]
    assert "stays" in read.leaders[1].why


def test_advice_has_no_more_entries_than_the_cluster_takes() -> None:
    partitions = [measured(shard, "n1", float(shard)) for shard in range(ENTRIES_MAX + 5)]
    entries = advise(partitions, ["n1"] * (ENTRIES_MAX + 4) + ["n2"], "").leaders
    assert len(entries) == ENTRIES_MAX
    assert entries[0].to_node == "n2"


@pytest.mark.parametrize(("values", "result"), [([], 1.0), ([0.0, 0.0], 1.0), ([2.0, 2.0], 1.0), ([3.0, 1.0], 1.5)])
def test_skew_is_the_largest_by_the_mean(values: list[float], result: float) -> None:
    assert skew(values) == result
