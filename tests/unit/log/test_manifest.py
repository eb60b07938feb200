from __future__ import annotations

import json

from flockmq.log.checksum import open_text, seal_text
from flockmq.log.manifest import log_from, manifest_parts, read_manifest
from flockmq.log.state import Snapshot
from log_cases import append, batch_of, fill, new_disk, opened, settle


def test_a_log_is_described_completely() -> None:
    store = opened(new_disk())
    log = store.create(5)
    fill(log, 20)
    append(log, batch_of(b"x"), term=4)
    log.compact_to(9)
    log.set_hard_state(6, 3, 20)
    log.apply_snapshot(Snapshot(77, 9, 1, 18, 123, 456))
    log.note_damage(15, 'for "reasons"')
    fields = json.loads("".join(manifest_parts({}, [log])))["groups"][0]
    copy = log_from(fields, store.staging)
    assert json.loads("".join(manifest_parts({}, [copy])))["groups"][0] == fields
    for name in ("group", "first", "first_offset", "term_before", "last", "end_offset", "term", "vote", "commit"):
        assert getattr(copy, name) == getattr(log, name)
    assert [copy.term_at(index) for index in range(8, 22)] == [log.term_at(index) for index in range(8, 22)]
    assert copy.snapshot is not None
    assert copy.snapshot.saved
    assert copy.damage is not None
    assert copy.damage.reason == 'for "reasons"'


def test_only_logs_that_changed_are_described_anew() -> None:
    disk = new_disk()
    store = opened(disk)
    first, second = store.create(1), store.create(2)
    settle(store, disk, checkpoint=True)
    before = first.manifest_row
    fill(second, 1)
    settle(store, disk, checkpoint=True)
    assert first.manifest_row is before
    assert '"last": 1,' in second.manifest_row


def test_the_newest_manifest_counts() -> None:
    disk = new_disk()
    store = opened(disk)
    old = disk.read("manifest-a", 0, 10**6)
    store.create(1)
    settle(store, disk, checkpoint=True)
    disk.write("manifest-a", 0, old)
    disk.truncate("manifest-a", len(old))
    found = read_manifest(disk)
    assert found is not None
    assert len(found.groups) == 1


def test_a_sealed_text_opens_only_whole() -> None:
    sealed = seal_text("grüße")
    assert open_text(sealed) == "grüße"
    for position in range(len(sealed)):
        broken = bytearray(sealed)
        broken[position] ^= 1
        assert open_text(bytes(broken)) is None
        assert open_text(sealed[:position]) is None
    assert open_text(sealed + b"x") is None
