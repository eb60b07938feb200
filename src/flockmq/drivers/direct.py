"""Files of zeros and durable writes into them, past the page cache: for the journal, which nobody reads while it grows.

```
 write(position, data) --> | what the block has already | data | zeros | --> one pwritev, after which it is on the disk
                           '-- whole blocks, in memory that the disk can read by itself
```
Writing through the page cache costs a copy and a page for each block, and other writers of the file system hold it up.
Files are written in order, so the block in which a write begins is the one in which the last write ended. It is written
again with the same bytes in front: whichever sectors a power loss lets through, what was durable stays as it was.
"""

from __future__ import annotations

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
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DSYNC | os.O_DIRECT)
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)
        self._end = -1
        """Where the last write ended: the bytes of its block before that are at the front of ``_block``."""
        self._block = b""

    def write(self, position: int, data: bytes) -> None:
        """When this returns the bytes are on the disk. In order: what follows them in their last block is zeros."""
        start = position - position % BLOCK
        end = position + len(data)
        back = b""
        if position != self._end:
            self._block = self._read(start)[: position - start]
            back = self._read(end - end % BLOCK)[end % BLOCK :]
        whole = self._block + data
        self._put(start, whole + back)
        self._end = end
        self._block = whole[len(whole) - end % BLOCK :]

    def _read(self, start: int) -> bytes:
        with memoryview(self._buffer) as view, view[:BLOCK] as block:
            return bytes(block[: os.preadv(self._descriptor, [block], start)])

    def _put(self, start: int, whole: bytes) -> None:
        length = len(whole) + -len(whole) % BLOCK
        if length > len(self._buffer):
            self._buffer = mmap.mmap(-1, length)
        self._buffer[:length] = whole.ljust(length, b"\0")
        with memoryview(self._buffer) as view:
            written = 0
            while written < length:
                written += _write_blocks(self._descriptor, view[written:length], start + written)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


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
