"""Opens a store after a clean stop, a crash or a power loss.

```
 manifest --> logs as they were at the last checkpoint
 journal  --> scan (torn tail cut, damage told apart) --> replay
 segments --> verify
 all was well: go on in the same journal file, right behind the last record
 otherwise:    a fresh journal file and a checkpoint, so that the bad one is never read again
```
``load_store`` only reads; ``open_store`` also puts in order.
"""

from __future__ import annotations

import random
from typing import Final

from flockmq.log.disk import Disk
from flockmq.log.errors import must_be_lost
from flockmq.log.manifest import Manifest, log_from, read_manifest
from flockmq.log.replay import Replay
from flockmq.log.scan import JournalFile, JournalRecord, Scan, scan_journal
from flockmq.log.settings import StoreSettings
from flockmq.log.store import Store, journal_path
from flockmq.log.verify import Kept, verify_log
from flockmq.log.work import AllocateJournal, Checkpoint

EVERYTHING: Final = -1
"""As ``verify_bytes``: read all batches of all segments."""
_VERIFY_BYTES_MIN: Final = 1 << 20


class Loaded:
    """A store as it was found."""

    def __init__(self, store: Store, manifest: Manifest, scan: Scan, journals: list[int]) -> None:
        self.store = store
        self.manifest = manifest
        self.scan = scan
        self.journals = journals
        """Numbers of all journal files that are there."""


def open_store(disk: Disk, settings: StoreSettings, rng: random.Random) -> Store:
    """The store in this disk's folder, ready for use; a new one where there was none. DamageError: it can't be used."""
    loaded = load_store(disk, settings, settings.verify_bytes)
    if loaded is None:
        return _new_store(disk, settings, rng)
    store = loaded.store
    spare = journal_path(store.journal + 1)
    newest = max([store.journal, *loaded.journals])
    if loaded.scan.clean and not store.notes and not loaded.manifest.is_alone:
        store.has_spare = newest == store.journal + 1 and disk.size(spare) == settings.journal_bytes
        unused = [number for number in loaded.journals if number < store.oldest_journal or number > store.journal]
        if store.has_spare:
            unused.remove(newest)
    else:
        _start_over(store, disk, newest + 1)
        unused = []
    for number in unused:
        disk.remove(journal_path(number))
    _sweep(store, disk)
    return store


def load_store(disk: Disk, settings: StoreSettings, verify_bytes: int) -> Loaded | None:
    """Read a store without changing anything; None when there is none."""
    manifest = read_manifest(disk)
    if manifest is None:
        return None
    store = Store(disk, settings, manifest.store)
    staging = store.staging
    for fields in manifest.groups:
        log = log_from(fields, staging)
        store.groups[log.group] = log
    staging.next_number = manifest.next_number
    journals = _journals(disk)
    scan = _scan(disk, manifest, journals)
    replay = Replay(store.groups, staging)
    for record in scan.records:
        replay.record(record)
    staging.next_number = replay.next_number
    store.notes = manifest.notes + scan.notes + replay.notes
    share = EVERYTHING
    if verify_bytes != EVERYTHING:
        share = max(_VERIFY_BYTES_MIN, verify_bytes // max(len(store.groups), 1))
    for group in sorted(store.groups):
        kept: Kept = []
        problem = verify_log(staging, store.groups[group], share, kept)
        if problem:
            store.notes.append(problem)
            staging.changed.add(group)
        else:
            store.remember(kept)
    store.torn = scan.torn
    store.generation = manifest.generation
    store.oldest_journal = manifest.journal
    store.journal = scan.file
    store.position = scan.position
    store.sequence = scan.sequence
    return Loaded(store, manifest, scan, journals)


def _journals(disk: Disk) -> list[int]:
    return sorted([int(name[8:]) for name in disk.names("") if name.startswith("journal-")])


def _scan(disk: Disk, manifest: Manifest, journals: list[int]) -> Scan:
    wanted = [number for number in journals if number >= manifest.journal]
    if manifest.journal not in wanted:
        wanted.insert(0, manifest.journal)
    files: list[JournalFile] = []
    gone: list[str] = []
    for number in wanted:
        path = journal_path(number)
        try:
            files.append(JournalFile(number, disk.read(path, 0, disk.size(path))))
        except OSError as error:
            if not must_be_lost(error):
                raise
            files.append(JournalFile(number, b""))
            gone.append(f"{path} can't be read ({error}); any group may have lost entries.")
    scan = scan_journal(files, manifest.store, manifest.position, manifest.sequence)
    if gone:
        scan.records.insert(0, JournalRecord(manifest.journal, 0, manifest.sequence, [], 1))
        scan.notes += gone
        scan.clean = False
    return scan


def _new_store(disk: Disk, settings: StoreSettings, rng: random.Random) -> Store:
    """Journal first, manifest last: until that is there the folder counts as empty."""
    store = Store(disk, settings, rng.getrandbits(63) | 1)
    store.is_new = True
    for number in _journals(disk):
        disk.remove(journal_path(number))
    AllocateJournal(journal_path(1), settings.journal_bytes).perform(disk)
    _checkpoint(store, disk)
    return store


def _start_over(store: Store, disk: Disk, journal: int) -> None:
    """Go on in a fresh journal file; what the old ones held goes into segments and manifest."""
    store.journal = journal
    store.position = 0
    store.has_spare = False
    AllocateJournal(journal_path(journal), store.journal_bytes).perform(disk)
    _checkpoint(store, disk)


def _checkpoint(store: Store, disk: Disk) -> None:
    store.request_checkpoint()
    store.has_spare = True  # a checkpoint is wanted now, not a spare
    chore = store.take_chore()
    store.has_spare = False
    assert isinstance(chore, Checkpoint)
    chore.perform(disk)
    store.done(chore)


def _sweep(store: Store, disk: Disk) -> None:
    """Remove files that no log names, left over from before a crash. A damaged log keeps them, for people to see."""
    logs = {log.folder: log for log in store.groups.values()}
    for folder in disk.names("groups"):
        log = logs.get(f"groups/{folder}")
        if log is not None and log.damage is not None:
            continue
        named: set[str] = set()
        if log is not None:
            for segment in log.segments:
                named |= {segment.file_name(), segment.index_name(), segment.names_name()}
            if log.snapshot is not None:
                named.add(log.snapshot.file_name())
        for name in disk.names(f"groups/{folder}"):
            if name not in named:
                disk.remove(f"groups/{folder}/{name}")
