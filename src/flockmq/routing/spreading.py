"""A number for a name that spreads evenly, whatever it is divided by.

A checksum alone does not: it is linear, so plainly numbered names (plant/0, plant/1, ...) fall on half of four shards,
or of four members of a group. Two rounds of shift and multiply make all bits depend on all; in 30 bits, for mypyc
multiplies those without making objects.
"""

from __future__ import annotations

from typing import Final

from flockmq.log.checksum import crc32c

_MASK: Final = 0x3FFFFFFF
_FIRST: Final = 0x3ACBD675
_SECOND: Final = 0x24F2EF2F
"""Odd numbers, found by trying: each bit of a key's checksum changes each bit of the outcome half of the time, and a
dozen names numbered behind usual prefixes reach all of four shards."""


def spread(name: bytes) -> int:
    """A number below 2**30; the same everywhere and for ever."""
    mixed = crc32c(name)
    mixed = ((mixed ^ mixed >> 15) & _MASK) * _FIRST & _MASK
    mixed = (mixed ^ mixed >> 15) * _SECOND & _MASK
    return mixed ^ mixed >> 15
