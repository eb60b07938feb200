"""Which cluster a node belongs to: one file in its data folder, replaced in one step and synced before others hear.

A node with this file never forms a cluster again, and joins none but this one: see ``peering/formation.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.security.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "cluster_id"
FOUNDED: Final = "founded"


def load_cluster_id(folder: Path) -> int:
    """The cluster's id, 0 when the node belongs to none; FlockError when the file holds something else."""
    path = folder / FILE
    try:
        text = path.read_text("ascii").strip()
        cluster_id = int(text, 16)
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        text, cluster_id = "", 0
    if len(text) != 16 or not cluster_id:
        raise FlockError(f"{path} does not hold the id of a cluster; put back the original, or delete it to join anew.")
    return cluster_id


def save_cluster_id(folder: Path, cluster_id: int) -> None:
    """Make it durable. Blocks until it is on disk."""
    replace_file(folder / FILE, f"{cluster_id:016x}\n".encode())


def note_founded(folder: Path, store: int = 0) -> None:
    """Note that this node founds a cluster with this store (0: not made yet). If the node stops before the cluster
    state has begun, its next start begins the state."""
    replace_file(folder / FOUNDED, f"{store:016x}\n".encode())


def was_founded(folder: Path, store: int) -> bool:
    """Whether the node founds a cluster with this store, and the cluster state has not begun. A note for another store
    does not count: the state may have begun in it."""
    try:
        text = (folder / FOUNDED).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return False
    return text in ("", f"{0:016x}", f"{store:016x}")


def forget_founded(folder: Path) -> None:
    """Remove the note: the cluster state has begun."""
    (folder / FOUNDED).unlink(missing_ok=True)
