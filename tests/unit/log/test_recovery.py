from __future__ import annotations

import random
from dataclasses import replace

import pytest

from flockmq.errors import FlockError
from flockmq.log.errors import DamageError
from flockmq.log.recovery import EVERYTHING, load_store, open_store
from flockmq.testing.simulation.disk import PowerLoss
from log_cases import SMALL, append, batch_of, commit, everything, fill, new_disk, opened, settle


def test_a_new_store_is_empty_and_durable_at_once() -> None:
    disk = new_disk()
    first = opened(disk)
    disk.lose_power(random.Random(1))
    second = opened(disk)
    assert first.identity == second.identity
    assert second.groups == {}


@pytest.mark.parametrize("call", range(1, 30))
def test_a_power_loss_while_a_store_is_made(call: int) -> None:
    disk = new_disk()
    disk.lose_power_after(call)
    try:
        opened(disk)
    except PowerLoss:
        disk.lose_power(random.Random(call))
    disk.disarm()
    store = opened(disk)
    stored = fill(store.create(1), 3)
    settle(store, disk)
    assert everything(opened(disk).groups[1]) == stored


def test_after_a_clean_stop_the_same_journal_goes_on() -> None:
    disk = new_disk()
    store = opened(disk)
    fill(store.create(1), 3)
    settle(store, disk)
    written = disk.bytes_written
    again = opened(disk)
    assert (again.journal, again.position, again.sequence) == (store.journal, store.position, store.sequence)
    assert again.has_spare
    assert disk.bytes_written == written, "a start after a clean stop writes nothing"


def test_everything_comes_back() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(7)
    fill(log, 20)
    settle(store, disk, checkpoint=True)
    log.truncate_from(15)
    append(log, batch_of(b"x"), term=3)
    log.compact_to(8)
    log.set_hard_state(5, 2, 14)
    commit(store, disk)
    disk.lose_power(random.Random(1))
    again = opened(disk).groups[7]
    assert everything(again) == everything(log)
    assert (again.first_index(), again.first_offset, again.last_index()) == (8, 14, 15)
    assert (again.term, again.vote, again.commit) == (5, 2, 14)
    assert [again.term_at(index) for index in (7, 8, 14, 15)] == [1, 1, 1, 3]
    assert again.damage is None


def test_small_logs_are_in_memory_after_a_start() -> None:
    disk = new_disk()
    store = opened(disk)
    stored = fill(store.create(1), 3)
    settle(store, disk, checkpoint=True)
    log = opened(disk, replace(SMALL, cache_bytes=4_096)).groups[1]
    disk.remove(log.path(log.segments[0].file_name()))
    assert everything(log) == stored, "nothing is read a second time"


def test_what_was_not_committed_is_gone() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    stored = fill(log, 3)
    commit(store, disk)
    fill(log, 3)
    assert everything(opened(disk).groups[1]) == stored


def test_a_torn_record_is_cut_and_the_journal_starts_over() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    stored = fill(log, 3)
    settle(store, disk)
    fill(log, 3)
    taken = store.take_commit()
    assert taken is not None
    disk.write_through(taken.path, taken.position, taken.record[:-100])
    again = opened(disk)
    assert (again.torn, again.notes) == (True, [])
    assert everything(again.groups[1]) == stored
    assert again.journal > store.journal
    third = opened(disk)
    assert not third.torn
    assert everything(third.groups[1]) == stored


def test_the_last_commit_torn_at_every_byte() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    stored = fill(log, 3)
    settle(store, disk)
    stored_after = stored + fill(log, 1)
    taken = store.take_commit()
    assert taken is not None
    for length in range(len(taken.record) + 1):
        disk.write_through(taken.path, taken.position, taken.record[:length].ljust(len(taken.record), b"\0"))
        loaded = load_store(disk, SMALL, EVERYTHING)
        assert loaded is not None
        found = loaded.store.groups[1]
        assert everything(found) == (stored_after if length == len(taken.record) else stored), length
        assert found.damage is None
        assert loaded.store.notes == []


def test_one_bad_manifest_is_no_harm() -> None:
    for name in ("manifest-a", "manifest-b"):
        disk = new_disk()
        store = opened(disk)
        stored = fill(store.create(1), 3)
        settle(store, disk, checkpoint=True)
        disk.write(name, 30, b"?")
        assert everything(opened(disk).groups[1]) == stored


def test_a_bad_manifest_is_replaced_before_the_other_one_goes_bad() -> None:
    disk = new_disk()
    store = opened(disk)
    stored = fill(store.create(1), 3)
    settle(store, disk, checkpoint=True)
    for name in ("manifest-a", "manifest-b"):
        disk.write(name, 30, b"?")
        again = opened(disk)
        assert again.notes == [f"{name} is damaged; its copy was used."]
        assert again.groups[1].damage is None
        assert everything(again.groups[1]) == stored


def test_two_manifests_that_differ_are_made_alike_before_anything_else() -> None:
    """A crash between the two left one older; its journal must not be missed when the newer one goes bad."""
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    fill(log, 3)
    settle(store, disk, checkpoint=True)
    old = disk.read("manifest-b", 0, 10**6)
    stored = fill(log, 3)
    settle(store, disk, checkpoint=True)
    disk.write("manifest-b", 0, old)
    disk.truncate("manifest-b", len(old))
    opened(disk)
    assert disk.read("manifest-a", 0, 10**6) == disk.read("manifest-b", 0, 10**6)
    disk.write("manifest-a", 30, b"?")
    again = opened(disk)
    assert everything(again.groups[1])[-3:] == stored
    assert again.groups[1].damage is None


def test_without_any_manifest_a_store_is_not_opened() -> None:
    disk = new_disk()
    store = opened(disk)
    fill(store.create(1), 3)
    settle(store, disk, checkpoint=True)
    for name in ("manifest-a", "manifest-b"):
        disk.write(name, 30, b"?")
    with pytest.raises(DamageError, match="Move the folder aside"):
        opened(disk)
    for name in ("manifest-a", "manifest-b"):
        disk.remove(name)
    with pytest.raises(DamageError, match="Move the folder aside"):
        opened(disk)


def test_a_store_of_a_newer_format_is_refused() -> None:
    disk = new_disk()
    opened(disk)
    from flockmq.log.checksum import seal_text

    for name in ("manifest-a", "manifest-b"):
        disk.write(name, 0, seal_text('{"format": 2}'))
        disk.truncate(name, len(seal_text('{"format": 2}')))
    with pytest.raises(FlockError, match="format 2") as refusal:
        opened(disk)
    assert not isinstance(refusal.value, DamageError), "nothing is wrong with it, and nobody may replace it"


def test_a_missing_journal_is_damage_of_every_group() -> None:
    disk = new_disk()
    store = opened(disk)
    for group in (1, 2):
        fill(store.create(group), 3)
    settle(store, disk, checkpoint=True)
    fill(store.groups[1], 3)
    commit(store, disk)
    disk.remove("journal-00000001")
    again = opened(disk)
    for group in (1, 2):
        damage = again.groups[group].damage
        assert damage is not None
        assert (damage.first, damage.everything) == (4, True)
    assert any("can't be read" in note for note in again.notes)


@pytest.mark.parametrize("spoil", ["remove", "cut"])
def test_a_segment_that_is_missing_or_short_is_damage(spoil: str) -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    stored = fill(log, 30)
    settle(store, disk, checkpoint=True)
    segment = log.segments[2]
    path = log.path(segment.file_name())
    if spoil == "remove":
        disk.remove(path)
        good = segment.first_index - 1
    else:
        disk.truncate(path, segment.length - 1)
        good = segment.next_index - 2
    again = opened(disk)
    found = again.groups[1]
    assert everything(found) == stored[:good]
    assert found.damage is not None
    assert (found.damage.first, found.damage.last) == (good + 1, 30)
    assert again.notes
    assert disk.names(found.folder) != [], "what can't be used is kept, for people to look at"
    third = opened(disk).groups[1]
    assert third.damage is not None
    assert third.damage.first == good + 1, "damage is not forgotten"


def test_the_newest_segment_is_verified_at_start() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    stored = fill(log, 10)
    settle(store, disk, checkpoint=True)
    last = log.segments[-1]
    disk.write(log.path(last.file_name()), 120, b"\xff")
    found = opened(disk).groups[1]
    assert found.damage is not None
    assert found.damage.first == last.first_index
    assert everything(found) == stored[: last.first_index - 1]


def test_loading_changes_nothing() -> None:
    disk = new_disk()
    store = opened(disk)
    fill(store.create(1), 30)
    settle(store, disk)
    fill(store.groups[1], 3)
    taken = store.take_commit()
    assert taken is not None
    disk.write_through(taken.path, taken.position, taken.record[:500])
    written, names = disk.bytes_written, disk.names("")
    for _ in range(2):
        loaded = load_store(disk, SMALL, EVERYTHING)
        assert loaded is not None
        assert loaded.store.torn
    assert (disk.bytes_written, disk.names("")) == (written, names)


def test_leftovers_are_swept() -> None:
    disk = new_disk()
    store = opened(disk)
    fill(store.create(1), 10)
    settle(store, disk, checkpoint=True)
    kept = disk.names("groups/0000000000000001")
    disk.write("groups/0000000000000001/00000000000000000099-77.log", 0, b"old")
    disk.write("groups/0000000000000002/00000000000000000000-1.log", 0, b"old")
    disk.write("groups/something else/file", 0, b"old")
    opened(disk)
    assert disk.names("groups/0000000000000001") == kept
    assert disk.names("groups/0000000000000002") == []


def test_file_numbers_are_never_used_twice() -> None:
    disk = new_disk()
    store = opened(disk)
    fill(store.create(1), 10)
    commit(store, disk)
    used = max(segment.number for segment in store.groups[1].segments)
    again = opened(disk)
    fill(again.groups[1], 10)
    assert next(one.number for one in again.groups[1].segments if one.first_index > 10) > used


def test_another_random_source_makes_another_store() -> None:
    assert open_store(new_disk(), SMALL, random.Random(5)).identity != opened(new_disk()).identity
