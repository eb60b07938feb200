"""What the process tells malloc: to keep the memory of freed buffers for the next ones."""

from __future__ import annotations

import ctypes
from typing import Final

MALLOC_TOP_BYTES: Final = 16_777_216
"""Free memory that malloc keeps at the top of its heap. A lower limit gives the buffers of a read back to the kernel
after every read, and page faults fetch them again: up to a quarter of the time of a fast stream. Whether that happens
depends on where the heap happens to end, even on the length of a path in the environment."""
MALLOC_MAP_BYTES: Final = 4_194_304
"""Blocks from this size on get a mapping of their own. Buffers of reads and writes are smaller."""
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3


def keep_buffers() -> None:
    """Tell malloc; only glibc can be told."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, MALLOC_TOP_BYTES)
        mallopt(M_MMAP_THRESHOLD, MALLOC_MAP_BYTES)
