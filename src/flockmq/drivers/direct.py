"""Files of zeros and durable writes into them, past the page cache: for the journal, which is not read while it grows.

```
 write(position, data) --> | what the block has already | data | zeros | --> one pwritev, after which it is on the disk
                           '-- whole blocks, in memory that the disk can read by itself
```
Writing through the page cache costs a copy and a page for each block, and other writers of the file system hold it up.
Files are written in order, so the block in which a write begins is the one in which the last write ended. It is written
again with the same bytes in front: whichever sectors a power loss lets through, what was durable stays as it was.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

BLOCK: Final = 4_096
BUFFER_BYTES: Final = 1 << 20
_NOT_HERE: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


class DirectFile:
    """One file, opened for writes that are durable when they return. One thread at a time."""

    def __init__(self, path: Path) -> None:
        """OSError: no such file, or nothing can be written like this here."""
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DSYNC | os.O_DIRECT)
        self.address = 0
        """Of the memory that the disk reads; it may be another one after ``prepare``."""
        self._set_buffer(BUFFER_BYTES)
        self._end = -1
        """Where the last write ended: the bytes of its block before that are at the front of ``_block``."""
        self._block = b""

    def write(self, position: int, data: bytes) -> None:
        """When this returns the bytes are on the disk. In order: what follows them in their last block is zeros."""
        start, length = self.prepare(position, data)
        with memoryview(self._buffer) as view:
            written = 0
            while written < length:
                written += _write_blocks(self.descriptor, view[written:length], start + written)

    def follows(self, position: int) -> bool:
        """Whether a write there goes on where the last one ended, so that nothing has to be read before."""
        return position == self._end

    def forget(self) -> None:
        """What was prepared last is not in the file: read what is before the next write."""
        self._end = -1

    def prepare(self, position: int, data: bytes) -> tuple[int, int]:
        """Put the blocks to be written into memory, at ``address``. Where they belong in the file, how many bytes."""
        start = position - position % BLOCK
        end = position + len(data)
        back = b""
        if position != self._end:
            self._block = self._read(start)[: position - start]
            back = self._read(end - end % BLOCK)[end % BLOCK :]
        front = len(self._block)
        length = front + len(data) + len(back)
        padding = -length % BLOCK
        if length + padding > len(self._buffer):
            self._set_buffer(length + padding)
        buffer = self._buffer
        buffer[:front] = self._block
        buffer[front : front + len(data)] = data
        buffer[front + len(data) : length + padding] = back + bytes(padding)
        self._end = end
        inside = end % BLOCK
        self._block = data[len(data) - inside :] if inside <= len(data) else self._block + data
        return start, length + padding

    def _set_buffer(self, length: int) -> None:
        self._buffer = mmap.mmap(-1, length)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))

    def _read(self, start: int) -> bytes:
        with memoryview(self._buffer) as view, view[:BLOCK] as block:
            return bytes(block[: os.preadv(self.descriptor, [block], start)])

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def fill(path: Path, length: int) -> bool:
    """Make a file full of zeros, which are on the disk but not yet its length; False where this can't be done."""
    if not hasattr(os, "O_DIRECT") or length % BLOCK:
        return False
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_DIRECT, 0o600)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    try:
        with mmap.mmap(-1, BUFFER_BYTES) as zeros, memoryview(zeros) as view:
            written = 0
            while written < length:
                written += _write_blocks(descriptor, view[: length - written], written)
    finally:
        os.close(descriptor)
    return True


def _write_blocks(descriptor: int, blocks: memoryview, position: int) -> int:
    with blocks:
        written = os.pwritev(descriptor, [blocks], position)
    if written <= 0 or written % BLOCK:
        raise OSError(errno.EIO, "the disk took no more bytes")
    return written


def open_direct(path: Path) -> DirectFile | None:
    """None where this file system, machine or file can't be written like this."""
    if not hasattr(os, "O_DIRECT") or not hasattr(os, "O_DSYNC") or path.stat().st_size % BLOCK:
        return None
    try:
        return DirectFile(path)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return None
        raise
