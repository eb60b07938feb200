"""The copy of the cluster state that a node keeps beside its store, for its next start.

A replica of group 0 needs one as well: only a leader can tell how much of its log is committed.

An empty file beside the copy notes that it lacks a change that this node has told others it applied. Until the next
copy a start serves no clients before the state is current.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final

from flockmq.cluster.codec import StateFormatError
from flockmq.cluster.state import ClusterState
from flockmq.errors import FlockError
from flockmq.log.checksum import crc32c

if TYPE_CHECKING:
    from pathlib import Path

STATE_FILE: Final = "cluster-state"
OUTDATED_FILE: Final = "cluster-state.outdated"
_MAGIC: Final = b"FLKS"
_HEAD: Final = struct.Struct("<4sI")
"""Before the copy: magic, CRC-32C of what follows."""


def save_state(folder: Path, data: bytes) -> None:
    """Replace the copy in one step; losing it costs a pull from another node, so it need not be synced."""
    partial = folder / f"{STATE_FILE}.partial"
    partial.unlink(missing_ok=True)
    # For its owner alone: hashes of passwords are in it.
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(_HEAD.pack(_MAGIC, crc32c(data)) + data)
    partial.replace(folder / STATE_FILE)
    trust_state(folder)


def outdate_state(folder: Path) -> None:
    """Note that the copy lacks a change."""
    (folder / OUTDATED_FILE).touch(mode=0o600)


def is_outdated(folder: Path) -> bool:
    """Whether the copy is known to lack a change."""
    return (folder / OUTDATED_FILE).exists()


def trust_state(folder: Path) -> None:
    """The copy has all changes, or is gone with its cluster."""
    (folder / OUTDATED_FILE).unlink(missing_ok=True)


def load_state(folder: Path) -> tuple[bytes, str]:
    """The copy of the cluster state, empty without one; and why the copy was set aside, empty when it was not.

    A copy that can't be read is renamed: group 0's log, or another node, has all of what it held.
    """
    path = folder / STATE_FILE
    data = read_if_there(path)
    if not data:
        return b"", ""
    try:
        data = _checked(data)
        ClusterState.decode(data)
    except StateFormatError:
        raise  # a newer version wrote the copy, and would need it
    except FlockError:
        number = 1
        while (folder / f"{STATE_FILE}-damaged-{number}").exists():
            number += 1
        aside = path.rename(folder / f"{STATE_FILE}-damaged-{number}")
        return b"", (
            f"The copy of the cluster state in {path} is damaged; it is kept as {aside.name}, and this node takes the "
            "state from group 0's log or from another node. Clients are served once that is done; look at the disk."
        )
    return data, ""


def peek_state(folder: Path) -> ClusterState | None:
    """The state as this node last knew it, an empty one without a copy; None when the copy can't be read."""
    data = read_if_there(folder / STATE_FILE)
    try:
        return ClusterState.decode(_checked(data)) if data else ClusterState()
    except FlockError:
        return None


def has_topics(folder: Path) -> bool:
    """Whether this node was in a cluster with durable topics, or can't say."""
    state = peek_state(folder)
    return state is None or bool(state.topics)


def _checked(data: bytes) -> bytes:
    """The content behind the checksum; FlockError when the checksum differs. Without a checksum: all bytes."""
    if data[:4] != _MAGIC:
        return data
    if len(data) < _HEAD.size or _HEAD.unpack_from(data)[1] != crc32c(data[_HEAD.size :]):
        raise FlockError("The copy of the cluster state does not match its checksum.")
    return data[_HEAD.size :]


def read_if_there(path: Path) -> bytes:
    """A file; empty when there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
