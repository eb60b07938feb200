"""A witness beside a store: which store it is, and how much of it was durable. It outlives the store.

```
 start: an empty journal record is durable --> the whole file, synced --> the node may vote and acknowledge
 commit is durable --> Witness(store, sequence), in one of two slots of that file --> what it holds is acknowledged
 next start: what the witness says against what the store has --> SAME | GONE | OTHER | OLDER
```
A store that was wiped, exchanged, or replaced by an older copy of itself can't know that: all it has fits together.
What it once acknowledged is missing all the same, and so are its votes. A node that went on with it would help to elect
a leader that lacks acknowledged records. Hence the node compares, and takes a store that is not the one it had for
lost.

Each start adds an empty record to a journal that has records, then writes and syncs the witness of that record, before
other nodes rely on anything of this start (``begin_life``). So a copy from before a start is always older than the
witness, however short the node ran after that start.

Later the witness is written with each commit, before a vote or an acknowledgement goes out, and not synced. So a copy
that lacks anything the node ever said is older than the witness. It goes unnoticed only if it was put back together
with its witness, or after a power loss that took the end of the witness with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.log.checksum import open_text, seal_text

if TYPE_CHECKING:
    from flockmq.log.disk import Disk
    from flockmq.log.store import Store

SLOT_BYTES: Final = 512
"""A sector: a write that is torn leaves the other slot as it was."""
SAME: Final = 0
GONE: Final = 1
"""There is a witness, and a store that was made just now."""
OTHER: Final = 2
OLDER: Final = 3


class Witness:
    """What a witness says: this store had this journal record, durably."""

    def __init__(self, store: int, sequence: int) -> None:
        self.store = store
        self.sequence = sequence

    def encode(self) -> bytes:
        """One slot of the file."""
        return seal_text(f"{self.store:016x} {self.sequence}\n").ljust(SLOT_BYTES, b" ")


def whole_file(store: int, sequence: int) -> bytes:
    """Both slots, as a start writes them: they never name two stores."""
    return Witness(store, sequence).encode() * 2


def read_witness(data: bytes) -> Witness | None:
    """What the file says, by its later slot; None when neither can be read."""
    found: list[Witness] = []
    for start in (0, SLOT_BYTES):
        text = open_text(data[start : start + SLOT_BYTES].rstrip(b" "))
        if text is None:
            continue
        store, _, sequence = text.strip().partition(" ")
        if len(store) == 16 and sequence.isdigit():
            found.append(Witness(int(store, 16), int(sequence)))
    return max(found, key=_sequence) if found else None


def _sequence(witness: Witness) -> int:
    return witness.sequence


def is_marked(store: Store) -> bool:
    """Whether a store that was just opened knows that it lost the end of its journal: then each of its logs is marked,
    and none of them votes (``recovery.py``). Damage of a file alone, such as one of two manifests, says nothing of its
    age."""
    return bool(store.notes) and all(log.damage is not None and log.damage.everything for log in store.groups.values())


def judge(witness: Witness | None, store: int, last_sequence: int, *, is_new: bool, is_damaged: bool) -> int:
    """Whether a store is the one that the witness knows. One whose logs are all marked (``is_marked``) is not judged by
    its age: what it lost is refilled."""
    if witness is None:
        return SAME
    if witness.store != store:
        return GONE if is_new else OTHER
    return OLDER if last_sequence < witness.sequence and not is_damaged else SAME


def begin_life(store: Store, disk: Disk) -> bytes:
    """Make a store that was just opened and judged differ from all its copies. Returns the content of the witness's
    file: make that durable before the store is used. OSError: the disk failed.

    A store that nothing was ever written to stays so: only in such a store a node may found the cluster state.
    """
    if store.sequence == 1:
        return whole_file(store.identity, 0)
    commit = store.take_record()
    while commit is None:  # the journal file is full, and there is no next one yet
        chore = store.take_chore()
        assert chore is not None
        chore.perform(disk)
        store.done(chore)
        commit = store.take_record()
    commit.perform(disk)
    store.committed(commit)
    return whole_file(store.identity, commit.sequence)


class Witnessing:
    """What to write as the witness, commit by commit."""

    def __init__(self, store: int) -> None:
        self._store = store
        self._slot = 0

    def committed(self, sequence: int) -> tuple[int, bytes]:
        """This record is durable: (position, bytes) to be written before any of it is acknowledged."""
        position = self._slot * SLOT_BYTES
        self._slot = 1 - self._slot
        return position, Witness(self._store, sequence).encode()
