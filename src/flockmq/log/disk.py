"""What the log needs of a disk. The real one is in ``drivers/disk.py``; the simulator's breaks on purpose.

Paths are relative to the store's own folder, with ``/`` between names; folders come into being with the first file in
them. Only these calls make anything survive a crash: ``write_through``, ``allocate``, ``sync`` (a file's bytes) and
``sync_folder`` (names in a folder: created, renamed, removed). Until then any part of what was written may be lost, in
any order; sectors of 512 bytes are written whole or not at all.

Every call may raise OSError. One that writes and fails is final: the store goes down and does not try again, because
after a failed sync it is not known what is on the disk.
"""

from __future__ import annotations

from typing import Protocol


class Disk(Protocol):
    """Calls without open files: an implementation keeps as few open as it likes."""

    def read(self, path: str, position: int, length: int) -> bytes:
        """Bytes of a file, fewer at its end; FileNotFoundError when there is none."""
        ...

    def size(self, path: str) -> int:
        """Length of a file; -1 when there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """Names of files and folders in a folder, sorted; empty when there is no such folder."""
        ...

    def write(self, path: str, position: int, data: bytes) -> None:
        """Write into the page cache; creates the file."""
        ...

    def write_through(self, path: str, position: int, data: bytes) -> None:
        """Write into an allocated file; durable when the call returns."""
        ...

    def allocate(self, path: str, length: int) -> None:
        """A new file full of zeros, its blocks written once; durable, with its name, when the call returns."""
        ...

    def truncate(self, path: str, length: int) -> None:
        """Cut a file."""
        ...

    def sync(self, path: str) -> None:
        """Make all written bytes of a file durable."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable; "" is the store's own folder."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing what had it."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when there is none."""
        ...
