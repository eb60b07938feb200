"""Takes the batches out of extents: verified, in runs as they lie there, those that the reader does not want left out.

```
 Extents --> memory --------------------------.
        `--> files, a large piece at a time --+--> each batch: sound? committed? records? a wanted name? --> Scanned
                                                   stops when enough is found or enough was looked at       next_offset
```
Slow, and without any state: for a thread. Batches that lie end to end are taken as one piece, so that what is served
was copied once; ``next_offset`` goes on where the scan ended, also when all batches were left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flockmq.errors import FlockError, NoReplica
from flockmq.log.batch import DATA, HEADER_BYTES, BatchError, BatchView
from flockmq.log.errors import must_be_lost

if TYPE_CHECKING:
    from flockmq.log.extents import Extents, FilePart
    from flockmq.log.staging import Staging

Wants = Callable[[list[bytes]], bool]
"""Whether a reader wants a batch with records of these topics."""


class Again(FlockError):  # noqa: N818
    """Retention removed a file while it was read: ask for the extents once more."""


class Scanned:
    """What was found."""

    def __init__(self, extents: Extents, wants: Wants | None) -> None:
        self.extents = extents
        self.wants = wants
        self.pieces: list[bytes | memoryview] = []
        self.size = 0
        self.looked_at = 0
        """Bytes of batches at or behind the offset, taken or not."""
        self.next_offset = extents.offset
        """Where to read on."""
        self.suspect = 0
        """An entry that could not be read, or one a little before it; then what was found ends there."""
        self._is_over = False

    def data(self) -> bytes:
        """The batches end to end."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], bytes):
            return self.pieces[0]
        return b"".join(self.pieces)

    def is_over(self) -> bool:
        """Whether there is nothing more to do."""
        return self._is_over

    def finish(self) -> None:
        """What follows is for another time."""
        self._is_over = True

    def is_beyond(self, view: BatchView) -> bool:
        """Whether a batch would be too much, as its header says: then its body need not be read."""
        is_too_much = self.size > 0 and self.size + view.size > self.extents.bytes_max
        return is_too_much and self.wants is None and view.kind == DATA

    def takes(self, view: BatchView) -> bool:
        """Decide about one batch; ``is_over`` when it, and all that follow, are for another time."""
        extents = self.extents
        if (
            view.index > extents.last_index
            or self.size >= extents.bytes_max
            or self.looked_at >= extents.scan_bytes_max
        ):
            self._is_over = True
            return False
        if view.next_offset <= self.next_offset or view.kind != DATA:
            return False
        is_wanted = self.wants is None or self.wants(view.topics())
        if is_wanted and self.size and self.size + view.size > extents.bytes_max:
            self._is_over = True
            return False
        self.looked_at += view.size
        self.next_offset = view.next_offset
        if is_wanted:
            self.size += view.size
        return is_wanted


def scan_extents(staging: Staging, extents: Extents, wants: Wants | None = None) -> Scanned:
    """The batches. NoReplica: they can't be read any more; Again: ask for the extents once more."""
    found = Scanned(extents, wants)
    for part in extents.parts:
        if not isinstance(part, bytes):
            _scan_file(staging, part, found)
        elif found.takes(BatchView(part)):
            found.pieces.append(part)
        if found.is_over():
            break
    return found


def filter_batches(batches: list[bytes], offset: int, wants: Wants | None) -> tuple[list[bytes], int]:
    """Batches that came from elsewhere, and where to read on; BatchError when one can't be believed."""
    kept: list[bytes] = []
    following = offset
    for batch in batches:
        view = BatchView(batch)
        if wants is not None:
            view.verify()
        if view.kind == DATA and (wants is None or wants(view.topics())):
            kept.append(batch)
        following = max(following, view.next_offset)
    return kept, following


def _scan_file(staging: Staging, part: FilePart, found: Scanned) -> None:
    group = found.extents.group
    position = part.start
    index = part.first_index
    extents = found.extents
    length = min(max(extents.bytes_max, extents.piece_bytes_min), extents.piece_bytes_max)
    try:
        while position < part.stop and not found.is_over():
            asked = min(length, part.stop - position)
            piece = staging.disk.read(part.path, position, asked)
            taken, count, length = _scan_piece(piece, index, found)
            is_all = len(piece) < asked or asked == part.stop - position
            if not taken and not found.is_over() and (is_all or length <= len(piece)):
                raise BatchError("it ends there")
            position += taken
            index += count
    except FileNotFoundError:
        raise Again(f"A file of group {group} was removed while it was read. Ask again.") from None
    except (BatchError, OSError) as error:
        if not must_be_lost(error):
            raise NoReplica((), f"partition group {group}") from error
        # Damage, or a row of the sparse index that names the wrong place: reading from the front of the file tells.
        found.suspect = max(index, 1)
        found.finish()


def _scan_piece(piece: bytes, index: int, found: Scanned) -> tuple[int, int, int]:
    """Take what is whole in here: bytes and entries that were looked at, and how much to read next."""
    position = 0
    run = 0
    count = 0
    need = found.extents.piece_bytes_max
    end = len(piece)
    while end - position >= HEADER_BYTES and not found.is_over():
        view = BatchView(piece, position)
        is_beyond = found.is_beyond(view)
        if is_beyond or view.end > end:
            if not view.header_is_sound():
                raise BatchError("its header is damaged")
            if is_beyond:
                found.finish()
            need = max(need, view.size)
            break
        view.verify()
        if view.index != index + count:
            raise BatchError(f"it holds entry {view.index} there")
        if not found.takes(view):
            if run < position:
                found.pieces.append(memoryview(piece)[run:position])
            run = view.end
        if found.is_over():
            break
        position = view.end
        count += 1
    if run < position:
        found.pieces.append(memoryview(piece)[run:position])
    return position, count, need
