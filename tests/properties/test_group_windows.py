"""Windows under any order of calls: each record is with one member at most, and none is forgotten."""

from __future__ import annotations

import random
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.durable.groups.keyed_window import KeyedWindow
from flockmq.durable.groups.window import Holder, Holding, Piece, Window
from flockmq.durable.machine.group_bodies import Failed
from flockmq.durable.machine.group_table import GroupState

KEYS: Final = (b"a", b"b", b"c")
MAX: Final = 12


class World:
    """A log, members that act at random, and the table that the statements of the leader make."""

    def __init__(self, rng: random.Random, is_keyed: bool) -> None:
        self.rng = rng
        self.is_keyed = is_keyed
        self.keys: list[bytes | None] = []
        """By offset; None: not selected."""
        self.state = GroupState(1, 1, 0)
        self.holders = [Holder(number // 2, number, b"m%d" % number) for number in range(3)]
        self.window: Window = KeyedWindow(1, 0, MAX) if is_keyed else Window(1, 0, MAX)
        self.now = 0
        self.acked: set[int] = set()
        self.uncommitted: list[list[Failed]] = []
        self.order: dict[bytes, list[int]] = {}

    def feed(self) -> None:
        low = self.window.position
        end = min(len(self.keys), low + self.rng.randrange(1, 8))
        pieces = []
        for offset in range(low, end):
            key = self.keys[offset]
            if key is not None:
                pieces.append(Piece(offset, offset + 1, key if self.is_keyed else b""))
        self.window.feed(end, pieces)

    def step(self) -> None:
        what = self.rng.randrange(10)
        self.now += self.rng.choice((0, 0, 5))
        held = list(self.window.held.values())
        if what == 0:
            self.keys += [self.rng.choice((*KEYS, None)) for _ in range(self.rng.randrange(6))]
        elif what in (1, 2):
            self.feed()
        elif what in (3, 4):
            for holder in self.holders:
                holder.room = self.rng.choice((0, 1, 5))
            for holding in self.window.hand_out(self.holders, self.now):
                self.check_handed(holding)
        elif what == 5 and self.uncommitted:
            failed = self.uncommitted.pop(0)
            for one in failed:
                self.state.fail(one)
            self.window.retried(failed)
        elif what == 6:
            self.lead_anew()
        elif held:
            self.settle_some(self.rng.choice(held), what)

    def settle_some(self, holding: Holding, what: int) -> None:
        low = self.rng.randrange(holding.low, holding.high)
        high = self.rng.randrange(low + 1, holding.high + 1)
        if what == 7:
            failed, code = self.window.fail(low, high, holding.attempt)
            assert code == 0
            for one in failed:
                self.uncommitted.append(self.window.retry(one, self.now + self.rng.choice((0, 5))))
        elif what == 8:
            assert self.window.give_back(low, high, holding.attempt) == high - low
        else:
            settled, code = self.window.ack(low, high, holding.attempt)
            self.window.unpin(self.window.take_pins())
            assert code == 0
            assert settled == [(low, high)]
            self.state.settle(low, high)
            self.acked.update(range(low, high))

    def check_handed(self, holding: Holding) -> None:
        offsets = set(range(holding.low, holding.high))
        assert not offsets & self.acked
        assert all(self.keys[offset] is not None for offset in offsets)
        held = [offset for one in self.window.held.values() for offset in range(one.low, one.high)]
        assert len(held) == len(set(held)) == self.window.held_count
        assert self.window.in_flight <= MAX
        if self.is_keyed:
            by_key = {(one.key, one.holder) for one in self.window.held.values()}
            assert len({key for key, _ in by_key}) == len(by_key), "two members hold one key"

    def lead_anew(self) -> None:
        """Another leader: it knows the table, and what members hold."""
        held = list(self.window.held.values())
        self.uncommitted = []
        for low, high in self.window.take_passed():
            self.state.settle(low, high)
        self.window = KeyedWindow(1, 0, MAX) if self.is_keyed else Window(1, 0, MAX)
        self.window.load(self.state)
        for holder in self.holders:
            holder.held = 0
        for one in held:
            for offset in range(one.low, one.high):
                key = self.keys[offset] if self.is_keyed else b""
                assert key is not None
                self.window.claim(one.holder, offset, offset + 1, one.attempt, key)

    def finish(self) -> None:
        """Members acknowledge everything; in ``key`` mode each key comes in order."""
        while self.uncommitted:
            failed = self.uncommitted.pop(0)
            self.window.retried(failed)
        self.now += 100
        for _ in range(1_000):
            if self.window.position < len(self.keys) and self.window.wants_more():
                self.feed()
            for holder in self.holders:
                holder.room = 3
            handed = self.window.hand_out(self.holders, self.now)
            for holding in handed:
                self.check_handed(holding)
                for offset in range(holding.low, holding.high):
                    self.order.setdefault(self.keys[offset] or b"", []).append(offset)
            for holding in list(self.window.held.values()):
                self.window.ack(holding.low, holding.high, holding.attempt)
                self.window.unpin(self.window.take_pins())
                self.acked.update(range(holding.low, holding.high))
            if self.window.position == len(self.keys) and not self.window.in_flight and not self.window.fresh_count:
                break
        wanted = {offset for offset, key in enumerate(self.keys) if key is not None}
        assert self.acked == wanted
        assert self.window.base == len(self.keys)
        if self.is_keyed:
            assert all(offsets == sorted(offsets) for offsets in self.order.values())


@settings(max_examples=150)
@given(st.integers(0, 1 << 30), st.integers(0, 120), st.booleans())
def test_each_record_is_with_one_member_and_none_is_forgotten(seed: int, steps: int, is_keyed: bool) -> None:
    world = World(random.Random(seed), is_keyed)
    for _ in range(steps):
        world.step()
    world.finish()
