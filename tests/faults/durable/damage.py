"""Does to segments of a stopped node what bad disks do: a bit turns over, the end of a file is missing."""

from __future__ import annotations

import random
from pathlib import Path

from faults.durable.verify import store_folder


def _segments(data: Path) -> list[Path]:
    """Files of logs that hold something; those of the journal are not among them."""
    folder = store_folder(data)
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and "journal" not in str(path)]
    return [path for path in found if path.suffix in {"", ".log", ".segment"} and path.stat().st_size > 1_000]


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
