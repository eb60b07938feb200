"""The simulated disk: what survives a power loss, and what its faults look like to the log."""

from __future__ import annotations

import errno
import random

import pytest

from flockmq.log.disk import Disk
from flockmq.testing.simulation.disk import SECTOR, PowerLoss, SimulatedDisk

SEEDS = range(60)


def fresh(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed))


def crashed(disk: SimulatedDisk, seed: int) -> SimulatedDisk:
    disk.lose_power(random.Random(seed))
    return disk


def test_it_is_a_disk() -> None:
    disk: Disk = fresh()
    disk.write("a/one", 3, b"abc")
    assert disk.read("a/one", 0, 100) == b"\0\0\0abc"
    assert disk.read("a/one", 4, 1) == b"b"
    assert disk.size("a/one") == 6
    assert disk.size("a/two") == -1
    assert disk.names("") == ["a"]
    assert disk.names("a") == ["one"]
    disk.rename("a/one", "a/two")
    disk.truncate("a/two", 4)
    assert disk.read("a/two", 0, 100) == b"\0\0\0a"
    disk.remove("a/two")
    disk.remove("a/two")
    assert disk.names("") == []
    with pytest.raises(FileNotFoundError):
        disk.read("a/two", 0, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_synced_survives_a_power_loss(seed: int) -> None:
    disk = fresh()
    disk.write("a/one", 0, b"x" * 2_000)
    disk.sync("a/one")
    disk.sync_folder("a")
    disk.sync_folder("")
    disk.allocate("journal", 4_096)
    disk.write_through("journal", 512, b"j" * 700)
    disk.write("a/one", 2_000, b"y" * 2_000)
    crashed(disk, seed)
    assert disk.read("a/one", 0, 2_000) == b"x" * 2_000
    assert disk.read("journal", 0, 4_096) == bytes(512) + b"j" * 700 + bytes(4_096 - 1_212)


def test_what_was_not_synced_survives_wholly_partly_or_not_at_all() -> None:
    results = set()
    for seed in SEEDS:
        disk = fresh()
        disk.write("a", 0, b"0" * 3 * SECTOR)
        disk.sync("a")
        disk.sync_folder("")
        disk.write("a", 0, b"1" * 3 * SECTOR)
        data = crashed(disk, seed).read("a", 0, 10_000)
        sectors = {data[start : start + SECTOR] for start in range(0, len(data), SECTOR)}
        assert sectors <= {b"0" * SECTOR, b"1" * SECTOR}
        results.add(bytes(data[::SECTOR]))
    assert {b"000", b"111"} < results
    assert len(results) > 4


def test_a_name_that_was_not_synced_may_be_gone() -> None:
    kept = set()
    for seed in SEEDS:
        disk = fresh()
        disk.write("one", 0, b"1")
        disk.sync("one")
        disk.write("two", 0, b"2")
        disk.sync("two")
        disk.rename("two", "three")
        kept.add(tuple(crashed(disk, seed).names("")))
    assert kept == {(), ("one",), ("one", "two"), ("one", "three")}


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    seen = set()
    for seed in SEEDS:
        disk = fresh()
        disk.write("manifest", 0, b"old")
        disk.sync("manifest")
        disk.sync_folder("")
        disk.write("manifest.new", 0, b"new")
        disk.sync("manifest.new")
        disk.rename("manifest.new", "manifest")
        seen.add(crashed(disk, seed).read("manifest", 0, 10))
    assert seen == {b"old", b"new"}


def test_killing_the_process_loses_nothing() -> None:
    disk = fresh()
    disk.write("a", 0, b"abc")
    disk.kill()
    assert disk.read("a", 0, 10) == b"abc"


def test_power_lost_within_a_write_leaves_a_part_of_it() -> None:
    data = b"".join(b"%c" % (65 + number) * SECTOR for number in range(4))
    seen = set()
    for seed in range(300):
        disk = fresh(seed)
        disk.allocate("journal", 8 * SECTOR)
        disk.lose_power_after(1)
        with pytest.raises(PowerLoss):
            disk.write_through("journal", 100, data)
        left = crashed(disk, seed).read("journal", 100, len(data))
        assert all(mine in (theirs, 0) for mine, theirs in zip(left, data, strict=True))
        seen.add(left)
    assert bytes(len(data)) in seen
    assert any(left.startswith(data[:SECTOR]) for left in seen)
    assert any(left[0] == 0 and left.strip(b"\0") for left in seen), "later sectors without the first"


def test_a_failing_disk_fails_once_and_for_what_it_was_asked() -> None:
    disk = fresh()
    disk.fail_after(2)
    disk.write("a", 0, b"abc")
    with pytest.raises(OSError, match="Input/output") as caught:
        disk.sync("a")
    assert caught.value.errno == errno.EIO
    assert disk.failed
    # As on Linux: the cache still shows it, a second sync is glad to say yes, and the power loss shows the truth.
    assert disk.read("a", 0, 10) == b"abc"
    disk.sync("a")
    disk.sync_folder("")
    for seed in SEEDS:
        assert crashed(disk, seed).read("a", 0, 10) == b""


def test_a_full_disk_refuses_what_needs_room() -> None:
    disk = fresh()
    disk.allocate("journal", 4_096)
    disk.full = True
    disk.write_through("journal", 0, b"fits")
    with pytest.raises(OSError, match="No space"):
        disk.write("a", 0, b"abc")
    with pytest.raises(OSError, match="No space"):
        disk.allocate("b", 10)
    assert disk.names("") == ["journal"]


def test_a_flipped_bit_is_one_bit() -> None:
    for seed in SEEDS:
        disk = fresh()
        disk.allocate("journal", 4_096)
        disk.write_through("journal", 0, b"\xff" * 600)
        place = disk.flip(random.Random(seed))
        assert place.startswith("journal:")
        now = disk.read("journal", 0, 4_096)
        changed = [(mine ^ 255).bit_count() for mine in now[:600] if mine != 255]
        assert changed == [1]
        assert now[600:] == bytes(4_096 - 600)


def test_a_flip_in_the_tail_is_in_what_was_written_last() -> None:
    for seed in SEEDS:
        disk = fresh()
        disk.allocate("journal", 4_096)
        disk.write_through("journal", 0, b"\xff" * 600)
        disk.write_through("journal", 640, b"\xff" * 20)
        disk.flip(random.Random(seed), tail=True)
        now = disk.read("journal", 0, 4_096)
        assert now[:600] == b"\xff" * 600
        assert sum((mine ^ 255).bit_count() for mine in now[640:660]) == 1


def test_a_wiped_disk_is_empty() -> None:
    disk = fresh()
    disk.allocate("journal", 4_096)
    disk.wipe()
    assert disk.names("") == []
    assert disk.flip(random.Random(1)) == ""
    assert disk.flip(random.Random(1), tail=True) == ""
