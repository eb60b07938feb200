"""XOR with a repeating four-byte key: what WebSocket frames of clients are wrapped in (RFC 6455 section 5.3).

A byte loop would be the slowest thing between socket and broker, so the work is handed to something that does
many bytes at once: the C function of the ``websockets`` package where that is installed, one big integer elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def xor_by_integer(data: bytes, key: bytes) -> bytes:
    """XOR ``data`` with the repeated ``key``, as two integers of that length."""
    length = len(data)
    stream = (key * ((length + 3) >> 2))[:length]
    return (int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")).to_bytes(length, "little")


def fastest() -> Callable[[bytes, bytes], bytes]:
    """Return the fastest way this installation has."""
    try:
        from websockets.speedups import apply_mask
    except ImportError:  # an accelerator, not a need
        return xor_by_integer
    return apply_mask


xor: Callable[[bytes, bytes], bytes] = fastest()
"""XOR data (first argument) with a repeated key of four bytes (second argument)."""
