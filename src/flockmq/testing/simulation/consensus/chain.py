"""The state machine behind each simulated group: it remembers what it applied, as one number.

Two replicas that applied the same entries in the same order have the same ``chain``; its checkpoints are padded so that
they travel in several pieces.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

_STATE: Final = struct.Struct("<QI")
PADDING: Final = bytes(range(256)) * 8


def chain_after(chain: int, data: bytes) -> int:
    """The chain with one more entry."""
    return zlib.crc32(data, chain)


class Machine:
    """State after entry ``index``."""

    def __init__(self, index: int = 0, chain: int = 0) -> None:
        self.index = index
        self.chain = chain

    def apply(self, data: bytes) -> None:
        """The next entry."""
        self.index += 1
        self.chain = chain_after(self.chain, data)

    def encode(self) -> bytes:
        """For a checkpoint."""
        return _STATE.pack(self.index, self.chain) + PADDING


def machine_from(state: bytes) -> Machine:
    """From a checkpoint, or new when there is none."""
    return Machine(*_STATE.unpack_from(state)) if state else Machine()
