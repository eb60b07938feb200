from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flockmq.drivers.retained_db import APPLICATION_ID, FORMAT
from flockmq.drivers.retained_store import BATCH_TOPICS, RetainedStorage
from flockmq.mqtt.run import make_run
from flockmq.node.events import EventList
from flockmq.routing.buckets import Changes
from flockmq.routing.clock import stamp_at
from flockmq.routing.retained import RetainedStore

WALL_MS = 1_772_366_400_000
NODE = 0xFEDC_BA98_7654_3210  # beyond what SQLite's integers hold without a sign


class Disk:
    """A store with its file, through as many lives as a test wants."""

    def __init__(self, folder: Path, shared: bool = False, unsaved_max: int = 0) -> None:
        self.path = folder / "retained.db"
        self.shared = shared
        self.unsaved_max = unsaved_max
        self.now = 5_000
        self.wall_offset_ms = WALL_MS - self.now

    def live(self, act: Callable[[Disk], Awaitable[None]] | None = None) -> Disk:
        """Start, act, stop."""

        async def run() -> None:
            await self.start()
            if act is not None:
                await act(self)
            await self.storage.stop()

        asyncio.run(run())
        return self

    async def start(self) -> None:
        self.store = RetainedStore(0, 0, self.wall_offset_ms)
        self.store.origin = NODE
        if self.shared:
            self.store.share(NODE)
        if self.unsaved_max:
            self.store.unsaved = Changes(self.unsaved_max)
        self.events = EventList()
        self.storage = RetainedStorage(self.path, self.store, self.events, lambda: self.now, save_ms=3_600_000)
        await self.storage.open()

    def put(self, topic: bytes, payload: bytes, expires_at: int = 0) -> None:
        assert self.store.put(topic, make_run(4, 1, True, topic, payload, b"", expires_at, 3).alone(), self.now)

    def content(self) -> dict[bytes, bytes]:
        return {one.topic: one.run.payload(0) for one in self.store.match(b"#", self.now)}

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events.take()]

    def rows(self) -> dict[bytes, bytes | None]:
        """What the file has, when nobody has it open."""
        with sqlite3.connect(self.path) as db:
            found = dict(db.execute("SELECT topic, wire FROM retained").fetchall())
        db.close()
        return found


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def fill(disk: Disk) -> None:
    for number in range(50):
        disk.put(b"t/%d" % number, b"%d" % number)


def test_messages_are_there_again_as_they_were(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        for version, qos, properties in ((4, 0, b""), (4, 2, b""), (5, 1, b"\x01\x01\x26\0\x01k\0\x01v"), (5, 0, b"")):
            topic = b"%d/%d" % (version, qos)
            run = make_run(version, qos, True, topic, "é".encode(), properties, 0, 9).alone()
            assert disk.store.put(topic, run, disk.now)

    disk.live(act)
    before = {one.topic: one for one in disk.store.match(b"#", disk.now)}
    latest = disk.store.clock.latest
    disk.live()
    after = disk.store.match(b"#", disk.now)
    assert len(after) == len(before) == disk.storage.loaded == 4
    for message in after:
        old = before[message.topic]
        assert (message.run.wire, message.run.version, message.run.qos) == (old.run.wire, old.run.version, old.run.qos)
        assert (message.stamp, message.origin) == (old.stamp, NODE)
        assert message.run.parse(0) == old.run.parse(0)
    assert disk.store.clock.latest == latest
    assert disk.kinds() == []


def test_what_was_deleted_or_replaced_stays_so(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        await fill(disk)
        await disk.storage.flush()
        for number in range(40):
            disk.store.delete(b"t/%d" % number, disk.now)
        disk.put(b"t/41", b"new")
        disk.put(b"gone", b"x")
        disk.store.delete(b"gone", disk.now)

    disk.live(act)
    disk.live()
    assert len(disk.content()) == 10
    assert disk.content()[b"t/41"] == b"new"
    assert set(disk.rows()) == set(disk.content())


def test_with_other_nodes_deletions_are_kept_too(tmp_path: Path) -> None:
    disk = Disk(tmp_path, shared=True)

    async def act(disk: Disk) -> None:
        disk.put(b"a", b"1")
        disk.store.delete(b"a", disk.now)

    disk.live(act)
    version = disk.store.version(b"a")
    disk.live()
    assert (disk.content(), disk.store.version(b"a")) == ({}, version)
    disk.now += 8 * 86_400_000
    disk.live()
    assert disk.store.version(b"a") == 0
    assert disk.rows() == {}


def test_an_expiry_is_the_same_moment_after_a_restart_with_another_clock(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        disk.put(b"soon", b"x", disk.now + 1_000)
        disk.put(b"later", b"x", disk.now + 60_000)

    disk.live(act)
    disk.now, disk.wall_offset_ms = 77, disk.wall_offset_ms + disk.now + 2_000 - 77  # two seconds later
    disk.live()
    assert disk.content() == {b"later": b"x"}
    message = disk.store.get(b"later", disk.now)
    assert message is not None
    assert message.run.expires_at == disk.now + 58_000
    assert set(disk.rows()) == {b"later"}


def test_the_brokers_own_messages_are_not_kept(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        disk.store.put_system(b"$SYS/x", make_run(4, 0, True, b"$SYS/x", b"1"), disk.now)
        disk.put(b"$SYS/will", b"1")

    disk.live(act)
    assert disk.rows() == {}


def test_a_topic_that_changes_often_is_written_once(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        for number in range(1_000):
            disk.put(b"a", b"%d" % number)
            disk.put(b"b/%d" % (number % 3), b"%d" % number)
        await disk.storage.flush()
        assert disk.storage.saved == 4
        await disk.storage.flush()
        assert disk.storage.saved == 4

    disk.live(act)
    disk.live()
    assert disk.content()[b"a"] == b"999"


def test_many_and_large_messages_go_in_several_batches(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        for number in range(2 * BATCH_TOPICS + 5):
            disk.put(b"t/%d" % number, b"x")
        for number in range(3):
            disk.put(b"large/%d" % number, bytes((number + 1,)) * 5_000_000)

    disk.live(act)
    disk.live()
    assert len(disk.content()) == 2 * BATCH_TOPICS + 8
    assert disk.content()[b"large/2"] == b"\x03" * 5_000_000


def test_what_was_written_survives_a_kill(disk: Disk, tmp_path: Path) -> None:
    """The files as they lie on the disk while the broker runs, without its ever closing them."""
    other = Disk(tmp_path / "copy")

    async def act(disk: Disk) -> None:
        await fill(disk)
        await disk.storage.flush()
        other.path.parent.mkdir()
        for file in disk.path.parent.glob("retained.db*"):
            shutil.copy(file, other.path.parent)

    disk.live(act)
    other.live()
    assert other.content() == disk.content()
    assert other.kinds() == []


def test_only_one_process_has_the_file(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        await fill(disk)
        await disk.storage.flush()
        with pytest.raises(sqlite3.OperationalError):
            sqlite3.connect(disk.path, timeout=0).execute("SELECT count(*) FROM retained")

    disk.live(act)


# --- damage ---


def aside(disk: Disk) -> list[str]:
    return sorted(file.name for file in disk.path.parent.glob("*.damaged-*") if "-wal" not in file.name)


async def nothing(disk: Disk) -> None:
    await disk.storage.flush()


@pytest.mark.parametrize("content", [b"garbage " * 1_000, b"SQLite format 3\0" + bytes(5_000)])
def test_a_file_that_is_no_database_is_set_aside(disk: Disk, content: bytes) -> None:
    disk.path.write_bytes(content)
    disk.live(fill)
    assert disk.kinds() == ["retained_damaged"]
    assert aside(disk) == ["retained.db.damaged-1"]
    assert (disk.path.parent / "retained.db.damaged-1").read_bytes() == content
    assert disk.storage.problem == ""
    disk.live()
    assert len(disk.content()) == 50
    assert disk.kinds() == []
    disk.path.write_bytes(content)
    disk.live()
    assert aside(disk) == ["retained.db.damaged-1", "retained.db.damaged-2"]


def test_what_can_be_read_of_a_damaged_file_is_kept(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        for number in range(20_000):
            disk.put(b"t/%06d" % number, b"x" * 50)

    disk.live(act)
    data = bytearray(disk.path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 40 * 4096] = b"\xa5" * (40 * 4096)
    disk.path.write_bytes(data)
    disk.live(nothing)
    assert disk.kinds() == ["retained_damaged"]
    kept = disk.content()
    assert 2_000 <= len(kept) < 20_000
    disk.live()
    assert disk.content() == kept
    assert disk.kinds() == []


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA application_id = 7",
        f"PRAGMA user_version = {FORMAT + 1}",
        "DROP TABLE retained; CREATE TABLE other (x)",
    ],
)
def test_somebody_elses_database_and_a_newer_format_are_set_aside(disk: Disk, statement: str) -> None:
    disk.live(fill)
    db = sqlite3.connect(disk.path)
    db.executescript(statement)
    db.close()
    disk.live(nothing)
    assert disk.kinds() == ["retained_damaged"]
    assert aside(disk) == ["retained.db.damaged-1"]
    assert disk.storage.problem == ""


def test_rows_that_make_no_sense_are_left_out_and_counted(disk: Disk) -> None:
    disk.live(fill)
    stamp = stamp_at(WALL_MS)
    good = make_run(4, 0, True, b"good", b"x").wire
    rows: list[tuple[object, ...]] = [
        (b"a", stamp, 1, 0, 4, b"junk"),
        (b"b", stamp, 1, 0, 4, good),  # of another topic
        (b"c", -5, 1, 0, 4, make_run(4, 0, True, b"c", b"x").wire),
        (b"d", "text", 1, 0, 4, None),
        ("e", stamp, 1, 0, 4, None),
        (b"f", stamp, 1, 0, 9, make_run(4, 0, True, b"f", b"x").wire),
        (b"g", stamp, 1, 0, 4, "text"),
        (b"good", stamp, -1, 0, 4, good),
    ]
    db = sqlite3.connect(disk.path)
    db.executemany("INSERT INTO retained VALUES (?, ?, ?, ?, ?, ?)", rows)
    db.commit()
    db.close()
    disk.live(nothing)
    assert len(disk.content()) == 51
    (event,) = disk.events.take()
    assert (event.kind, event.fields["rows"]) == ("retained_rows_unreadable", 7)
    good_one = disk.store.message(b"good")
    assert good_one is not None
    assert good_one.origin == (1 << 64) - 1


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return Disk(tmp_path_factory.mktemp("sound")).live(fill).path.read_bytes()


@settings(max_examples=settings().max_examples // 4)
@given(data=st.binary(max_size=300), at=st.integers(0, 12_000), cut=st.booleans())
@example(data=b"\x7f", at=4110, cut=False)  # a number that has become text, and no UTF-8
@example(data=b"\xe9", at=4140, cut=False)
@example(data=b"\x05", at=47, cut=False)  # a format that SQLite does not know
def test_no_bytes_in_the_file_stop_the_start(sound_file: bytes, data: bytes, at: int, cut: bool) -> None:
    with TemporaryDirectory() as folder:
        disk = Disk(Path(folder))
        content = sound_file
        at %= len(content)
        disk.path.write_bytes(content[:at] + data + (b"" if cut else content[at + len(data) :]))
        disk.live(fill)
        disk.live()
        assert len(disk.content()) >= 50
        assert disk.storage.problem == ""


# --- a disk that fails ---


def test_a_file_that_can_not_be_opened_means_memory_only_until_it_can(disk: Disk) -> None:
    disk.live(fill)
    hidden = disk.path.rename(disk.path.with_name("hidden"))
    disk.path.mkdir()

    async def act(disk: Disk) -> None:
        assert "in memory only" in disk.storage.problem
        disk.put(b"t/1", b"changed meanwhile")
        disk.store.delete(b"t/2", disk.now)
        disk.put(b"new", b"x")
        await disk.storage.flush()
        assert disk.storage.problem
        assert disk.kinds() == ["retained_not_saved"]
        disk.path.rmdir()
        hidden.rename(disk.path)
        await disk.storage.flush()
        assert disk.storage.problem == ""
        assert disk.kinds() == ["retained_saved_again"]
        assert len(disk.content()) == 50
        assert disk.content()[b"t/1"] == b"changed meanwhile"

    disk.live(act)
    kept = disk.content()
    disk.live()
    assert disk.content() == kept
    assert b"t/2" not in kept


def test_a_full_disk_loses_nothing_that_memory_has(disk: Disk) -> None:
    async def act(disk: Disk) -> None:
        await fill(disk)
        await disk.storage.flush()
        db = disk.storage._db
        assert db is not None
        db._db.execute("PRAGMA max_page_count = 5")  # SQLite's own way to find a disk full
        for number in range(200):
            disk.put(b"t/%d" % number, b"x" * 1_000)
        disk.store.delete(b"t/0", disk.now)
        await disk.storage.flush()
        assert "full" in disk.storage.problem
        assert disk.kinds() == ["retained_not_saved"]
        assert len(disk.content()) == 199
        disk.put(b"more", b"x")
        await disk.storage.flush()  # the file is opened again, without that limit
        assert disk.storage.problem == ""
        assert disk.kinds() == ["retained_saved_again"]

    disk.live(act)
    kept = disk.content()
    disk.live()
    assert disk.content() == kept
    assert len(kept) == 200


def test_too_many_waiting_names_have_everything_written_anew(tmp_path: Path) -> None:
    disk = Disk(tmp_path, unsaved_max=100)

    async def act(disk: Disk) -> None:
        await fill(disk)
        await disk.storage.flush()
        for number in range(3 * BATCH_TOPICS):
            disk.put(b"many/%d" % number, b"x")
        for number in range(25):
            disk.store.delete(b"t/%d" % number, disk.now)
        await disk.storage.flush()

    disk.live(act)
    kept = disk.content()
    assert len(kept) == 25 + 3 * BATCH_TOPICS
    assert set(disk.rows()) == set(kept)
    disk.live()
    assert disk.content() == kept


def test_a_clock_behind_the_newest_message_is_told(disk: Disk) -> None:
    disk.live(fill)
    disk.wall_offset_ms -= 3_600_000
    disk.live()
    (event,) = disk.events.take()
    assert event.kind == "retained_clock_behind"
    assert 3_500_000 < int(str(event.fields["behind_ms"])) <= 3_600_001
    assert len(disk.content()) == 50


def test_the_file_says_what_it_is(disk: Disk) -> None:
    disk.live(fill)
    db = sqlite3.connect(disk.path)
    assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_saving_goes_by_itself(tmp_path: Path) -> None:
    async def run() -> None:
        store = RetainedStore(0, 0, WALL_MS)
        storage = RetainedStorage(tmp_path / "retained.db", store, EventList(), lambda: 0, save_ms=1)
        await storage.open()
        store.put(b"a", make_run(4, 0, True, b"a", b"x").alone(), 0)
        while not storage.saved:  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.001)
        await storage.stop()

    asyncio.run(run())
