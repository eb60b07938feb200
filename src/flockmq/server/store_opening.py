"""Opens the store of a node, and checks that the node had this store before: see ``log/witness.py``.

```
 the same --> go on
 gone, another one, an older copy:
    there are other nodes --> set it aside, go on with an empty one: the others refill it
    this node is alone    --> refuse to start, until its operator runs `flockmq log accept-loss DATA_DIR`
```
After ``accept-loss`` a node that is alone goes on with the records of the store. If there are none, its topics are
empty.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from flockmq.cluster.model import CORE
from flockmq.cluster.state import ClusterState
from flockmq.drivers.journal import open_disk
from flockmq.errors import FlockError
from flockmq.log.witness import GONE, OTHER, SAME, Witnessing, begin_life, is_marked, judge, read_witness
from flockmq.security.files import replace_file
from flockmq.server.cluster_id import load_cluster_id
from flockmq.server.data_dir import PEERS_FILE, STORE_FOLDER
from flockmq.server.state_copy import peek_state, read_if_there

if TYPE_CHECKING:
    from pathlib import Path

    from flockmq.drivers.disk import FileDisk
    from flockmq.log.settings import StoreSettings
    from flockmq.log.store import Store

WITNESS_FILE: Final = "store.witness"
ACCEPT_FILE: Final = "accept-loss"
"""If this file exists, the next start may go on without the lost records. That start removes the file."""
WHY: Final = {
    GONE: "The store of this node is gone, {store} is new and empty",
    OTHER: "{store} is another store than the one this node had",
}
WHY_OLDER: Final = "{store} is an older copy: this node has acknowledged more than it holds"
WHAT_ALONE: Final = (
    "{why}. Messages of durable topics that were acknowledged are gone with it, for no other node has them. Put it "
    "back; or run `flockmq log accept-loss {folder}` and start again to go on without them."
)
WHAT_TO_EXPECT: Final = (
    "{why}. The other nodes refill it; until then it neither votes nor leads{aside}. Partitions that no other node has "
    "stay down until `flockmq partition accept-loss`."
)


class LostStoreError(FlockError):
    """The store of a node that is alone is not the one that the node had before."""


class OpenedStore:
    """A store that may be used."""

    def __init__(self, store: Store, disk: FileDisk, witness: WitnessFile, lost: str, is_accepted: bool) -> None:
        self.store = store
        self.disk = disk
        self.witness = witness
        self.lost = lost
        """The sentence about the loss of the former store; empty: nothing was lost."""
        self.is_accepted = is_accepted
        """True: this node is alone, and goes on with the records of this store, even if it has none."""


class WitnessFile:
    """The file; belongs to one opening of the store."""

    def __init__(self, folder: Path, store: Store, disk: FileDisk) -> None:
        replace_file(folder / WITNESS_FILE, begin_life(store, disk))
        self._file = os.open(folder / WITNESS_FILE, os.O_WRONLY | os.O_CLOEXEC)
        self._witnessing = Witnessing(store.identity)

    def committed(self, sequence: int) -> None:
        """A record is durable, and not acknowledged yet. Not synced: a process that is killed leaves it all the same.

        Without the witness an older store is not noticed; a disk that fails is told by the journal.
        """
        position, slot = self._witnessing.committed(sequence)
        with suppress(OSError):
            os.pwrite(self._file, slot, position)

    def close(self) -> None:
        """Close the file, after the last commit."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def open_checked(folder: Path, node_id: int, settings: StoreSettings) -> OpenedStore:
    """Open the store in a data folder. Blocks. FlockError: the store can't be used, or is not the former one."""
    root = folder / STORE_FOLDER
    witness = read_witness(read_if_there(folder / WITNESS_FILE))
    store, disk = open_disk(root, settings)
    try:
        state = peek_state(folder)
        if state is None:
            state = ClusterState()  # the state will come from other nodes, if there are any
        verdict = judge(witness, store.identity, store.sequence - 1, is_new=store.is_new, is_damaged=is_marked(store))
        if verdict == SAME and store.is_new and state.index:
            verdict = GONE  # a node that knows the cluster state had a store
        is_alone = _is_alone(folder, state, node_id)
        is_accepted = is_alone and (folder / ACCEPT_FILE).exists()
        if verdict == SAME or not (store.groups or load_cluster_id(folder)):
            # The start that used the acceptance may have ended before it was through: it is used again.
            is_accepted = is_accepted and bool(load_cluster_id(folder))
            return OpenedStore(store, disk, WitnessFile(folder, store, disk), "", is_accepted)
        why = WHY.get(verdict, WHY_OLDER).format(store=root)
        if is_alone:
            if not is_accepted:
                if store.is_new:
                    _remove_empty(root, disk)
                raise LostStoreError(WHAT_ALONE.format(why=why, folder=folder))
            lost = f"{why}. The operator of this node, which is alone, has accepted that."
            return OpenedStore(store, disk, WitnessFile(folder, store, disk), lost, is_accepted)
    except BaseException:
        disk.close()
        raise
    aside = ""
    if verdict != GONE:
        disk.close()
        aside = f"; what was there is in {_set_aside(root)}"
        store, disk = open_disk(root, settings)
    lost = WHAT_TO_EXPECT.format(why=why, aside=aside)
    return OpenedStore(store, disk, WitnessFile(folder, store, disk), lost, is_accepted=False)


def forget_witness(folder: Path) -> None:
    """The store was removed on purpose."""
    (folder / WITNESS_FILE).unlink(missing_ok=True)


def accept_loss(folder: Path) -> None:
    """Let the next start go on without the lost records."""
    replace_file(folder / ACCEPT_FILE, b"")


def used_acceptance(folder: Path) -> None:
    """The start with a lost store has happened: the next loss is another one."""
    (folder / ACCEPT_FILE).unlink(missing_ok=True)


def _is_alone(folder: Path, state: ClusterState, node_id: int) -> bool:
    """Whether no other node can have what this one stored."""
    if state.index:
        return not any(node.role == CORE and node.id != node_id for node in state.nodes.values())
    return not (folder / PEERS_FILE).exists()


def _set_aside(root: Path) -> Path:
    """Give the store's folder another name; people may want to look at it, nothing here reads it again."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number = 1
    while (aside := root.with_name(f"{root.name}-aside-{stamp}-{number}")).exists():
        number += 1
    return root.rename(aside)


def _remove_empty(root: Path, disk: FileDisk) -> None:
    """A store that was made a moment ago must not stand in the way of the one that is put back."""
    for name in disk.names(""):
        if (root / name).is_file():
            disk.remove(name)
