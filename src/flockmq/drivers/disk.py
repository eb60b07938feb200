"""The disk port on real files. Nothing stays open but the journal and a few segments that were used last.

Blocking, and safe to be called from several threads: the event loop reads, one thread at a time writes the journal,
others write and sync segments. A file that a thread uses is never closed under it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flockmq.drivers.direct import DirectFile, fill, open_direct

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN_FILES_MAX: Final = 64
_ZEROS: Final = bytes(1 << 20)
_FULL_SYNC: Final = 51
"""F_FULLFSYNC of macOS, where fsync alone leaves bytes in the drive's own cache."""


class _OpenFile:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 0


class FileDisk:
    """Fulfils ``flockmq.log.disk.Disk`` below the folder ``root``, which is made if need be."""

    def __init__(self, root: Path, open_files_max: int = OPEN_FILES_MAX, *, kernel_writes: bool = True) -> None:
        if not root.is_dir():
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_folder(root.parent)
        self.root = root
        self._open_files_max = open_files_max
        self._kernel_writes = kernel_writes
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._journal = ("", -1)
        self._direct: DirectFile | None = None
        """The journal, where it can be written past the page cache; else its descriptor is with its name."""
        self._folders: set[str] = {""}

    @property
    def open_files(self) -> int:
        """How many files are open now, the journal aside."""
        return len(self._files)

    def read(self, path: str, position: int, length: int) -> bytes:
        """Bytes of a file, fewer at its end."""
        with self._opened(path, create=False) as descriptor:
            data = os.pread(descriptor, length, position)
            while len(data) < length:
                more = os.pread(descriptor, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        return data

    def size(self, path: str) -> int:
        """Length of a file; -1 when there is none."""
        try:
            return (self.root / path).stat().st_size
        except FileNotFoundError:
            return -1

    def names(self, folder: str) -> list[str]:
        """What is in a folder."""
        try:
            return sorted(one.name for one in (self.root / folder).iterdir())
        except FileNotFoundError:
            return []

    def write(self, path: str, position: int, data: bytes) -> None:
        """Into the page cache."""
        with self._opened(path, create=True) as descriptor:
            _write_all(descriptor, position, data)

    def write_through(self, path: str, position: int, data: bytes) -> None:
        """Onto the disk. Only the journal is written so, so its file stays open without further ado."""
        name, descriptor = self._journal
        if name != path:
            self._close_journal()
            self._direct = open_direct(self.root / path)
            if self._direct is None:
                descriptor = os.open(self.root / path, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_DSYNC", 0))
            self._journal = (path, descriptor)
        if self._direct is not None:
            self._direct.write(position, data)
            return
        _write_all(descriptor, position, data)
        if not hasattr(os, "O_DSYNC") or not hasattr(os, "fdatasync"):
            _sync(descriptor)

    def following(self, path: str, position: int) -> DirectFile | None:
        """The journal, if the kernel can write it by itself: past the page cache, on from where it ends."""
        direct = self._direct
        if direct is None or not self._kernel_writes or self._journal[0] != path or not direct.follows(position):
            return None
        return direct

    def _close_journal(self) -> None:
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        elif self._journal[1] >= 0:
            os.close(self._journal[1])
        self._journal = ("", -1)

    def allocate(self, path: str, length: int) -> None:
        """Zeros, really written: reserved blocks alone would make every later write change metadata as well."""
        self._ensure_folder(path)
        is_full = fill(self.root / path, length)
        descriptor = os.open(self.root / path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not is_full:
                os.ftruncate(descriptor, 0)
                for position in range(0, length, len(_ZEROS)):
                    _write_all(descriptor, position, _ZEROS[: length - position])
            _sync(descriptor)
        finally:
            os.close(descriptor)
        self.sync_folder(path.rpartition("/")[0])

    def truncate(self, path: str, length: int) -> None:
        """Cut a file."""
        with self._opened(path, create=True) as descriptor:
            os.ftruncate(descriptor, length)

    def sync(self, path: str) -> None:
        """Make the bytes of a file durable."""
        with self._opened(path, create=False) as descriptor:
            _sync(descriptor)

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable."""
        self._ensure_folder(folder + "/")
        _sync_folder(self.root / folder)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        (self.root / old).replace(self.root / new)
        # Only now: until then a reader in another thread may open what has these names.
        self._forget(old)
        self._forget(new)

    def remove(self, path: str) -> None:
        """Remove a file if there is one."""
        (self.root / path).unlink(missing_ok=True)
        self._forget(path)

    def close(self) -> None:
        """Close all files; only when no other thread uses this disk any more."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()
        self._close_journal()

    @contextmanager
    def _opened(self, path: str, *, create: bool) -> Iterator[int]:
        """A descriptor that stays open while it is used."""
        if create:
            self._ensure_folder(path)
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = _OpenFile(self._open(path, create=create))
                self._files[path] = file
            self._files.move_to_end(path)
            file.users += 1
            self._close_some()
        try:
            yield file.descriptor
        finally:
            with self._lock:
                file.users -= 1
                if self._files.get(path) is not file and file.users == 0:
                    os.close(file.descriptor)

    def _open(self, path: str, *, create: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return os.open(self.root / path, flags, 0o600)
        except OSError as error:
            if create or error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise
            return os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)  # enough for a reader

    def _close_some(self) -> None:
        """Close files that were not used for longest, if there are too many; called with the lock held."""
        if len(self._files) <= self._open_files_max:
            return
        for path, file in list(self._files.items())[: len(self._files) - self._open_files_max]:
            if file.users == 0:
                del self._files[path]
                os.close(file.descriptor)

    def _forget(self, path: str) -> None:
        if self._journal[0] == path:
            self._close_journal()
        with self._lock:
            file = self._files.pop(path, None)
            if file is not None and file.users == 0:
                os.close(file.descriptor)

    def _ensure_folder(self, path: str) -> None:
        """Make the folder of a file, durable in its parent."""
        folder = path.rpartition("/")[0]
        if folder in self._folders:
            return
        self._ensure_folder(folder)
        (self.root / folder).mkdir(mode=0o700, exist_ok=True)
        # Also when it was there: the process that made it may have died before this.
        self.sync_folder(folder.rpartition("/")[0])
        self._folders.add(folder)


def _write_all(descriptor: int, position: int, data: bytes) -> None:
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        more = os.pwrite(descriptor, data[written:], position + written)
        if more == 0:
            raise OSError(errno.EIO, "the disk took no more bytes")
        written += more


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        import fcntl

        fcntl.fcntl(descriptor, _FULL_SYNC)
