"""What a damaged journal record does to the logs that it concerned, and to those that it did not."""

from __future__ import annotations

from flockmq.log.group import GroupLog
from flockmq.log.recovery import EVERYTHING, load_store
from flockmq.log.store import Store
from flockmq.log.work import Commit
from flockmq.testing.simulation.disk import SimulatedDisk
from log_cases import SMALL, append, batch_of, commit, everything, fill, new_disk, opened


class Journal:
    """A store with two logs; ``spoil`` damages a commit's data of one group, or all that says whom it concerned."""

    def __init__(self) -> None:
        self.disk: SimulatedDisk = new_disk()
        self.store: Store = opened(self.disk)
        self.first: GroupLog = self.store.create(1)
        self.second: GroupLog = self.store.create(2)
        self.stored = fill(self.first, 3)
        fill(self.second, 3)
        commit(self.store, self.disk)

    def commit(self) -> Commit:
        return commit(self.store, self.disk)

    def spoil(self, taken: Commit, group: int) -> None:
        row = next(row for row in taken.rows if row.group == group and row.parts)
        self.disk.write_through(taken.path, taken.position + row.at + 20, b"\xde\xad")

    def spoil_all(self, taken: Commit) -> None:
        self.disk.write_through(taken.path, taken.position, bytes(len(taken.record)))

    def load(self) -> Store:
        loaded = load_store(self.disk, SMALL, EVERYTHING)
        assert loaded is not None
        return loaded.store


def damage_of(log: GroupLog) -> tuple[int, int, bool] | None:
    return None if log.damage is None else (log.damage.first, log.damage.last, log.damage.everything)


def test_lost_batches_concern_their_group_only() -> None:
    journal = Journal()
    fill(journal.first, 2)
    fill(journal.second, 2)
    taken = journal.commit()
    fill(journal.first, 1)
    journal.commit()
    journal.spoil(taken, 1)
    found = journal.load()
    assert everything(found.groups[1]) == journal.stored
    assert damage_of(found.groups[1]) == (4, 6, False), "entry 6 has a hole before it"
    assert everything(found.groups[2]) == everything(journal.second)
    assert found.groups[2].damage is None


def test_votes_come_back_even_when_batches_are_lost() -> None:
    journal = Journal()
    fill(journal.first, 1)
    journal.first.set_hard_state(8, 2, 1)
    taken = journal.commit()
    journal.spoil(taken, 1)
    found = journal.load().groups[1]
    assert (found.term, found.vote, found.commit) == (8, 2, 1)


def test_a_cut_below_the_hole_makes_it_harmless() -> None:
    journal = Journal()
    fill(journal.first, 2)
    taken = journal.commit()
    journal.first.truncate_from(4)
    journal.stored += append(journal.first, batch_of(b"other leader"), term=2)
    journal.commit()
    journal.spoil(taken, 1)
    found = journal.load().groups[1]
    assert found.damage is None
    assert everything(found) == journal.stored


def test_a_cut_above_the_hole_does_not() -> None:
    journal = Journal()
    fill(journal.first, 3)
    taken = journal.commit()
    journal.first.truncate_from(6)
    journal.commit()
    journal.spoil(taken, 1)
    found = journal.load().groups[1]
    assert everything(found) == journal.stored
    assert damage_of(found) == (4, 6, False)


def test_a_snapshot_that_replaces_the_log_makes_it_harmless() -> None:
    journal = Journal()
    fill(journal.first, 2)
    taken = journal.commit()
    journal.first.reset(50, 3, 900)
    stored = append(journal.first, batch_of(b"x"), term=3)
    journal.commit()
    journal.spoil(taken, 1)
    found = journal.load().groups[1]
    assert found.damage is None
    assert everything(found) == stored


def test_a_record_that_is_gone_makes_every_group_suspect() -> None:
    journal = Journal()
    fill(journal.second, 2)
    taken = journal.commit()
    fill(journal.first, 1)
    journal.commit()
    journal.spoil_all(taken)
    found = journal.load()
    assert damage_of(found.groups[1]) == (4, 4, True), "a cut may be among what is lost: nothing more is taken"
    assert damage_of(found.groups[2]) == (4, 0, True)
    assert everything(found.groups[1]) == journal.stored


def test_after_a_lost_record_a_cut_does_not_make_anything_certain() -> None:
    """The lost record may have replaced the very entries that the cut leaves."""
    journal = Journal()
    fill(journal.second, 2)
    taken = journal.commit()
    journal.first.truncate_from(3)
    append(journal.first, batch_of(b"other leader"), term=2)
    journal.commit()
    journal.spoil_all(taken)
    found = journal.load().groups[1]
    assert damage_of(found) == (4, 3, True)
    assert everything(found) == journal.stored


def test_a_group_made_after_the_loss_is_sound() -> None:
    journal = Journal()
    fill(journal.second, 2)
    taken = journal.commit()
    third = journal.store.create(3)
    stored = fill(third, 2)
    journal.commit()
    journal.spoil_all(taken)
    found = journal.load()
    assert found.groups[3].damage is None
    assert everything(found.groups[3]) == stored


def test_a_group_removed_after_the_loss_stays_removed() -> None:
    journal = Journal()
    fill(journal.second, 2)
    taken = journal.commit()
    journal.store.remove(2)
    journal.commit()
    journal.spoil_all(taken)
    assert sorted(journal.load().groups) == [1]


def test_damage_is_noted_and_repaired_over_restarts() -> None:
    journal = Journal()
    journal.first.note_damage(2, "because")
    journal.commit()
    found = opened(journal.disk)
    assert damage_of(found.groups[1]) == (2, 3, False)
    found.groups[1].repaired()
    commit(found, journal.disk)
    assert opened(journal.disk).groups[1].damage is None


def test_a_compaction_behind_the_hole() -> None:
    journal = Journal()
    fill(journal.first, 2)
    taken = journal.commit()
    fill(journal.first, 20)
    journal.commit()
    journal.first.compact_to(12)
    journal.commit()
    journal.spoil(taken, 1)
    found = journal.load().groups[1]
    assert found.first_index() == journal.first.first_index()
    assert found.last_index() == found.first_index() - 1
    assert found.damage is not None
    assert found.damage.last == 25
