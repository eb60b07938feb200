"""What the kernel writes by itself leaves the same bytes as other writes, and fails as loudly."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import platform
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from direct_cases import LENGTH, file_of_zeros, opened_direct, records
from flockmq.drivers import kernel_writes as module
from flockmq.drivers.direct import BLOCK, BUFFER_BYTES, DirectFile
from flockmq.drivers.kernel_writes import KernelWrites, kernel_writes
from log_cases import files_up_to


class Kernel:
    """Kernel writes that can be awaited."""

    def __init__(self) -> None:
        self.done: asyncio.Queue[OSError | None] = asyncio.Queue()
        made = kernel_writes(asyncio.get_running_loop(), self.done.put_nowait)
        if made is None:
            pytest.skip("the kernel of this machine writes nothing by itself")
        self.writes: KernelWrites = made

    async def write(self, file: DirectFile, position: int, data: bytes) -> OSError | None:
        assert self.writes.begin(file, position, data)
        return await self.done.get()


@pytest.fixture
async def kernel() -> AsyncIterator[Kernel]:
    made = Kernel()
    yield made
    await made.writes.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return file_of_zeros(tmp_path)


def content(path: Path) -> bytes:
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(5))
async def test_records_one_after_the_other(kernel: Kernel, path: Path, seed: int) -> None:
    rng = random.Random(seed)
    file = opened_direct(path)
    wanted = bytearray(LENGTH)
    for position, record in records(rng):
        if rng.random() < 0.1:
            file.write(position, record)  # anybody may write in between
        else:
            assert await kernel.write(file, position, record) is None
        wanted[position : position + len(record)] = record
    file.close()
    assert content(path) == wanted


async def test_what_can_not_be_begun_is_left_as_it_was(kernel: Kernel, path: Path) -> None:
    file = opened_direct(path)
    assert await kernel.write(file, 0, b"a" * 100) is None
    descriptor = file.descriptor
    file.descriptor = os.open(path, os.O_RDONLY)
    assert not kernel.writes.begin(file, 100, b"b" * 100)
    os.close(file.descriptor)
    file.descriptor = descriptor
    assert not file.follows(200), "it has to look what is there"
    assert not file.follows(100)
    file.write(100, b"c" * 100)
    file.close()
    assert content(path).rstrip(b"\0") == b"a" * 100 + b"c" * 100


async def test_a_write_that_is_cut_short_goes_on_and_its_failure_is_told(kernel: Kernel, path: Path) -> None:
    file = opened_direct(path)
    position = BUFFER_BYTES - 2 * BLOCK
    with files_up_to(BUFFER_BYTES):
        error = await kernel.write(file, position, b"x" * (5 * BLOCK))
    assert error is not None
    assert error.errno == errno.EFBIG
    file.close()
    assert content(path)[position : position + 3 * BLOCK] == b"x" * (2 * BLOCK) + bytes(BLOCK)


async def test_a_file_whose_writes_hold_up_their_caller_is_left_to_others(
    kernel: Kernel, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened_direct(path)
    monkeypatch.setattr(module, "SLOW_S", -1.0)
    for number in range(module.SLOW_MAX + 1):
        assert await kernel.write(file, number, b"x") is None
    assert not kernel.writes.begin(file, module.SLOW_MAX + 1, b"x")
    assert file.follows(module.SLOW_MAX + 1)
    file.close()
    again = opened_direct(path)
    assert await kernel.write(again, 0, b"y") is None
    again.close()


async def test_closing_waits_for_what_is_under_way(path: Path) -> None:
    kernel = Kernel()
    file = opened_direct(path)
    assert kernel.writes.begin(file, 0, b"z" * BUFFER_BYTES)
    await kernel.writes.close()
    file.close()
    assert content(path)[:BUFFER_BYTES] == b"z" * BUFFER_BYTES


async def test_no_memory_is_no_reason_to_stop(kernel: Kernel, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened_direct(path)
    assert await kernel.write(file, 0, b"a") is None

    def no_memory(*_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", no_memory)
        assert not kernel.writes.begin(file, 1, b"b" * (BUFFER_BYTES + 1))
    file.write(1, b"c")
    file.close()
    assert content(path).rstrip(b"\0") == b"ac"


async def test_elsewhere_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert kernel_writes(asyncio.get_running_loop(), lambda _: None) is None
