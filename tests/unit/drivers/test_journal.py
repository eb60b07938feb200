from __future__ import annotations

import asyncio
import errno
import random
import threading
from pathlib import Path

import pytest

from flockmq.drivers.direct import BLOCK, open_direct
from flockmq.drivers.disk import FileDisk
from flockmq.drivers.journal import JournalDriver, open_disk
from flockmq.drivers.kernel_writes import kernel_writes
from flockmq.log.errors import StoreDown
from flockmq.log.group import GroupLog
from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.log.work import Commit
from integration.support.node import until
from log_cases import SMALL, append, batch_of, everything, files_up_to, fill


class Driven:
    """A store with its driver; tells what became durable."""

    def __init__(self, disk: FileDisk, settings: StoreSettings = SMALL) -> None:
        self.disk = disk
        self.store = open_store(disk, settings, random.Random(1))
        self.commits: list[Commit] = []
        self.failures: list[str] = []
        self.told: list[str] = []
        """Of both kinds, in order."""
        self.witnessed: list[int] = []
        self.changed = asyncio.Event()
        self.thread = threading.current_thread()
        self.driver = JournalDriver(self.store, disk, self.witnessed.append, self.on_committed, self.on_failed)

    def on_committed(self, commit: Commit) -> None:
        assert threading.current_thread() is self.thread, "completions belong to the event loop"
        assert self.witnessed[-1] == commit.sequence, "the witness knows of a commit before it is acknowledged"
        self.commits.append(commit)
        self.told.append("committed")
        self.changed.set()

    def on_failed(self, reason: str) -> None:
        assert threading.current_thread() is self.thread
        self.failures.append(reason)
        self.told.append("failed")
        self.changed.set()

    async def durable(self, group: int, index: int) -> None:
        while not any(row.group == group and row.last >= index for commit in self.commits for row in commit.rows):
            self.changed.clear()
            await self.changed.wait()

    async def fill(self, log: GroupLog, commits: int) -> None:
        """Commit so often, three batches at a time."""
        for _ in range(commits):
            fill(log, 3)
            self.driver.kick()
            await self.durable(log.group, log.last_index())

    async def has_spare(self) -> None:
        """Wait for the next journal file: what it takes to make it is not what the test is about."""
        await until(lambda: self.store.has_spare)

    async def failed(self) -> None:
        while not self.failures:
            self.changed.clear()
            await self.changed.wait()


async def test_what_is_staged_becomes_durable_and_comes_back(tmp_path: Path) -> None:
    driven = Driven(FileDisk(tmp_path))
    log = driven.store.create(1)
    await driven.fill(log, 40)
    stored = everything(log)
    assert driven.driver.commits == len(driven.commits)
    assert driven.store.journal > 1, "checkpoints ran beside"
    await driven.driver.close()
    store, disk = open_disk(tmp_path, SMALL)
    assert everything(store.groups[1]) == stored
    assert store.notes == []
    disk.close()


class CountingDisk(FileDisk):
    """Counts what it is asked to write itself."""

    def __init__(self, root: Path, *, kernel_writes: bool = True) -> None:
        super().__init__(root, kernel_writes=kernel_writes)
        self.written: list[str] = []

    def write_through(self, path: str, position: int, data: bytes) -> None:
        self.written.append(path)
        super().write_through(path, position, data)


async def need_kernel_writes(folder: Path) -> None:
    """Skip where the kernel can't write by itself."""
    (folder / "probe").write_bytes(bytes(BLOCK))
    file = open_direct(folder / "probe")
    kernel = kernel_writes(asyncio.get_running_loop(), lambda _: None)
    if kernel is None or file is None:
        pytest.skip("the kernel of this machine, or this file system, writes nothing by itself")
    await kernel.close()
    file.close()


async def test_a_thread_writes_only_what_begins_a_journal_file(tmp_path: Path) -> None:
    await need_kernel_writes(tmp_path)
    disk = CountingDisk(tmp_path)
    driven = Driven(disk)
    log = driven.store.create(1)
    await driven.fill(log, 40)
    await driven.driver.close()
    assert len(disk.written) == len(set(disk.written)) < len(driven.commits)


async def test_a_thread_writes_all_if_that_is_wanted(tmp_path: Path) -> None:
    disk = CountingDisk(tmp_path, kernel_writes=False)
    driven = Driven(disk)
    log = driven.store.create(1)
    await driven.fill(log, 10)
    await driven.driver.close()
    await driven.driver.close()
    assert len(disk.written) == len(driven.commits) == 10


async def test_a_write_that_the_kernel_could_not_do_is_final_and_told_once(tmp_path: Path) -> None:
    await need_kernel_writes(tmp_path)
    driven = Driven(FileDisk(tmp_path))
    log = driven.store.create(1)
    driven.driver.kick()
    await driven.durable(1, 0)
    await driven.has_spare()
    commits = len(driven.commits)
    with files_up_to(BLOCK):
        fill(log, 3, size=BLOCK // 2)
        driven.driver.kick()
        await driven.failed()
    assert "File too large" in driven.failures[0]
    assert len(driven.commits) == commits
    with pytest.raises(StoreDown, match="disk failed"):
        append(log, batch_of(b"x"))
    await driven.driver.close()
    assert len(driven.failures) == 1


async def test_nothing_counts_that_the_kernel_wrote_after_a_chore_failed(tmp_path: Path) -> None:
    await need_kernel_writes(tmp_path)
    disk = StubbornDisk(tmp_path, kernel_writes=True)
    driven = Driven(disk)
    disk.may_write.set()
    log = driven.store.create(1)
    driven.driver.kick()
    await driven.durable(1, 0)
    await driven.has_spare()
    disk.full = True
    driven.store.request_checkpoint()
    driven.driver.kick()  # the checkpoint begins, and fails in its thread
    append(log, batch_of(b"x"))
    driven.driver.kick()  # while the kernel writes this
    await driven.failed()
    await driven.driver.close()
    assert driven.told.index("failed") == len(driven.told) - 1


class StubbornDisk(FileDisk):
    """Lets durable writes wait until they may go on, or fail; has no room for others when full."""

    def __init__(self, root: Path, *, kernel_writes: bool = False) -> None:
        super().__init__(root, kernel_writes=kernel_writes)
        self.writing = threading.Event()
        self.may_write = threading.Event()
        self.broken = False
        self.full = False

    def write_through(self, path: str, position: int, data: bytes) -> None:
        self.writing.set()
        self.may_write.wait()
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().write_through(path, position, data)

    def write(self, path: str, position: int, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, position, data)


async def test_everything_that_arrives_during_a_write_goes_with_the_next(tmp_path: Path) -> None:
    disk = StubbornDisk(tmp_path)
    driven = Driven(disk)
    logs = [driven.store.create(group) for group in range(5)]
    driven.driver.kick()
    await asyncio.to_thread(disk.writing.wait)
    for _ in range(4):
        for log in logs:
            append(log, batch_of(b"x"))
            driven.driver.kick()
    assert driven.commits == [], "the loop goes on while the disk writes"
    disk.may_write.set()
    for log in logs:
        await driven.durable(log.group, 4)
    assert len(driven.commits) == 2
    await driven.driver.close()


async def test_a_failed_write_is_final_and_told_once(tmp_path: Path) -> None:
    disk = StubbornDisk(tmp_path)
    driven = Driven(disk)
    log = driven.store.create(1)
    driven.driver.kick()
    disk.broken = True
    disk.may_write.set()
    await driven.failed()
    assert "Input/output error" in driven.failures[0]
    driven.driver.kick()
    assert driven.store.down
    assert driven.commits == []
    with pytest.raises(StoreDown, match="disk failed"):
        append(log, batch_of(b"x"))
    await driven.driver.close()
    assert len(driven.failures) == 1


async def test_a_failed_checkpoint_is_final_too(tmp_path: Path) -> None:
    disk = StubbornDisk(tmp_path)
    driven = Driven(disk)
    disk.may_write.set()
    disk.full = True
    fill(driven.store.create(1), 3)
    driven.store.request_checkpoint()
    driven.driver.kick()
    await driven.failed()
    assert "No space left" in driven.failures[0]
    await driven.driver.close()


async def test_closing_brings_the_files_up_to_date(tmp_path: Path) -> None:
    driven = Driven(FileDisk(tmp_path))
    log = driven.store.create(1)
    fill(log, 8)
    await driven.driver.close()
    assert (tmp_path / log.path(log.segments[0].file_name())).stat().st_size == log.segments[0].length
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("flockmq-journal")]


async def test_groups_with_much_and_with_little_to_be_written_share_a_checkpoint(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    driven = Driven(disk, StoreSettings())
    stored = {
        group: fill(driven.store.create(group), 3, size=size) for group, size in enumerate((9, 1 << 20, 99, 1 << 20))
    }
    await driven.driver.close()
    store, disk = open_disk(tmp_path, StoreSettings())
    assert {group: everything(store.groups[group]) for group in stored} == stored
    disk.close()


async def test_without_a_checkpoint_closing_still_commits(tmp_path: Path) -> None:
    driven = Driven(FileDisk(tmp_path))
    log = driven.store.create(1)
    stored = fill(log, 8)
    await driven.driver.close(checkpoint=False)
    assert not (tmp_path / "groups").exists()
    store, disk = open_disk(tmp_path, SMALL)
    assert everything(store.groups[1]) == stored
    disk.close()
