"""Consumer groups when nodes die: members of other nodes get what was held when the time of its holders is over."""

from __future__ import annotations

import pytest

from flockmq.durable.groups.port import Fetched
from group_nodes import GroupNodes, payloads


def numbers(count: int) -> list[bytes]:
    return [b"%d" % one for one in range(count)]


def other_than(*taken: int) -> int:
    return next(number for number in (1, 2, 3) if number not in taken)


def test_a_new_leader_does_not_hand_out_what_members_of_living_nodes_hold() -> None:
    nodes = GroupNodes()
    group = nodes.group(ack_wait_ms=60_000)
    partition = nodes.partitions()[0]
    nodes.publish(b"t/a", *numbers(10))
    leader = nodes.leader_number(partition)
    here = other_than(leader)
    there = other_than(leader, here)
    held = nodes.fetch(here, group, "m1", 4)
    nodes[leader].kill()
    nodes.until(lambda: nodes.leader(partition) is not None, 30_000)
    nodes[leader].start()
    rest = nodes.fetch(there, group, "m2", 10, 60_000)
    assert set(payloads(rest)) == set(numbers(10)) - set(payloads(held))
    assert nodes.ack(there, *held, *rest) == [""] * 10
    nodes.until(lambda: nodes.floor(group, partition) == 10)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_members_of_a_dead_node_held_comes_again(restarts: bool) -> None:
    nodes = GroupNodes()
    group = nodes.group(ack_wait_ms=8_000)
    partition = nodes.partitions()[0]
    nodes.publish(b"t/a", *numbers(6))
    leader = nodes.leader_number(partition)
    gone = other_than(leader)
    held = nodes.fetch(gone, group, "m1", 4)
    at = nodes.now
    nodes[gone].kill()
    if restarts:
        nodes.run(1_000)
        nodes[gone].start()
    again: list[Fetched] = []
    while len(again) < 6:
        more = nodes.fetch(leader, group, "m2", 10, 60_000)
        assert more
        again += more
        assert nodes.ack(leader, *more) == [""] * len(more)
    assert sorted(payloads(again)) == numbers(6)
    assert {one.deliveries for one in again if one.payload in payloads(held)} == {2}
    assert restarts or nodes.now - at >= 8_000, "the node might live, and its members"


def test_what_the_leader_and_its_members_held_comes_again_when_it_is_dead() -> None:
    nodes = GroupNodes()
    group = nodes.group(ack_wait_ms=8_000)
    partition = nodes.partitions()[0]
    nodes.publish(b"t/a", *numbers(4))
    leader = nodes.leader_number(partition)
    nodes.fetch(leader, group, "m1", 2)
    nodes[leader].kill()
    here = other_than(leader)
    again: list[bytes] = []
    while len(again) < 4:
        again += payloads(nodes.fetch(here, group, "m2", 10, 60_000))
    assert sorted(again) == numbers(4)


def test_a_silent_node_holds_until_its_time_is_over() -> None:
    nodes = GroupNodes()
    group = nodes.group(ack_wait_ms=4_000)
    partition = nodes.partitions()[0]
    nodes.publish(b"t/a", b"x")
    leader = nodes.leader_number(partition)
    silent = other_than(leader)
    held = nodes.fetch(silent, group, "m1")
    at = nodes.now
    nodes.isolate(silent)
    again = nodes.fetch(leader, group, "m2", 1, 60_000)
    assert payloads(again) == [b"x"]
    assert nodes.now - at >= 4_000
    nodes.ack(leader, *again)
    nodes.heal()
    nodes.run(5_000)
    assert nodes.ack(silent, *held) == [""], "settled is settled"
    nodes.until(lambda: nodes.floor(group, partition) == 1)


@pytest.mark.parametrize("kills_leader", [False, True])
def test_dead_letters_come_once_whichever_leader_falls(kills_leader: bool) -> None:
    nodes = GroupNodes()
    group = nodes.group(max_deliver=1)
    partition = nodes.partitions()[0]
    nodes.publish(b"t/a", *numbers(8))
    found = nodes.fetch(1, group, "m", 8)
    dead = nodes.state.topics["default/work.dead"]
    nodes.port(1).nack([one.token for one in found], 0, "broken")
    victim = nodes.leader_number(partition if kills_leader else dead.partitions[0].group)
    for _ in range(3):
        nodes.turn()
    nodes[victim].kill()
    nodes.run(2_000)
    nodes[victim].start()
    nodes.run(10_000)
    again: list[bytes] = []
    while nodes.status(group, 1)[0].lag:
        more = nodes.fetch(1, group, "m2", 8, 5_000)
        again += payloads(more)
        nodes.ack(1, *more)
        nodes.run(1_000)
    assert sorted(nodes.payloads_of(dead) + again) == numbers(8)


def test_a_group_holds_retention_until_its_records_are_settled() -> None:
    nodes = GroupNodes()
    group = nodes.group()
    free = nodes.group("free", hold=False)
    partition = nodes.partitions()[0]
    nodes.publish(b"t/a", *numbers(3))
    node = nodes[nodes.leader_number(partition)].durable
    machine = node.machines.by_group[partition]
    assert node.retention_sweeper.held_offset(partition, machine) == 0
    nodes.ack(1, *nodes.fetch(1, group, "m", 2))
    nodes.until(lambda: node.retention_sweeper.held_offset(partition, machine) == 2)
    assert nodes.floor(free, partition) == 0


@pytest.mark.parametrize("mode", ["key", "stream"])
def test_records_of_a_key_are_with_one_member_and_in_order(mode: str) -> None:
    nodes = GroupNodes()
    group = nodes.group(mode=mode, ack_wait_ms=60_000)
    partition = nodes.partitions()[0]
    nodes.put(partition, *[(b"t/%d" % (one % 4), b"%d" % one) for one in range(24)])
    seen: dict[bytes, list[int]] = {}
    for turn in range(60):
        number = turn % 3 + 1
        found = nodes.fetch(number, group, f"m{number}", 2, 200)
        if turn == 7 and found:
            nodes.nack(number, *found, delay_ms=0)
            continue
        for one in found:
            seen.setdefault(one.topic if mode == "key" else b"", []).append(int(one.payload))
        nodes.ack(number, *found)
    assert sorted(one for some in seen.values() for one in some) == list(range(24))
    assert all(some == sorted(some) for some in seen.values())
