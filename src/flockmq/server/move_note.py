"""A move to another cluster is noted in the data folder before it begins; the node then restarts and finishes it.

```
 write_note --> clients and other nodes are told --> the node's life ends, or it crashes
            --> finish_move, before the next life: store, cluster id, peers --> the note is gone
```
``carry_out`` may be done twice.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from flockmq.drivers.clock import wall_ms
from flockmq.errors import FlockError
from flockmq.peering.contact import make_contact
from flockmq.security.files import replace_file
from flockmq.server.cluster_id import forget_founded, note_founded, save_cluster_id
from flockmq.server.data_dir import MOVE_FILE, STORE_FOLDER
from flockmq.server.known_peers import KnownPeer, KnownPeers
from flockmq.server.state_copy import STATE_FILE, trust_state
from flockmq.server.store_opening import forget_witness


class Acquaintance(msgspec.Struct, frozen=True):
    """A node of the cluster that a node moves to."""

    node_id: int
    name: str
    host: str
    port: int


class MoveNote(msgspec.Struct, frozen=True):
    """A move: the cluster that a node goes to."""

    former_id: int
    cluster_id: int
    keep: bool
    """Whether the old store stays in the folder under another name, because no other node took it over."""
    contact: Acquaintance | None = None
    """A node of the new cluster; None: this node founds that cluster itself."""


def write_note(folder: Path, note: MoveNote) -> None:
    """Make the note durable. Blocks."""
    replace_file(folder / MOVE_FILE, msgspec.json.encode(note))


def finish_move(folder: Path) -> str | None:
    """Carry out a note. Returns where the old store is, empty: not kept; None: there is no note. Blocks."""
    try:
        note = msgspec.json.decode((folder / MOVE_FILE).read_bytes(), type=MoveNote)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise FlockError(
            f"{folder / MOVE_FILE} can't be read ({error}); put back the original, or delete it."
        ) from None
    kept = carry_out(folder, note)
    (folder / MOVE_FILE).unlink(missing_ok=True)
    return str(kept) if kept is not None else ""


def carry_out(folder: Path, note: MoveNote) -> Path | None:
    """Make it the folder of a node of the new cluster that has nothing of it yet; where the old store is, if kept."""
    kept = _clear_store(folder, f"{note.former_id:016x}", keep=note.keep)
    peers = KnownPeers(folder)
    peers.forget()
    if note.contact is None:
        note_founded(folder)
    else:
        forget_founded(folder)
        contact = make_contact(note.contact.host, note.contact.port)
        peers.save([KnownPeer(note.contact.node_id, note.contact.name, contact, wall_ms())])
    save_cluster_id(folder, note.cluster_id)
    return kept


def _clear_store(folder: Path, label: str, *, keep: bool) -> Path | None:
    """What is stored belongs to a cluster that this node is no longer part of: begin with nothing.

    With ``keep`` the store stays under another name, which is returned. No code reads it again; it is for operators.
    """
    store = folder / STORE_FOLDER
    kept: Path | None = None
    if store.exists() and keep:
        number = 1
        while (folder / f"{STORE_FOLDER}-{label}-{number}").exists():
            number += 1
        kept = store.rename(folder / f"{STORE_FOLDER}-{label}-{number}")
        if (folder / STATE_FILE).exists():
            (folder / STATE_FILE).replace(kept / STATE_FILE)
    elif store.exists():
        shutil.rmtree(store)
    (folder / STATE_FILE).unlink(missing_ok=True)
    trust_state(folder)
    forget_witness(folder)
    return kept
