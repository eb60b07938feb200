from __future__ import annotations

import random
import stat
import threading
from pathlib import Path

import pytest

from flockmq.drivers.disk import FileDisk
from flockmq.log.disk import Disk
from flockmq.log.recovery import open_store
from flockmq.testing.simulation.disk import SimulatedDisk
from log_cases import SMALL, everything, fill


@pytest.fixture
def disk(tmp_path: Path) -> FileDisk:
    return FileDisk(tmp_path / "store", open_files_max=4)


def test_both_disks_behave_the_same(disk: FileDisk) -> None:
    """What the simulator proves holds for real files only if they answer alike."""
    rng = random.Random(1)
    other = SimulatedDisk(random.Random(2))
    paths = [f"{folder}{name}" for folder in ("", "a/", "a/b/") for name in ("x", "y", "z")]
    for _ in range(600):
        path = rng.choice(paths)
        number = rng.randrange(2000)
        data = rng.randbytes(rng.randrange(300))
        call = rng.randrange(8)
        outcomes = []
        for one in (disk, other):
            assert isinstance(one, (FileDisk, SimulatedDisk))
            outcomes.append(act(one, call, path, number, data, paths[number % len(paths)]))
        assert outcomes[0] == outcomes[1], (call, path)
    disk.close()


def act(disk: Disk, call: int, path: str, number: int, data: bytes, other: str) -> object:
    try:
        if call == 0:
            disk.write(path, number, data)
        elif call == 1:
            disk.truncate(path, min(number, max(disk.size(path), 0)))
        elif call == 2:
            disk.sync(path)
            disk.sync_folder(path.rpartition("/")[0])
        elif call == 3:
            disk.remove(path)
        elif call == 4:
            disk.allocate(path, number)
        elif call == 5 and disk.size(path) >= 0 and path.rpartition("/")[0] == other.rpartition("/")[0]:
            disk.rename(path, other)
        elif call == 6 and disk.size(path) >= number + len(data):
            disk.write_through(path, number, data)
        folder = path.rpartition("/")[0]
        files = [name for name in disk.names(folder) if disk.size(f"{folder}/{name}" if folder else name) >= 0]
        return disk.read(path, number // 2, 500), disk.size(path), [name for name in files if name in "xyz"]
    except FileNotFoundError:
        return "not found"


def test_few_files_stay_open(disk: FileDisk) -> None:
    before = descriptors()
    for number in range(50):
        disk.write(f"groups/{number}/file", 0, b"x")
        disk.sync(f"groups/{number}/file")
    assert disk.open_files <= 4
    assert descriptors() <= before + 4
    for number in range(50):
        assert disk.read(f"groups/{number}/file", 0, 10) == b"x"
    disk.close()
    assert disk.open_files == 0


def descriptors() -> int:
    """Open files of this process, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def test_a_file_in_use_is_not_closed_by_others(disk: FileDisk) -> None:
    """Many threads, few descriptors: nobody reads from a file that is not the one that was meant."""
    for number in range(40):
        disk.write(str(number), 0, b"%05d" % number * 100)
    wrong: list[int] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(300):
            number = rng.randrange(40)
            if disk.read(str(number), 0, 500) != b"%05d" % number * 100:
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    disk.close()
    assert wrong == []


def test_an_allocated_file_has_its_blocks(disk: FileDisk) -> None:
    disk.allocate("journal", 5 * 1024 * 1024)
    found = (disk.root / "journal").stat()
    assert found.st_size == 5 * 1024 * 1024
    assert found.st_blocks * 512 >= found.st_size, "no holes: writing into it allocates nothing"
    disk.write_through("journal", 1000, b"hello")
    assert disk.read("journal", 999, 7) == b"\0hello\0"
    disk.close()


def test_only_the_owner_may_read(disk: FileDisk) -> None:
    disk.write("groups/1/file", 0, b"x")
    disk.allocate("journal", 4096)
    for path in ("groups/1/file", "journal"):
        assert stat.S_IMODE((disk.root / path).stat().st_mode) == 0o600
    for folder in ("", "groups", "groups/1"):
        assert stat.S_IMODE((disk.root / folder).stat().st_mode) == 0o700
    disk.close()


def test_a_folder_that_can_only_be_read_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello")
    (tmp_path / "file").chmod(0o400)
    disk = FileDisk(tmp_path)
    assert disk.read("file", 1, 3) == b"ell"
    disk.close()


def test_a_store_on_real_files(disk: FileDisk) -> None:
    store = open_store(disk, SMALL, random.Random(1))
    log = store.create(1)
    stored: list[bytes] = []
    for _ in range(20):
        stored += fill(log, 5)
        while True:
            work = store.take_commit()
            if work is not None:
                work.perform(disk)
                store.committed(work)
            chore = store.take_chore()
            if chore is not None:
                chore.perform(disk)
                store.done(chore)
            if work is None and chore is None:
                break
    assert everything(log) == stored
    disk.close()
    again = FileDisk(disk.root)
    found = open_store(again, SMALL, random.Random(1))
    assert everything(found.groups[1]) == stored
    assert found.notes == []
    again.close()


def test_a_rename_or_removal_leaves_no_open_file_behind_that_a_reader_used_meanwhile(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write into the old file would be lost: it has no name any more."""
    replace, unlink = Path.replace, Path.unlink

    def replace_while_read(old: Path, new: Path) -> Path:
        assert (disk.read("a/x", 0, 3), disk.read("a/x.new", 0, 3)) == (b"old", b"new")
        return replace(old, new)

    def unlink_while_read(path: Path, missing_ok: bool = False) -> None:
        assert disk.read("a/x", 0, 3) == b"new"
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "replace", replace_while_read)
    monkeypatch.setattr(Path, "unlink", unlink_while_read)
    disk.write("a/x", 0, b"old")
    disk.write("a/x.new", 0, b"new")
    disk.rename("a/x.new", "a/x")
    disk.write("a/x.new", 0, b"else")
    disk.write("a/x", 3, b" and more")
    assert (disk.root / "a/x").read_bytes() == b"new and more"
    disk.remove("a/x")
    disk.write("a/x", 0, b"again")
    assert (disk.root / "a/x").read_bytes() == b"again"
    disk.close()
