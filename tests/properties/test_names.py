"""Passing by the index of names equals looking at every record: whatever is written, cut, lost or restarted."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.durable.logs.name_tests import name_test
from flockmq.log.batch import NOOP, BatchBuilder, BatchView, control_batch, stamp
from flockmq.log.group import GroupLog
from flockmq.log.recovery import open_store
from flockmq.log.settings import Retention, StoreSettings
from flockmq.mqtt.topics import matches
from flockmq.routing.names import Named, NameTree
from flockmq.testing.simulation.disk import PowerLoss, SimulatedDisk
from log_cases import settle

SMALL: Final = StoreSettings(
    journal_bytes=16 * 1024,
    commit_bytes=4 * 1024,
    segment_bytes=2 * 1024,
    index_bytes=256,
    cache_bytes=1_024,
    loaded_indexes=2,
)
LEVELS: Final = (b"a", b"b", b"", b"$x", b"ab")
FILTER_LEVELS: Final = (*LEVELS, b"+", b"+")
PREFIXES: Final = (b"", b"", b"$ns/acme/")


def a_name(rng: random.Random) -> bytes:
    return rng.choice(PREFIXES) + b"/".join(rng.choice(LEVELS) for _ in range(rng.randrange(1, 4))) or b"/"


def a_filter(rng: random.Random) -> bytes:
    levels = [rng.choice(FILTER_LEVELS) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.3:
        levels.append(b"#")
    return rng.choice(PREFIXES) + b"/".join(levels) or b"/"


class Log:
    """A log in a store that is cut, compacted, checkpointed, and restarted with or without power."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(random.Random(seed + 1))
        self.store = open_store(self.disk, SMALL, self.rng)
        self.log: GroupLog = self.store.create(1)
        self.log.roll_for(Retention(names=True))
        self.term = 1
        self.names = [a_name(self.rng) for _ in range(12)]

    def step(self) -> None:
        choices = [self.append] * 8 + [self.cut, self.compact, self.settle, self.settle, self.checkpoint, self.restart]
        self.rng.choice([*choices, self.ask, self.lose_power])()

    def append(self) -> None:
        rng = self.rng
        lately = rng.sample(self.names, 3)
        for _ in range(rng.randrange(1, 6)):
            if not self.store.has_room():
                return
            batch = control_batch(NOOP, bytes(rng.randrange(300)))
            if rng.random() < 0.9:
                builder = BatchBuilder()
                for _ in range(rng.randrange(1, 4)):
                    builder.add(rng.choice(lately), b"c", 1, 1, bytes(rng.choice((0, 20, 600))))
                batch = builder.build()
            self.log.append([stamp(batch, self.term, self.log.last_index() + 1, self.log.next_offset())])

    def cut(self) -> None:
        if self.log.last >= self.log.first:
            self.term += 1
            self.log.truncate_from(self.rng.randrange(self.log.first, self.log.last + 1))

    def compact(self) -> None:
        self.log.compact_to(self.rng.randrange(self.log.first - 1, self.log.last + 1))

    def settle(self) -> None:
        settle(self.store, self.disk)

    def checkpoint(self) -> None:
        settle(self.store, self.disk, checkpoint=True)

    def restart(self) -> None:
        settle(self.store, self.disk)
        self.recover()

    def lose_power(self) -> None:
        self.disk.lose_power_after(self.rng.randrange(1, 12))
        with suppress(PowerLoss):
            settle(self.store, self.disk, checkpoint=True)
        self.disk.disarm()
        self.disk.lose_power(self.rng)
        self.recover()

    def recover(self) -> None:
        self.store = open_store(self.disk, SMALL, self.rng)
        if 1 not in self.store.groups:
            self.store.create(1)
        self.log = self.store.groups[1]
        self.log.roll_for(Retention(names=True))

    def ask(self) -> None:
        log = self.log
        filters = [a_filter(self.rng) for _ in range(self.rng.randrange(0, 3))]
        tests = [name_test(one) for one in filters]
        offset = log.first_offset
        seen: set[int] = set()
        while offset < log.end_offset:
            found = log.find_names(offset, log.end_offset, tests)
            assert offset <= found.low <= found.high <= log.end_offset
            assert found.high > offset
            seen.update(range(found.low, found.high))
            offset = found.high
        wanted = {
            record.offset
            for batch in log.entries(log.first, log.last + 1, 1 << 30)
            if BatchView(batch).count
            for record in BatchView(batch).records()
            if any(matches(one, record.topic) for one in filters)
        }
        assert wanted <= seen
        if not filters:
            assert not seen


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_no_wanted_record_is_passed(seed: int) -> None:
    log = Log(seed)
    for _ in range(60):
        log.step()
    log.ask()
    log.restart()
    log.ask()


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_a_test_says_of_names_what_the_router_says(seed: int) -> None:
    rng = random.Random(seed)
    names = {a_name(rng) for _ in range(10)}
    tree: NameTree[Named] = NameTree()
    for name in names:
        tree.set(Named(name))
    topic_filter = a_filter(rng)
    test = name_test(topic_filter)
    is_wanted = partial(bytes.__eq__, test.prefix) if test.matches is None else test.matches
    found = {name for name in names if name.startswith(test.prefix) and is_wanted(name)}
    assert found == {one.topic for one in tree.match(topic_filter)}
