"""CRC-32C by a wheel that uses the processor's own instruction: gigabytes a second; a Python loop makes megabytes."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes) -> int:
    """The checksum of all of ``data``."""
    value: int = google_crc32c.value(data)
    return value


def seal_text(text: str) -> bytes:
    """A text behind its own checksum."""
    data = text.encode()
    return b"%08x\n" % crc32c(data) + data


def open_text(data: bytes) -> str | None:
    """A sealed text, if its checksum fits."""
    body = data[9:]
    return body.decode() if data[:9] == b"%08x\n" % crc32c(body) else None
