"""Does to segments of a stopped node what bad disks do: a bit turns over, the end of a file is missing."""

from __future__ import annotations

import random
from pathlib import Path

from faults.durable.verify import store_folder

SMALL = 1_000
"""Logs that are not worth it."""


def _segments(data: Path) -> list[Path]:
    """Files of logs that hold something."""
    return [path for path in sorted(store_folder(data).rglob("*.log")) if path.stat().st_size > SMALL]


def flip(data: Path, rng: random.Random) -> str:
    """One bit of one segment; what was flipped."""
    path = rng.choice(_segments(data))
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(bytes(content).rstrip(b"\0")))
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"a bit of {path.relative_to(data)} at {place} was flipped"


def truncate(data: Path, rng: random.Random) -> str:
    """The end of one segment; what was cut."""
    path = rng.choice(_segments(data))
    content = path.read_bytes()
    left = rng.randrange(len(content.rstrip(b"\0")))
    path.write_bytes(content[:left])
    return f"{path.relative_to(data)} was cut from {len(content)} to {left} bytes"
