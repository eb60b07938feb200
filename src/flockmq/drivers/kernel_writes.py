"""Durable writes that Linux does by itself beside the event loop: no thread, so no write waits for the interpreter.

```
 begin(file, position, data) --> io_submit --> the disk ... --> eventfd is readable --> on_done(None)
                             `-> False: not here, not now; write it in a thread          on_done(error)
```
Native AIO (``io_submit``), by its system calls: Python has none of them. It works beside the caller only for files that
are written past the page cache into blocks that are there already, as the journal is (``direct.py``). The file is open
with ``O_DSYNC``, so a write is done when it is on the disk. Containers that forbid ``io_uring`` allow this.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import platform
import struct
import sys
import time
from typing import TYPE_CHECKING, Final

from flockmq.drivers.direct import BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.drivers.direct import DirectFile

_CALLS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Machine -> numbers of io_setup, io_destroy, io_getevents, io_submit."""
_IOCB: Final = struct.Struct("<QIIHhIQQqQII")
"""data, key, flags, what, priority, descriptor, memory, length, position, reserved, IOCB_FLAG_RESFD, eventfd"""
_EVENT: Final = struct.Struct("<QQqq")
"""data, iocb, result, second result"""
_PWRITE: Final = 1
_TELL_EVENTFD: Final = 1
SLOW_S: Final = 0.002
"""A submission that takes so long did the write itself, or was interrupted."""
SLOW_MAX: Final = 16
"""So many more slow ones than quick ones: this file is not written beside its caller. The next one gets its chance."""


class KernelWrites:
    """One write at a time. OSError when made where this can't be had."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_done: Callable[[OSError | None], None]) -> None:
        numbers = _CALLS.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 1 << 32 else None
        if numbers is None:
            raise OSError(errno.ENOSYS, "no native AIO here")
        setup, destroy, getevents, submit = [ctypes.c_long(number) for number in numbers]
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        context = ctypes.c_ulong(0)
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._must(self._call(setup, ctypes.c_long(1), ctypes.byref(context)))
        except OSError:
            os.close(self._eventfd)
            raise
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._iocbs = ctypes.c_void_p(ctypes.addressof(self._iocb))
        self._event = ctypes.create_string_buffer(_EVENT.size)
        # What the calls are given is the same each time, so it is made once.
        one = ctypes.c_long(1)
        self._submit = (submit, context, one, ctypes.byref(self._iocbs))
        self._getevents = (getevents, context, one, one, ctypes.byref(self._event), None)
        self._destroy = (destroy, context)
        self._loop = loop
        self._on_done = on_done
        self._file: DirectFile | None = None
        """Which was written last: it holds the memory that is being written."""
        self._start = 0
        self._length = 0
        self._written = 0
        self._slow = 0
        loop.add_reader(self._eventfd, self._wrote)

    def begin(self, file: DirectFile, position: int, data: bytes) -> bool:
        """Have this written; False when another writer has to, which finds the file as it was."""
        if file is not self._file:
            self._file = file
            self._slow = 0
        if self._slow > SLOW_MAX:
            return False
        self._written = 0
        began = time.monotonic()
        try:
            self._start, self._length = file.prepare(position, data)
            self._submit_rest(file)
        except (OSError, MemoryError):  # EAGAIN: the kernel has no room; the next writer meets any other error
            file.forget()
            return False
        is_slow = time.monotonic() - began > SLOW_S
        self._slow = self._slow + 1 if is_slow else max(self._slow - 1, 0)
        return True

    async def close(self) -> None:
        """Wait for a write that is under way, whose end is not reported any more, and give everything back. Once."""
        self._loop.remove_reader(self._eventfd)
        await asyncio.to_thread(self._call, *self._destroy)
        os.close(self._eventfd)

    def _submit_rest(self, file: DirectFile) -> None:
        memory, length = file.address + self._written, self._length - self._written
        position = self._start + self._written
        fields = (0, 0, 0, _PWRITE, 0, file.descriptor, memory, length, position, 0, _TELL_EVENTFD, self._eventfd)
        _IOCB.pack_into(self._iocb, 0, *fields)
        self._must(self._call(*self._submit))

    def _wrote(self) -> None:
        file = self._file
        assert file is not None
        try:
            os.eventfd_read(self._eventfd)
            self._must(self._call(*self._getevents))
            written = _EVENT.unpack(self._event)[2]
            if written < 0:
                raise OSError(-written, os.strerror(-written))
            if written == 0 or written % BLOCK:
                raise OSError(errno.EIO, "the disk took no more bytes")
            self._written += written
            if self._written < self._length:
                self._submit_rest(file)
                return
        except OSError as error:
            self._on_done(error)
            return
        self._on_done(None)

    def _must(self, result: int) -> None:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def kernel_writes(loop: asyncio.AbstractEventLoop, on_done: Callable[[OSError | None], None]) -> KernelWrites | None:
    """None where this system or machine has no such writes, or forbids them."""
    try:
        return KernelWrites(loop, on_done)
    except OSError:
        return None
