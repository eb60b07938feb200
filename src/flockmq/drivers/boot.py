"""Numbers the starts of a node, so that others can tell its lives apart and order them.

A number is larger than that of any start before, also when the clock was set back in between. It is made of the clock
all the same, so that a node whose folder was lost does not begin with small numbers again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "boot"


def next_boot(folder: Path, wall_ms: int) -> int:
    """The number of this start; durable when it is returned. OSError when the folder can't be written."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / FILE
    try:
        last = int(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        last = 0
    boot = max(last + 1, wall_ms)
    fresh = folder / (FILE + ".new")
    with fresh.open("w", encoding="ascii") as file:
        file.write(f"{boot}\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return boot
