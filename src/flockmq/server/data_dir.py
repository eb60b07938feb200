"""The folder of one node: locked while its broker runs, with the node's id and the ports it listens on.

```
 DATA_DIR/lock         held (flock) by the running broker, with its process id inside
          node_id      64 random bits, made once: the identity of this node, under any name
          store/       logs of durable topics and of the cluster state
          ports.json   where this broker listens, while it runs; the way to find ports that were asked for as 0
```
Only the broker's user may read these files: they hold messages and hashes. Files are made with mode 0600 and folders
with 0700; a start closes files that an older version, or a copy, left open to others. A data folder that existed before
keeps the rights that its operator gave it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.security.files import make_private, open_private

if TYPE_CHECKING:
    from typing import Any


STORE_FOLDER: Final = "store"
"""Logs of durable topics and of the cluster state."""
MOVE_FILE: Final = "move.json"
"""A move to another cluster that has begun; see ``move_note``."""
PEERS_FILE: Final = "peers.json"
"""Where the other members were last seen; a node that has it has been one of many."""


OWN_NAMES: Final = (
    *("lock", "node_id", "ports.json", "boot", "retained.db", "cluster-state", "admin-token"),
    *(STORE_FOLDER, MOVE_FILE, PEERS_FILE),
)
"""How the names begin that a node gives to what it keeps; other files in its folder are not its own."""


class DataDir:
    """A locked data folder; ``close`` unlocks it."""

    def __init__(self, path: Path, lock: int, node_id: int) -> None:
        self.path = path
        self.node_id = node_id
        self._lock = lock

    @property
    def ports_file(self) -> Path:
        """Where this broker listens, for programs that started it with port 0."""
        return self.path / "ports.json"

    def write_ports(self, ports: dict[str, Any]) -> None:
        """Replace the ports file in one step, so that a reader sees all of it or none."""
        partial = self.path / "ports.json.partial"
        partial.unlink(missing_ok=True)
        with open_private(partial) as file:
            file.write(json.dumps(ports, indent=2) + "\n")
        partial.replace(self.ports_file)

    def close(self) -> None:
        """Forget the ports, which are free now, and unlock the folder."""
        with suppress(OSError):  # a disk that turned read-only: the next start clears it
            self.ports_file.unlink(missing_ok=True)
        os.close(self._lock)


def open_data_dir(path: Path) -> DataDir:
    """Make the folder if need be, lock it and read or mint the node's id; FlockError says what is in the way."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FlockError(
            f"The data folder {path} can't be used: {error.strerror}; give another one with --data-dir."
        ) from None
    try:
        _take_lock(lock, path)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        (path / "ports.json").unlink(missing_ok=True)  # of a broker that was killed
        for one in path.iterdir():
            if one.name.startswith(OWN_NAMES):
                make_private(one)
        return DataDir(path, lock, _node_id(path / "node_id"))
    except OSError as error:
        os.close(lock)
        raise FlockError(
            f"The data folder {path} can't be written: {error.strerror}; give another one with --data-dir."
        ) from None
    except FlockError:
        os.close(lock)
        raise


def _take_lock(lock: int, path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        user = f"process {holder}" if holder.isdigit() else "another process"
        raise FlockError(
            f"The data folder {path} is in use by {user}; stop that broker, or give this one its own --data-dir."
        ) from None


def _node_id(path: Path) -> int:
    if not path.exists():
        partial = path.with_name("node_id.partial")
        partial.unlink(missing_ok=True)
        with open_private(partial) as file:
            file.write(f"{secrets.randbits(64):016x}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    text = path.read_text("ascii", "replace").strip()
    try:
        if len(text) != 16:
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise FlockError(
            f"{path} does not hold a node id; put back the original, or delete it to make this a new node."
        ) from None
