"""The store against an obvious model: any operations, a power loss anywhere; what comes back is what was promised."""

from __future__ import annotations

import copy
import random
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.log.batch import NOOP, BatchBuilder, BatchView, control_batch, stamp
from flockmq.log.errors import DamageError
from flockmq.log.group import GroupLog
from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.log.state import Snapshot
from flockmq.log.store import Store
from flockmq.log.work import Chore, Commit
from flockmq.testing.simulation.disk import PowerLoss, SimulatedDisk

SMALL: Final = StoreSettings(
    journal_bytes=16 * 1024,
    commit_bytes=4 * 1024,
    segment_bytes=2 * 1024,
    index_bytes=512,
    cache_bytes=2 * 1024,
    loaded_indexes=2,
)
GROUPS: Final = 3


class ModelLog:
    """A list, with everything spelled out."""

    def __init__(self) -> None:
        self.entries: dict[int, bytes] = {}
        self.first = 1
        self.last = 0
        self.next_offset = 0
        self.term_before = 0
        self.hard_state = (0, 0, 0)
        self.snapshot: bytes | None = None


Model = dict[int, ModelLog]


class Machine:
    """A store and its model, doing the same things."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(random.Random(seed + 1))
        self.store = open_store(self.disk, SMALL, self.rng)
        self.model: Model = {}
        self.durable: Model = {}
        self.flying: list[Model] = []
        """What the store may come back as besides ``durable``: a commit was taken and perhaps written."""
        self.commit: Commit | None = None
        self.chore: Chore | None = None
        self.saving: list[tuple[int, Snapshot, bytes]] = []

    def step(self) -> None:
        choices = [self.append] * 6 + [
            self.cut,
            self.compact,
            self.vote,
            self.snapshot,
            self.use_snapshot,
            self.restart_log,
        ]
        choices += [self.create, self.remove_group] + [self.take] * 4 + [self.work] * 5 + [self.checkpoint, self.check]
        self.rng.choice(choices)()

    def pick(self) -> tuple[GroupLog, ModelLog] | None:
        if not self.model:
            return None
        group = self.rng.choice(sorted(self.model))
        return self.store.groups[group], self.model[group]

    def create(self) -> None:
        free = [group for group in range(GROUPS) if group not in self.model]
        if free and self.store.has_room():
            group = self.rng.choice(free)
            self.store.create(group)
            self.model[group] = ModelLog()

    def remove_group(self) -> None:
        if len(self.model) == GROUPS and self.rng.random() < 0.1:
            group = self.rng.choice(sorted(self.model))
            self.store.remove(group)
            del self.model[group]
            self.saving = [one for one in self.saving if one[0] != group]

    def batch(self) -> bytes:
        if self.rng.random() < 0.15:
            return control_batch(NOOP, bytes(self.rng.randrange(40)))
        builder = BatchBuilder()
        for _ in range(self.rng.randrange(1, 4)):
            size = self.rng.choice([0, 5, 60, 900])
            builder.add(b"t/%d" % self.rng.randrange(3), b"c", self.rng.randrange(1, 99), 1, self.rng.randbytes(size))
        return builder.build()

    def append(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        for _ in range(self.rng.randrange(1, 4)):
            if not self.store.has_room():
                return
            term = max(model.hard_state[0], 1)
            batch = stamp(self.batch(), term, model.last + 1, model.next_offset)
            log.append([batch])
            model.last += 1
            model.entries[model.last] = batch
            model.next_offset = BatchView(batch).next_offset

    def cut(self) -> None:
        picked = self.pick()
        if picked is None or picked[1].last < picked[1].first:
            return
        log, model = picked
        index = self.rng.randrange(model.first, model.last + 1)
        log.truncate_from(index)
        model.next_offset = BatchView(model.entries[index]).base_offset
        for gone in range(index, model.last + 1):
            del model.entries[gone]
        model.last = index - 1

    def compact(self) -> None:
        picked = self.pick()
        if picked is None:
            return
        log, model = picked
        terms = {index: log.term_at(index) for index in range(model.first - 1, model.last + 1)}
        wanted = self.rng.randrange(model.first - 1, model.last + 1)
        log.compact_to(wanted)
        assert log.first_index() <= wanted + 1 or log.first_index() == model.first
        model.term_before = terms[log.first_index() - 1]
        for gone in range(model.first, log.first_index()):
            del model.entries[gone]
        model.first = log.first_index()

    def vote(self) -> None:
        picked = self.pick()
        if picked is not None:
            log, model = picked
            model.hard_state = (
                model.hard_state[0] + self.rng.randrange(2),
                self.rng.randrange(4),
                self.rng.randrange(9),
            )
            log.set_hard_state(*model.hard_state)

    def snapshot(self) -> None:
        picked = self.pick()
        if picked is not None:
            log, model = picked
            data = self.rng.randbytes(self.rng.randrange(2000))
            saved = log.save_snapshot(data, model.last, max(log.term_at(model.last), 0), model.next_offset)
            self.saving.append((log.group, saved, data))

    def use_snapshot(self) -> None:
        for group, snapshot, data in self.saving:
            if snapshot.saved:
                self.store.groups[group].use_snapshot(snapshot)
                self.model[group].snapshot = data
        self.saving = [one for one in self.saving if not one[1].saved]

    def restart_log(self) -> None:
        picked = self.pick()
        if picked is None or self.rng.random() < 0.7:
            return
        log, model = picked
        last = model.last + self.rng.randrange(5)
        offset = model.next_offset + self.rng.randrange(50)
        log.reset(last, 7, offset)
        model.entries.clear()
        model.first, model.last, model.next_offset, model.term_before = last + 1, last, offset, 7

    def checkpoint(self) -> None:
        self.store.request_checkpoint()

    def take(self) -> None:
        if self.commit is None:
            self.commit = self.store.take_commit()
            if self.commit is not None:
                self.flying = [copy.deepcopy(self.model)]
        else:
            self.commit.perform(self.disk)
            self.store.committed(self.commit)
            self.commit = None
            self.durable = self.flying[0]
            self.flying = []

    def work(self) -> None:
        if self.chore is None:
            self.chore = self.store.take_chore()
        else:
            self.chore.perform(self.disk)
            self.store.done(self.chore)
            self.chore = None

    def crash(self) -> None:
        self.disk.lose_power(self.rng)
        self.reopen()

    def reopen(self) -> None:
        """Come back up, perhaps after going down again on the way."""
        for _ in range(self.rng.randrange(3)):
            self.disk.lose_power_after(self.rng.randrange(1, 20))
            try:
                open_store(self.disk, SMALL, self.rng)
            except PowerLoss:
                self.disk.lose_power(self.rng)
        self.disk.disarm()
        self.store = open_store(self.disk, SMALL, self.rng)
        assert self.store.notes == []
        self.commit = None
        self.chore = None
        self.saving = []
        fits = [model for model in [self.durable, *self.flying] if differences(self.store, model) == []]
        assert fits, differences(self.store, self.durable)
        self.model = copy.deepcopy(fits[0])
        self.durable = copy.deepcopy(fits[0])
        self.flying = []

    def check(self) -> None:
        assert differences(self.store, self.model) == []


def differences(store: Store, model: Model) -> list[str]:
    """How a store differs from a model, in words."""
    found: list[str] = []
    if sorted(store.groups) != sorted(model):
        return [f"groups {sorted(store.groups)} != {sorted(model)}"]
    for group, expected in model.items():
        log = store.groups[group]
        first_offset = (
            BatchView(expected.entries[expected.first]).base_offset if expected.entries else expected.next_offset
        )
        facts = {
            "first": (log.first_index(), expected.first),
            "last": (log.last_index(), expected.last),
            "next_offset": (log.next_offset(), expected.next_offset),
            "first_offset": (log.first_offset, first_offset),
            "hard_state": ((log.term, log.vote, log.commit), expected.hard_state),
            "term_before": (log.term_at(expected.first - 1), expected.term_before),
        }
        found += [f"group {group}: {name} is {got}, not {want}" for name, (got, want) in facts.items() if got != want]
        if found:
            continue
        if all_entries(log) != [expected.entries[index] for index in sorted(expected.entries)]:
            found.append(f"group {group}: entries differ")
        terms = {index: log.term_at(index) for index in expected.entries}
        if terms != {index: BatchView(batch).term for index, batch in expected.entries.items()}:
            found.append(f"group {group}: terms differ")
        if log.load_snapshot() != expected.snapshot:
            found.append(f"group {group}: snapshot differs")
    return found


def all_entries(log: GroupLog) -> list[bytes]:
    entries: list[bytes] = []
    index = log.first_index()
    while index <= log.last_index():
        batches = log.entries(index, log.last_index() + 1, 700)
        assert batches
        entries += batches
        index += len(batches)
    return entries


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 150), fuses=st.lists(st.integers(1, 60), max_size=4))
def test_what_was_committed_is_there_after_any_crash(seed: int, steps: int, fuses: list[int]) -> None:
    machine = Machine(seed)
    for fuse in [*fuses, 0]:
        if fuse:
            machine.disk.lose_power_after(fuse)
        try:
            for _ in range(steps):
                machine.step()
        except PowerLoss:
            pass
        machine.crash()
        machine.check()


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 200))
def test_a_flipped_bit_is_healed_or_reported_and_never_served(seed: int, steps: int) -> None:
    machine = Machine(seed)
    for _ in range(steps):
        machine.step()
    machine.disk.lose_power(machine.rng)
    where = machine.disk.flip(machine.rng)
    store = open_store(machine.disk, SMALL, machine.rng)
    assert any(tells_the_truth(store, model) for model in [machine.durable, *machine.flying]), where
    settle(store, machine.disk)
    again = open_store(machine.disk, SMALL, machine.rng)
    for group, log in store.groups.items():
        assert (again.groups[group].damage is None) == (log.damage is None), "damage is forgotten by a restart"


def settle(store: Store, disk: SimulatedDisk) -> None:
    """Write everything that is staged."""
    while True:
        commit = store.take_commit()
        if commit is not None:
            commit.perform(disk)
            store.committed(commit)
        chore = store.take_chore()
        if chore is not None:
            chore.perform(disk)
            store.done(chore)
        if commit is None and chore is None:
            return


def tells_the_truth(store: Store, model: Model) -> bool:
    """Whether a store serves only what the model has, and says so of every log that lacks some of it."""
    if sorted(store.groups) != sorted(model):
        return False
    for group, expected in model.items():
        log = store.groups[group]
        if (log.term, log.vote, log.commit) != expected.hard_state and not (log.damage and log.damage.everything):
            return False
        try:
            entries = all_entries(log)
        except DamageError:
            entries = all_entries_before(log, log.damage.first if log.damage else 0)
        wanted = [expected.entries[index] for index in sorted(expected.entries)]
        if entries != wanted[: len(entries)] or (len(entries) < len(wanted) and log.damage is None):
            return False
        try:
            if log.load_snapshot() != expected.snapshot:
                return False
        except DamageError:
            if log.damage is None:
                return False
    return True


def all_entries_before(log: GroupLog, index: int) -> list[bytes]:
    return [log.entries(one, one + 1, 1)[0] for one in range(log.first_index(), index)]
