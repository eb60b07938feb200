from __future__ import annotations

from flockmq.cluster.loads import Loads, choose, choose_leader
from flockmq.cluster.model import NodeRecord, PartitionRecord


def nodes(zones: str) -> list[NodeRecord]:
    return [NodeRecord(number, f"n{number}", "h", 1, zone=zone) for number, zone in enumerate(zones, 1)]


def loaded(**replicas: int) -> Loads:
    loads = Loads()
    loads.replicas = {int(node[1:]): count for node, count in replicas.items()}
    return loads


def test_zones_come_first_then_load_then_id() -> None:
    assert choose(nodes("aab"), Loads(), 2, (), {}) == (1, 3)
    assert choose(nodes("aab"), loaded(n3=9), 2, (), {}) == (1, 3)
    assert choose(nodes("aab"), loaded(n1=1), 2, (), {}) == (2, 3)
    assert choose(nodes("aaa"), loaded(n1=2, n2=1), 2, (), {}) == (3, 2)


def test_what_is_kept_stays_and_its_zone_counts() -> None:
    assert choose(nodes("aab"), Loads(), 3, (9,), {9: "b"}) == (9, 1, 2)
    assert choose(nodes("aab"), Loads(), 2, (1,), {1: "a"}) == (1, 3)
    assert choose(nodes("aab"), Loads(), 1, (2, 3), {}) == (2, 3)


def test_there_may_be_too_few() -> None:
    assert choose(nodes("ab"), Loads(), 5, (), {}) == (1, 2)
    assert choose([], Loads(), 5, (), {}) == ()


def test_who_leads_least_leads() -> None:
    loads = Loads()
    loads.leaders = {1: 2, 2: 1, 3: 1}
    assert choose_leader((1, 3, 2), loads) == 3
    assert choose_leader((), loads) == 0


def test_counts_follow_partitions() -> None:
    loads = Loads()
    partition = PartitionRecord(1, 0, (1, 2), (2, 3), (1, 2), 3, (1, 2))
    loads.add(partition)
    assert loads.replicas == {2: 1, 3: 1}
    assert loads.leaders == {3: 1}
    copy = loads.copy()
    copy.move((2, 3), 3, (3, 4), 4)
    assert copy.replicas == {2: 0, 3: 1, 4: 1}
    assert copy.leaders == {3: 0, 4: 1}
    loads.remove(partition)
    assert loads.replicas == {2: 0, 3: 0}
    assert loads.partitions == 0
