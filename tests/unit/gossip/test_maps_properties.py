"""Owned maps under all that links and nodes can do: views become the same, and no promise is broken on the way."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from maps_network import Network

KEYS = [b"r/%d" % number for number in range(30)]
NODES_MAX = 6

node = st.integers(1, NODES_MAX)
key = st.sampled_from(KEYS)


def spanning_edges(count: int, rng: random.Random, more: int) -> list[tuple[int, int]]:
    """Links that leave nobody out, and some more."""
    edges = {(rng.randrange(1, number), number) for number in range(2, count + 1)}
    for _ in range(more):
        one, other = rng.randrange(1, count + 1), rng.randrange(1, count + 1)
        if one != other:
            edges.add((min(one, other), max(one, other)))
    return sorted(edges)


class MapsMachine(RuleBasedStateMachine):
    """Hypothesis decides what happens; at the end all is healed, perhaps with links missing."""

    @initialize(count=st.integers(2, NODES_MAX), linked=st.booleans())
    def begin(self, count: int, linked: bool) -> None:
        self.count = count
        self.network = Network(count)
        if linked:
            self.network.heal()

    def pick(self, number: int) -> int:
        return (number - 1) % self.count + 1

    @rule(at=node, name=key, value=st.binary(max_size=20))
    def set_key(self, at: int, name: bytes, value: bytes) -> None:
        self.network.set(self.pick(at), name, value)

    @rule(at=node, name=key)
    def delete_key(self, at: int, name: bytes) -> None:
        self.network.set(self.pick(at), name, None)

    @rule(at=node, seed=st.integers(0, 99), changes=st.integers(1, 30))
    def change_much(self, at: int, seed: int, changes: int) -> None:
        rng = random.Random(seed)
        for _ in range(changes):
            value = rng.randbytes(rng.randrange(30)) if rng.random() < 0.7 else None
            self.network.set(self.pick(at), rng.choice(KEYS), value)

    @rule(at=node, most=st.integers(0, 5))
    def turn(self, at: int, most: int) -> None:
        self.network.deliver(self.pick(at), most)

    @rule(elapsed_ms=st.sampled_from([10, 100, 300, 700]))
    def let_time_pass(self, elapsed_ms: int) -> None:
        self.network.now += elapsed_ms
        for number in self.network.nodes:
            self.network.tick(number)

    @rule()
    def settle(self) -> None:
        self.network.settle()

    @rule(one=node, other=node)
    def join(self, one: int, other: int) -> None:
        self.network.join(self.pick(one), self.pick(other))

    @rule(one=node, other=node)
    def cut(self, one: int, other: int) -> None:
        self.network.cut(self.pick(one), self.pick(other))

    @rule(one=node, other=node)
    def deafen(self, one: int, other: int) -> None:
        self.network.deafen(self.pick(one), self.pick(other))

    @rule(at=node, other=node)
    def notice(self, at: int, other: int) -> None:
        self.network.notice(self.pick(at), self.pick(other))

    @rule(at=node, other=node)
    def blink(self, at: int, other: int) -> None:
        self.network.blink(self.pick(at), self.pick(other))

    @rule(number=node, back=st.booleans())
    def restart(self, number: int, back: bool) -> None:
        who = self.pick(number)
        self.network.restart(who, self.network.nodes[who].maps.boot - 3_000 if back else 0)

    @rule(at=node, who=node)
    def declare_dead(self, at: int, who: int) -> None:
        self.network.dead(self.pick(at), self.pick(who))
        if self.pick(at) != self.pick(who):
            assert not list(self.network.nodes[self.pick(at)].maps.items(self.pick(who)))

    @rule(at=node, who=node)
    def declare_alive(self, at: int, who: int) -> None:
        self.network.alive(self.pick(at), self.pick(who))

    @rule(sender=node, receiver=node)
    def datagram(self, sender: int, receiver: int) -> None:
        if self.pick(sender) != self.pick(receiver):
            self.network.datagram(self.pick(sender), self.pick(receiver))

    @rule(seed=st.integers(0, 99), more=st.integers(0, 8))
    def heal(self, seed: int, more: int) -> None:
        """A graph without a path between some would prove nothing; one with few links proves the most."""
        self.network.heal(spanning_edges(self.count, random.Random(seed), more))
        self.network.check_equal()

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.network.heal()
            self.network.check_equal()


TestMaps = MapsMachine.TestCase
TestMaps.settings = settings(stateful_step_count=40)


@pytest.mark.parametrize("seed", range(40))
def test_a_long_life_of_random_faults(seed: int) -> None:
    """In half of them some nodes never get a link to each other, and have to hear of each other through third ones."""
    rng = random.Random(seed)
    count = rng.randrange(2, NODES_MAX + 1)
    network = Network(count)
    edges = spanning_edges(count, rng, 0 if seed % 2 else 20)
    network.heal(edges)
    for _ in range(400):
        one, other = rng.choice(edges) if rng.random() < 0.5 else rng.choice(edges)[::-1]
        dice = rng.random()
        if dice < 0.25:
            for _ in range(rng.choice([1, 1, 5, 60])):
                value = rng.choice([None, b"", rng.randbytes(rng.randrange(20))])
                network.set(rng.randrange(1, count + 1), rng.choice(KEYS), value)
        elif dice < 0.6:
            network.deliver(one, rng.randrange(6))
        elif dice < 0.75:
            network.now += rng.choice([10, 100, 300])
            for number in network.nodes:
                network.tick(number)
        elif dice < 0.82:
            network.join(one, other)
        elif dice < 0.85:
            network.cut(one, other)
        elif dice < 0.86:
            network.deafen(one, other)
        elif dice < 0.90:
            network.notice(one, other)
        elif dice < 0.91:
            network.restart(one, rng.choice([0, 0, network.nodes[one].maps.boot - 3_000]))
        elif dice < 0.93:
            network.dead(rng.randrange(1, count + 1), other)
        elif dice < 0.97:
            for at in network.nodes:
                network.alive(at, other)
        elif dice < 0.98:
            network.datagram(one, other)
        elif dice < 0.99:
            network.blink(one, other)
        else:
            network.run(400)
    network.heal(edges)
    network.check_equal()
