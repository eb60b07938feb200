"""Partitions that move about while nodes die: whatever was acknowledged is where the state says, once and in order."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import CreateHidden, CreateTopic, SetTarget
from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.cluster.policy import PolicySettings
from flockmq.testing.lockstep_nodes import SEED, Append, NodesLockstep

SHARDS = 3


class Story:
    """One run: appends, moves and deaths, as chance has it."""

    def __init__(self, seed: int, cores: int) -> None:
        self.cluster = NodesLockstep(seed, cores=cores)
        self.rng = self.cluster.rng
        self.sent: dict[int, list[tuple[bytes, Append]]] = {group: [] for group in range(1, SHARDS + 1)}
        self.number = 0
        self.moves = 0

    def begin(self) -> None:
        cluster = self.cluster
        cluster.found(*range(2, len(cluster.nodes) + 1))
        cluster.until(lambda: len(cluster[1].meta.state.nodes) == len(cluster.nodes))
        assert cluster.submit(1, CreateTopic("t", shards=SHARDS)).ok
        cluster.until(lambda: all(cluster.leader(group) is not None for group in self.sent))

    def act(self) -> None:
        """Something happens."""
        cluster = self.cluster
        rng = self.rng
        chance = rng.random()
        node = rng.choice(cluster.running())
        down = [each for each in cluster.nodes.values() if not each.running]
        if chance < 0.55:
            group = rng.randint(1, SHARDS)
            self.number += 1
            payload = b"%d" % self.number
            self.sent[group].append((payload, node.append(group, payload)))
        elif chance < 0.70:
            target = tuple(rng.sample(sorted(cluster.nodes), 3))
            node.meta.submit(SetTarget(rng.randint(1, SHARDS), target))
            self.moves += 1
        elif chance < 0.74 and not down:
            node.kill()
        elif chance < 0.80 and down:
            down[0].start()
        cluster.run(rng.choice((50, 50, 200, 1_000)))

    def end(self) -> None:
        """All nodes run again; everything comes to rest."""
        cluster = self.cluster
        for node in cluster.nodes.values():
            if not node.running:
                node.start()
        cluster.until(self.is_at_rest, 240_000)

    def is_at_rest(self) -> bool:
        cluster = self.cluster
        states = {node.meta.state.encode() for node in cluster.running()}
        if len(states) != 1 or cluster[1].meta.state.moving():
            return False
        for record in cluster[1].meta.state.partitions():
            holders = {node.number for node in cluster.running() if record.group in node.store.groups}
            if holders != set(record.replicas) or set(cluster.voters(record.group)) != holders:
                return False
            if len({tuple(cluster[number].payloads(record.group)) for number in holders}) != 1:
                return False
            if any(
                len(cluster[number].payloads(record.group)) != cluster[number].durable.local.end(record.group)
                for number in holders
            ):
                return False
            if any(cluster[number].engine.host.groups[record.group].state.health for number in holders):
                return False
        return True

    def check(self) -> None:
        """Nothing acknowledged is missing, nothing is there twice; offsets are what was said."""
        for group, sent in self.sent.items():
            record = self.cluster[1].meta.state.partition(group)
            found = self.cluster[record.replicas[0]].payloads(group)
            assert len(set(found)) == len(found)
            for payload, append in sent:
                outcome = append.outcome
                if outcome is not None and outcome.kind == 1:
                    assert found[outcome.offset] == payload
                elif outcome is not None and outcome.kind == 2:
                    assert payload not in found


@pytest.mark.parametrize("seed", range(4))
def test_moves_and_deaths(seed: int) -> None:
    story = Story(seed * 7 + SEED, cores=4 + seed % 2)
    story.begin()
    for _ in range(120):
        story.act()
    story.end()
    story.check()
    assert story.moves


class Storm(Story):
    """Links break as well, disks lose bits, nodes are taken for lost and return."""

    def begin(self) -> None:
        self.cluster.policy = PolicySettings(autoclean_ms=6_000, seat_kept_ms=2_000, unseen_ms=3_000)
        super().begin()

    def act(self) -> None:
        cluster = self.cluster
        chance = self.rng.random()
        down = [each for each in cluster.nodes.values() if not each.running]
        if chance < 0.03 and not cluster.cuts:
            cluster.isolate(self.rng.choice(sorted(cluster.nodes)))
        elif chance < 0.08 and cluster.cuts:
            cluster.heal()
        elif chance < 0.09:
            node = self.rng.choice(cluster.running())
            node.meta.submit(CreateTopic(f"t{cluster.now}", shards=2))
        elif chance < 0.10:
            cluster.run(8_000)
        elif chance < 0.20 and down:
            for _ in range(3):
                down[0].disk.flip(self.rng)
            down[0].start()
        else:
            super().act()

    def end(self) -> None:
        self.cluster.heal()
        super().end()

    def is_at_rest(self) -> bool:
        return len(self.cluster[1].meta.state.nodes) == len(self.cluster.nodes) and super().is_at_rest()


@pytest.mark.parametrize("seed", range(3))
def test_storms(seed: int) -> None:
    story = Storm(seed * 7 + 3 + SEED, cores=4 + seed % 2)
    story.begin()
    for _ in range(100):
        story.act()
    story.end()
    story.check()


def test_a_hidden_topic_is_made_once_moves_and_outlives_restarts() -> None:
    cluster = NodesLockstep(SEED, cores=4)
    cluster.found(2, 3, 4)
    cluster.until(lambda: len(cluster[1].meta.state.nodes) == 4)
    for number in (1, 2, 3):
        assert cluster.submit(number, CreateHidden(CAPTURE_TOPIC)).ok
    state = cluster[1].meta.state
    assert list(state.places) == list(range(1, 9))
    cluster.until(lambda: all(cluster.leader(group) is not None for group in state.places))
    assert cluster.append(4, 1, b"waits") == 0
    [away] = {1, 2, 3, 4} - set(state.partition(1).replicas)
    target = (away, *state.partition(1).replicas[1:])
    assert cluster.submit(2, SetTarget(1, target)).ok
    cluster.until(lambda: set(cluster.voters(1)) == set(target) and not cluster[1].meta.state.moving())
    for node in cluster.running():
        node.kill()
    for node in cluster.nodes.values():
        node.start()
    cluster.until(lambda: cluster.leader(1) is not None and cluster[away].payloads(1) == [b"waits"])
    assert cluster.append(3, 1, b"more") == 1
