"""Whole clusters of members in one process: what they agree on, and when, whatever happens to datagrams and nodes."""

from __future__ import annotations

import pytest

from flockmq.gossip.settings import LAN, LOCAL, WAN, GossipSettings
from flockmq.testing.simulation.gossip.cluster import GossipSimulation

HEAL_MS_MAX = 10_000


def cluster(seed: int, count: int, settings: GossipSettings = LAN, loss: float = 0.0) -> GossipSimulation:
    simulation = GossipSimulation(seed, settings, loss=loss)
    simulation.start_many(count)
    assert simulation.run_until_agreed(20_000) >= 0
    return simulation


def known_to_all_after_ms(simulation: GossipSimulation, index: int, limit_ms: int) -> int:
    began = simulation.now
    while len(simulation.known_dead[index]) < len(simulation.running()):
        assert simulation.now - began < limit_ms, f"{index} is not known as dead by all after {limit_ms} ms"
        simulation.run(50)
    return max(simulation.known_dead[index].values()) - simulation.died_at[index]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
def test_nodes_that_are_started_together_find_each_other(seed: int, count: int) -> None:
    simulation = GossipSimulation(seed, loss=0.1)
    simulation.start_many(count)
    assert simulation.run_until_agreed(20_000) >= 0
    assert not simulation.false_deaths


@pytest.mark.parametrize("seed", range(5))
def test_five_nodes_agree_on_a_killed_one_within_five_seconds(seed: int) -> None:
    simulation = cluster(seed, 5)
    simulation.run(seed * 137)
    simulation.kill(3)
    assert known_to_all_after_ms(simulation, 3, 5_000) < 5_000
    assert simulation.agree()


@pytest.mark.parametrize("seed", range(3))
def test_a_silent_death_is_found_by_probes_alone(seed: int) -> None:
    simulation = cluster(seed, 20, loss=0.05)
    simulation.link_probes = False
    simulation.kill(7, silent=True)
    assert known_to_all_after_ms(simulation, 7, 20_000) < 20_000
    assert not simulation.false_deaths


@pytest.mark.parametrize(("settings", "limit_ms"), [(LOCAL, 4_000), (LAN, 8_000), (WAN, 40_000)])
def test_profiles_find_a_silent_death(settings: GossipSettings, limit_ms: int) -> None:
    simulation = cluster(1, 5, settings)
    simulation.kill(2, silent=True)
    known_to_all_after_ms(simulation, 2, limit_ms)


def test_wan_stands_long_ways() -> None:
    simulation = GossipSimulation(3, WAN, loss=0.05, delay_ms_min=50, delay_ms_max=200)
    simulation.start_many(12)
    assert simulation.run_until_agreed(30_000) >= 0
    simulation.run(120_000)
    assert not simulation.false_deaths


def test_much_loss_kills_nobody() -> None:
    simulation = cluster(1, 30, loss=0.05)
    simulation.link_probes = False
    simulation.loss = 0.15
    simulation.run(60_000)
    assert simulation.suspicions, "with so much loss somebody must have been suspected, or this shows nothing"
    assert not simulation.false_deaths
    simulation.loss = 0.0
    assert simulation.run_until_agreed(10_000) >= 0


def test_a_restarted_node_replaces_its_former_life_at_once() -> None:
    simulation = cluster(1, 5)
    simulation.kill(4)
    simulation.run(100)
    simulation.restart(4)
    assert simulation.run_until_agreed(2_000) >= 0


def test_a_node_with_a_new_disk_replaces_the_one_at_its_address() -> None:
    simulation = cluster(1, 5)
    old = simulation.nodes[4].swim.me.node_id
    simulation.kill(4)
    simulation.restart(4, new_id=True)
    assert simulation.run_until_agreed(2_000) >= 0
    assert all(old not in node.swim.roster.live for node in simulation.running())


def test_who_leaves_is_gone_at_once_and_not_called_dead() -> None:
    simulation = cluster(1, 8, loss=0.05)
    simulation.leave(5)
    assert simulation.run_until_agreed(2_000) >= 0
    assert not simulation.false_deaths
    assert not simulation.known_dead
    simulation.restart(5)
    assert simulation.run_until_agreed(3_000) >= 0


@pytest.mark.parametrize("silent_ms", [1_000, 30_000, 600_000])
@pytest.mark.parametrize("groups", [[[0], [1], [2]], [[0, 1], [2]]])
def test_three_nodes_heal_from_any_partition_twice(groups: list[list[int]], silent_ms: int) -> None:
    simulation = cluster(silent_ms, 3)
    simulation.excused = {0, 1, 2}
    for _ in range(2):
        simulation.partition(*groups)
        simulation.run(silent_ms)
        if silent_ms > 20_000:
            for group in groups:
                assert all(len(simulation.nodes[index].swim.alive()) == len(group) for index in group)
        simulation.heal()
        took = simulation.run_until_agreed(HEAL_MS_MAX)
        assert 0 <= took <= HEAL_MS_MAX


@pytest.mark.parametrize("seed", range(2))
def test_two_halves_merge(seed: int) -> None:
    simulation = cluster(seed, 40, loss=0.02)
    simulation.excused = set(range(40))
    simulation.partition(list(range(20)), list(range(20, 40)))
    simulation.run(90_000)
    assert len(simulation.nodes[0].swim.alive()) == 20
    simulation.heal()
    took = simulation.run_until_agreed(30_000)
    assert 0 <= took <= 15_000


def test_a_member_that_died_during_a_partition_stays_dead_after_it() -> None:
    simulation = cluster(5, 6)
    simulation.excused = set(range(6))
    simulation.partition([0, 1, 2], [3, 4, 5])
    simulation.run(1_000)
    simulation.kill(5)
    simulation.run(30_000)
    simulation.heal()
    assert simulation.run_until_agreed(HEAL_MS_MAX) >= 0
    simulation.run(20_000)
    assert simulation.agree()


def test_one_way_that_is_cut_is_gone_around() -> None:
    simulation = cluster(2, 6)
    simulation.link_probes = False
    simulation.cuts.add((0, 1))
    simulation.run(60_000)
    assert not simulation.false_deaths
    assert simulation.agree()


def test_a_node_that_hears_nothing_harms_nobody_but_itself() -> None:
    """Everything from node 4 arrives, nothing gets to it: others must not die because it says so."""
    simulation = cluster(4, 8)
    simulation.link_probes = False
    simulation.excused = {4}
    for index in range(8):
        if index != 4:
            simulation.cuts.add((index, 4))
    simulation.run(60_000)
    assert not simulation.false_deaths
    simulation.heal()
    assert simulation.run_until_agreed(HEAL_MS_MAX) >= 0


def test_a_short_pause_kills_nobody() -> None:
    simulation = cluster(6, 6, loss=0.02)
    for _ in range(5):
        simulation.pause(2, 1_200)
        simulation.run(4_000)
    assert not simulation.false_deaths
    assert simulation.nodes[2].swim.counters.stalls >= 1


def test_a_long_pause_is_a_death_and_the_node_comes_back_by_itself() -> None:
    simulation = cluster(6, 6)
    simulation.excused = {2}
    simulation.pause(2, 60_000)
    simulation.run(30_000)
    assert len(simulation.nodes[0].swim.alive()) == 5
    simulation.run(30_000)
    took = simulation.run_until_agreed(HEAL_MS_MAX)
    assert 0 <= took <= HEAL_MS_MAX
    assert not simulation.false_deaths, "who stood still must not blame others"


def test_without_links_lists_still_become_the_same() -> None:
    simulation = GossipSimulation(8, loss=0.05, links=False)
    simulation.start_many(30)
    assert simulation.run_until_agreed(30_000) >= 0
    simulation.excused = set(range(30))
    simulation.partition(list(range(10)), list(range(10, 30)))
    simulation.run(60_000)
    simulation.heal()
    assert simulation.run_until_agreed(30_000) >= 0


def test_nothing_is_sent_but_probes_when_nothing_changes() -> None:
    rates: list[float] = []
    for count in (10, 60):
        simulation = cluster(1, count)
        simulation.run(30_000)
        before = sum(node.bytes_sent + node.link_bytes_sent for node in simulation.nodes)
        simulation.run(60_000)
        after = sum(node.bytes_sent + node.link_bytes_sent for node in simulation.nodes)
        rates.append((after - before) / count / 60)
    assert rates[1] <= rates[0] * 1.05


def test_one_seed_makes_one_story() -> None:
    stories = []
    for _ in range(2):
        simulation = cluster(11, 10, loss=0.1)
        simulation.kill(3)
        simulation.run(10_000)
        stories.append((simulation.datagrams, simulation.known_dead, [node.bytes_sent for node in simulation.nodes]))
    assert stories[0] == stories[1]
