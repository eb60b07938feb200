"""Sizes and durations as people write them: ``"1MB"``, ``"64KiB"``, ``"30s"``, ``"1h30m"``.

A field's name tells its unit, so the reader of a value needs no table: ``packet_bytes_max`` counts bytes,
``connect_timeout_ms`` milliseconds, ``session_expiry_s_max`` seconds. ``messages_per_s_max`` is a rate, thus a
plain number. KB, MB and GB are powers of 1000; KiB, MiB and GiB powers of 1024, as everywhere outside of memory sticks.
"""

from __future__ import annotations

import re
from typing import Final

BYTES: Final = "bytes"
MILLISECONDS: Final = "ms"
SECONDS: Final = "s"
COUNT: Final = ""

_SIZES: Final = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_DURATIONS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:ms|[smhdw])\s*)+")
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])")


def unit_of(field_name: str) -> str:
    """The unit that a field's name ends in, looking past ``_max`` and ``_min``; a rate (``per_s``) has none."""
    words = field_name.split("_")
    while words and words[-1] in ("max", "min"):
        words.pop()
    if not words or "per" in words:
        return COUNT
    return words[-1] if words[-1] in (BYTES, MILLISECONDS, SECONDS) else COUNT


def parse_number(text: str, unit: str) -> int:
    """Read a whole number, or a size or duration where the unit allows it; ValueError says what would do."""
    plain = text.strip().lower().replace("_", "")
    if plain.isascii() and plain.isdigit():
        return int(plain)
    if unit == BYTES:
        return _parse_size(plain)
    if unit in (MILLISECONDS, SECONDS):
        return _parse_duration(plain, unit)
    raise ValueError("expected a whole number")


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in _SIZES:
        raise ValueError('expected a number of bytes, or a size like "64KB" or "1MiB"')
    return _whole(float(match[1]) * _SIZES[match[2]], "bytes")


def _parse_duration(text: str, unit: str) -> int:
    if _DURATION.fullmatch(text) is None:
        name = "milliseconds" if unit == MILLISECONDS else "seconds"
        raise ValueError(f'expected a number of {name}, or a duration like "250ms", "30s" or "1h30m"')
    total_ms = sum(float(number) * _DURATIONS_MS[suffix] for number, suffix in _DURATION_PART.findall(text))
    return _whole(total_ms, "milliseconds") if unit == MILLISECONDS else _whole(total_ms / 1000, "seconds")


def _whole(number: float, name: str) -> int:
    if number != int(number):
        raise ValueError(f"expected a whole number of {name}")
    return int(number)
