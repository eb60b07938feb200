from __future__ import annotations

import errno

import pytest

from flockmq.errors import FlockError
from flockmq.log.batch import BatchView
from flockmq.log.errors import StoreDown
from flockmq.log.settings import StoreSettings
from flockmq.log.work import AllocateJournal, Checkpoint, SaveSnapshot
from log_cases import SMALL, append, batch_of, commit, everything, fill, new_disk, opened, settle


def test_one_commit_holds_everything_that_all_groups_staged() -> None:
    disk = new_disk()
    store = opened(disk)
    logs = [store.create(group) for group in range(5)]
    for log in logs:
        append(log, batch_of(b"a"), batch_of(b"b"))
        log.set_hard_state(3, 1, 2)
    taken = store.take_commit()
    assert taken is not None
    assert {row.group for row in taken.rows} == {0, 1, 2, 3, 4}
    assert store.take_commit() is None, "one at a time"
    append(logs[0], batch_of(b"c"))
    before = disk.syncs
    taken.perform(disk)
    assert disk.syncs == before + 1, "one durable write, however many groups"
    store.committed(taken)
    following = store.take_commit()
    assert following is not None
    assert [(row.group, row.first, row.last) for row in following.rows] == [(0, 3, 3)]


def test_appends_of_a_group_share_a_row() -> None:
    store = opened(new_disk())
    first, second = store.create(1), store.create(2)
    for _ in range(3):
        append(first, batch_of(b"a"))
        append(second, batch_of(b"b"))
    taken = store.take_commit()
    assert taken is not None
    assert [(row.group, row.first, row.last) for row in taken.rows if row.parts] == [(1, 1, 3), (2, 1, 3)]


def test_nothing_staged_is_nothing_to_commit() -> None:
    assert opened(new_disk()).take_commit() is None


def test_records_follow_on_each_other_and_switch_files() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    places = []
    for _ in range(40):
        append(log, batch_of(b"x" * 2000))
        taken = store.take_commit()
        if taken is None:
            settle(store, disk)
            continue
        places.append((taken.path, taken.position, len(taken.record)))
        taken.perform(disk)
        store.committed(taken)
        settle(store, disk)
    files = sorted({path for path, _, _ in places})
    assert len(files) > 2
    for path in files:
        position = 0
        for name, start, length in places:
            if name == path:
                assert start == position
                position += length
        assert position <= SMALL.journal_bytes
    left = [name for name in disk.names("") if name.startswith("journal-")]
    assert left == [files[-1], f"journal-{int(files[-1][8:]) + 1:08d}"], "old ones go, one is spare"


def test_commits_wait_when_two_files_are_full_and_go_on_after_the_checkpoint() -> None:
    disk = new_disk()
    store = opened(disk)
    settle(store, disk)
    log = store.create(1)
    while True:
        append(log, batch_of(b"x" * 2000))
        taken = store.take_commit()
        if taken is None:
            break
        taken.perform(disk)
        store.committed(taken)
    assert sum(disk.size(name) for name in disk.names("") if name.startswith("journal")) == 2 * SMALL.journal_bytes
    while store.has_room():
        append(log, batch_of(b"x" * 2000))
    stored = everything(log)
    assert store.take_commit() is None
    settle(store, disk)
    assert store.has_room()
    assert everything(opened(disk).groups[1]) == stored


def test_a_checkpoint_waits_for_the_commit_that_it_includes() -> None:
    disk = new_disk()
    store = opened(disk)
    settle(store, disk)
    fill(store.create(1), 5)
    store.request_checkpoint()
    taken = store.take_commit()
    assert taken is not None
    assert store.take_chore() is None
    taken.perform(disk)
    store.committed(taken)
    chore = store.take_chore()
    assert isinstance(chore, Checkpoint)
    assert store.take_chore() is None, "one at a time"


def test_a_checkpoint_includes_exactly_what_was_committed() -> None:
    disk = new_disk()
    store = opened(disk)
    settle(store, disk)
    log = store.create(1)
    stored = fill(log, 5)
    store.request_checkpoint()
    commit(store, disk)
    fill(log, 5)
    chore = store.take_chore()
    assert chore is not None
    chore.perform(disk)
    store.done(chore)
    assert everything(opened(disk).groups[1]) == stored


def test_a_log_cut_while_its_checkpoint_runs() -> None:
    disk = new_disk()
    store = opened(disk)
    settle(store, disk)
    log = store.create(1)
    stored = fill(log, 12)
    store.request_checkpoint()
    commit(store, disk)
    chore = store.take_chore()
    assert chore is not None
    log.truncate_from(9)
    stored = stored[:8] + append(log, batch_of(b"other" * 30), batch_of(b"new" * 30), term=2)
    chore.perform(disk)
    store.done(chore)
    assert everything(log) == stored
    settle(store, disk, checkpoint=True)
    assert everything(log) == stored
    assert everything(opened(disk).groups[1]) == stored


def test_entries_leave_memory_once_files_have_them() -> None:
    disk = new_disk()
    store = opened(disk, StoreSettings(journal_bytes=1 << 20, commit_bytes=1 << 19, cache_bytes=1000))
    log = store.create(1)
    stored = fill(log, 50)
    commit(store, disk)
    assert len(log.recent) == 50, "only the journal has them besides"
    settle(store, disk, checkpoint=True)
    assert sum(len(batch) for batch in log.recent.values()) <= 1000
    assert sorted(log.recent) == list(range(51 - len(log.recent), 51)), "the newest stay"
    assert everything(log) == stored


def test_chores_of_every_kind() -> None:
    disk = new_disk()
    store = opened(disk)
    first = store.take_chore()
    assert isinstance(first, AllocateJournal)
    first.perform(disk)
    store.done(first)
    log = store.create(1)
    log.save_snapshot(b"state", 0, 0, 0)
    second = store.take_chore()
    assert isinstance(second, SaveSnapshot)
    store.done(first)
    assert store.take_chore() is None, "only the chore that is under way ends"
    second.perform(disk)
    store.done(second)
    assert store.take_chore() is None


def test_groups_come_and_go() -> None:
    disk = new_disk()
    store = opened(disk)
    fill(store.create(1), 20)
    fill(store.create(2), 3)
    with pytest.raises(FlockError, match="has a log already"):
        store.create(2)
    settle(store, disk, checkpoint=True)
    store.remove(1)
    assert sorted(store.groups) == [2]
    settle(store, disk)
    assert disk.names("groups/0000000000000001") == []
    assert sorted(opened(disk).groups) == [2]
    again = store.create(1)
    assert (again.first_index(), again.last_index()) == (1, 0)


def test_a_failed_write_is_final() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(1)
    append(log, batch_of(b"x"))
    taken = store.take_commit()
    assert taken is not None
    disk.fail_after(1)
    with pytest.raises(OSError, match="Input/output") as failure:
        taken.perform(disk)
    store.failed(failure.value)
    assert "disk failed" in store.down
    assert store.take_commit() is None
    assert store.take_chore() is None
    with pytest.raises(StoreDown):
        append(log, batch_of(b"y"))
    with pytest.raises(StoreDown):
        log.set_hard_state(9, 9, 9)
    with pytest.raises(StoreDown):
        log.save_snapshot(b"", 1, 1, 1)


def test_idle_groups_cost_no_files() -> None:
    disk = new_disk()
    store = opened(disk, StoreSettings())
    for group in range(1000):
        store.create(group)
    settle(store, disk, checkpoint=True)
    assert disk.names("groups") == []
    assert len(opened(disk, StoreSettings()).groups) == 1000


def test_what_is_read_is_what_was_stamped() -> None:
    disk = new_disk()
    store = opened(disk)
    log = store.create(3)
    for number, batch in enumerate(fill(log, 9)):
        view = BatchView(batch)
        assert (view.index, view.base_offset, view.term) == (number + 1, 2 * number, 1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left"), "is full"),
        (OSError(errno.EIO, "I/O error"), "failed"),
    ],
)
def test_a_store_that_is_down_says_what_to_do(error: OSError, said: str) -> None:
    store = opened(new_disk())
    store.failed(error)
    assert f"The disk {said} " in store.down
    assert store.down.endswith("start the node again.")
