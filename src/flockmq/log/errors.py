"""What can go wrong with a store, each in its own class because callers do different things about it."""

from __future__ import annotations

import errno
from typing import Final

from flockmq.errors import FlockError

_LOST: Final = (errno.EIO, errno.ENOENT, getattr(errno, "EUCLEAN", errno.EIO), getattr(errno, "EBADMSG", errno.EIO))


class StoreDown(FlockError):  # noqa: N818
    """A write or sync failed. Nothing of this store may be trusted to be durable from now on: restart the node."""


class StoreBusy(FlockError):  # noqa: N818
    """More is staged than one group commit may hold. Ask ``Store.has_room`` first."""


class DamageError(FlockError):
    """Bytes that were durable can't be read back. They are not served; the replica must be refilled."""

    def __init__(self, text: str, index: int = 0) -> None:
        super().__init__(text)
        self.index = index


class SpoiledError(DamageError):
    """A committed entry can't be read back. Other replicas have it: the log stays as it is, the entry is fetched."""


class EntryGone(FlockError):  # noqa: N818
    """The entry is before the start of the log: retention or a snapshot took it away. Offsets: ``OffsetGone``."""


def must_be_lost(error: Exception) -> bool:
    """Whether a read failed because bytes are gone or bad; being out of descriptors or memory is no damage."""
    return not isinstance(error, OSError) or error.errno in _LOST
