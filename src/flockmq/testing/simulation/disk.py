"""A disk that keeps its word and not a bit more: what was not synced may be gone, torn or out of order after a crash.

```
 write ----------> cache (what reads see)          | power loss: of each file's unsynced writes some sectors survive,
 sync -----------> cache = durable                 | in any mix; of a folder's unsynced names the first few
 write_through --> both, unless power fails in it  | (power loss during it: some sectors, or the first bytes)
 sync_folder ----> names of files durable          |
```
``kill`` (the process dies, the machine lives) loses nothing that was written. Faults on top, one at a time or together:
``fail_after`` makes a coming write or sync fail for good, ``full`` refuses whatever needs room, ``flip`` turns a bit
over that was durable, ``wipe`` is a new disk in place of the old one. After a failed sync the cache still shows what
was written, but a later sync no longer saves it, as on Linux.
"""

from __future__ import annotations

import errno
import random
from typing import Final

SECTOR: Final = 512
CACHE_SURVIVAL: Final = (0.0, 0.5, 1.0)
"""How much of what was not synced may survive a power loss: nothing, any mix, everything."""


class PowerLoss(Exception):  # noqa: N818
    """The machine went down in the middle of a call. Only the simulator catches it."""


class _File:
    """``data`` is what reads see, ``durable`` what a power loss leaves; ``pending`` leads from one to the other."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """Writes (position, bytes) and cuts (length, None) since the last sync, in order."""


class ArmedFaults:
    """Whether a call that writes or syncs fails, and how."""

    def __init__(self) -> None:
        self.full = False
        self.failed = False
        """A caller saw an injected write error."""
        self._fail_in = 0
        self._fuse = 0

    def disarm(self) -> None:
        """No faults to come."""
        self._fail_in = 0
        self._fuse = 0
        self.failed = False

    def fail_after(self, calls: int) -> None:
        """Let a coming call that writes or syncs fail with EIO, counted from 1."""
        self._fail_in = calls

    def lose_power_after(self, calls: int) -> None:
        """Let ``PowerLoss`` end a coming call that writes or syncs, counted from 1."""
        self._fuse = calls

    def _before_write(self, path: str, needs_room: bool) -> None:
        if self.full and needs_room:
            self.failed = True
            raise OSError(errno.ENOSPC, "No space left on device", path)
        if self._fail_in:
            self._fail_in -= 1
            if self._fail_in == 0:
                self.failed = True
                raise OSError(errno.EIO, "Input/output error", path)
        if self._fuse:
            self._fuse -= 1
            if self._fuse == 0:
                raise PowerLoss(path)


class SimulatedDisk(ArmedFaults):
    """Fulfils ``flockmq.log.disk.Disk``."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._renames: dict[str, list[tuple[str, _File | None]]] = {}
        """By folder: (path, the file that now has this name or None), since its last ``sync_folder``, in order."""
        self.bytes_written = 0
        self.syncs = 0
        self._last = ("", 0, 0)
        """Path, position and length of the last durable write."""

    # What the log calls.

    def read(self, path: str, position: int, length: int) -> bytes:
        """Bytes of a file, fewer at its end."""
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return bytes(file.data[position : position + length])

    def size(self, path: str) -> int:
        """Length of a file; -1 when there is none."""
        file = self._files.get(path)
        return -1 if file is None else len(file.data)

    def names(self, folder: str) -> list[str]:
        """Files and folders in a folder."""
        start = folder + "/" if folder else ""
        return sorted({path[len(start) :].split("/", 1)[0] for path in self._files if path.startswith(start)})

    def write(self, path: str, position: int, data: bytes) -> None:
        """Into the cache."""
        self._before_write(path, needs_room=True)
        file = self._open(path)
        _put(file.data, position, data)
        file.pending.append((position, data))
        self.bytes_written += len(data)

    def write_through(self, path: str, position: int, data: bytes) -> None:
        """Onto the disk."""
        file = self._open(path)
        try:
            self._before_write(path, needs_room=position + len(data) > len(file.durable))
        except (OSError, PowerLoss):
            self._tear(file, position, data)
            raise
        _put(file.data, position, data)
        _put(file.durable, position, data)
        self._last = (path, position, len(data))
        self.bytes_written += len(data)
        self.syncs += 1

    def allocate(self, path: str, length: int) -> None:
        """A file of zeros, durable with its name."""
        self._before_write(path, needs_room=True)
        file = _File()
        file.data = bytearray(length)
        file.durable = bytearray(length)
        self._rename(path, file)
        self.sync_folder(_folder_of(path))

    def truncate(self, path: str, length: int) -> None:
        """Cut a file."""
        self._before_write(path, needs_room=False)
        file = self._open(path)
        del file.data[length:]
        file.pending.append((length, None))

    def sync(self, path: str) -> None:
        """Make the bytes of a file durable."""
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        try:
            self._before_write(path, needs_room=False)
        except OSError:
            file.pending.clear()
            raise
        for position, data in file.pending:
            _apply(file.durable, position, data)
        file.pending.clear()
        self.syncs += 1

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable."""
        self._before_write(folder, needs_room=False)
        for path, file in self._renames.pop(folder, ()):
            _name(self._durable_names, path, file)
        self.syncs += 1

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        self._before_write(old, needs_room=False)
        file = self._files.get(old)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", old)
        self._rename(old, None)
        self._rename(new, file)

    def remove(self, path: str) -> None:
        """Remove a file if there is one."""
        if path in self._files:
            self._before_write(path, needs_room=False)
            self._rename(path, None)

    # What the simulator does to it.

    def lose_power(self, rng: random.Random) -> None:
        """Everything that was not made durable may be gone, in part or as a whole."""
        self.disarm()
        survival = rng.choice(CACHE_SURVIVAL)
        for folder in sorted(self._renames):
            moves = self._renames[folder]
            for path, file in moves[: rng.randrange(len(moves) + 1)]:
                _name(self._durable_names, path, file)
        self._renames.clear()
        self._files = dict(self._durable_names)
        for path in sorted(self._files):
            file = self._files[path]
            for position, data in file.pending:
                _survive(file.durable, position, data, survival, rng)
            file.pending.clear()
            file.data = bytearray(file.durable)

    def kill(self) -> None:
        """The process died; the kernel lives and still has everything."""
        self.disarm()

    def flip(self, rng: random.Random, tail: bool = False) -> str:
        """Turn over one durable bit among all bytes that were ever written, or among those written last; says where."""
        path, start, length = self._last
        if tail and path in self._durable_names:
            return self.flip_at(path, start + rng.randrange(length), rng)
        used = [(path, len(file.durable.rstrip(b"\0"))) for path, file in sorted(self._durable_names.items())]
        target = rng.randrange(sum(length for _, length in used) + 1)
        for path, length in used:
            if target < length:
                return self.flip_at(path, target, rng)
            target -= length
        return ""

    def flip_at(self, path: str, position: int, rng: random.Random) -> str:
        """Turn over one bit of a byte that is durable."""
        file = self._durable_names[path]
        bit = 1 << rng.randrange(8)
        file.durable[position] ^= bit
        if position < len(file.data):
            file.data[position] ^= bit
        return f"{path}:{position}"

    def copy(self) -> dict[str, bytes]:
        """All files as programs see them at this moment."""
        return {path: bytes(file.data) for path, file in self._files.items()}

    def put_back(self, files: dict[str, bytes]) -> None:
        """A disk with exactly these files, durable."""
        self.wipe()
        for path, data in files.items():
            file = _File()
            file.data = bytearray(data)
            file.durable = bytearray(data)
            self._files[path] = file
            self._durable_names[path] = file

    def wipe(self) -> None:
        """A new, empty disk."""
        self.disarm()
        self._files.clear()
        self._durable_names.clear()
        self._renames.clear()

    def _open(self, path: str) -> _File:
        file = self._files.get(path)
        if file is None:
            file = _File()
            self._rename(path, file)
        return file

    def _rename(self, path: str, file: _File | None) -> None:
        _name(self._files, path, file)
        self._renames.setdefault(_folder_of(path), []).append((path, file))

    def _tear(self, file: _File, position: int, data: bytes) -> None:
        """Part of a write reached the disk: its first bytes, its first sectors, or any of them."""
        rng = self._rng
        how = rng.randrange(4)
        if how == 0:
            part = data[: rng.randrange(len(data) + 1)]
        elif how == 1:
            part = data[: rng.randrange(len(data) // SECTOR + 1) * SECTOR]
        elif how == 2:
            part = b""
        else:
            _survive(file.durable, position, data, 0.5, rng)
            _survive_same(file, position, len(data))
            return
        _put(file.durable, position, part)
        _put(file.data, position, part)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _name(names: dict[str, _File], path: str, file: _File | None) -> None:
    if file is None:
        names.pop(path, None)
    else:
        names[path] = file


def _put(target: bytearray, position: int, data: bytes | bytearray) -> None:
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def _apply(target: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del target[position:]
    else:
        _put(target, position, data)


def _survive(target: bytearray, position: int, data: bytes | None, share: float, rng: random.Random) -> None:
    """Of one unsynced write, each sector survives or not."""
    if data is None:
        if rng.random() < share:
            del target[position:]
        return
    start = 0
    while start < len(data):
        end = min(start + SECTOR - (position + start) % SECTOR, len(data))
        if rng.random() < share:
            _put(target, position + start, data[start:end])
        start = end


def _survive_same(file: _File, position: int, length: int) -> None:
    """Let the cache show what is on the disk."""
    _put(file.data, position, file.durable[position : position + length])
