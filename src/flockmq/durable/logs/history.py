"""Pieces of logs for the sessions that read them: from the replica here, or fetched and kept for a while.

```
 seek(group, offset, filters) --> where the next record may be that these match | None: a replica is being asked
 read(group, offset) --> the replica here | a kept piece | None: a fetch is under way, ``wake`` follows
                         OffsetGone: no replica that lives has the offset. Damaged: it is damaged on the only replica
```
Sessions that read the same partition share the pieces. What is kept and what is under way are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.durable.logs.fetching import Lost
from flockmq.durable.logs.local import named
from flockmq.durable.logs.locating import REPLICAS
from flockmq.durable.logs.seeking import Seek, Sought, is_askable
from flockmq.errors import Behind, Damaged, NoReplica, OffsetGone
from flockmq.log.batch import BatchView
from flockmq.log.starts import EARLIEST, Start
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.logs.fetching import Fetching
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.logs.locating import Locating
    from flockmq.durable.logs.seeking import Seeking
    from flockmq.peering.calls import Calls
    from flockmq.tasks import Task

CHUNK_BYTES: Final = 256 * 1024
"""What is read of a partition at once, unless a batch alone is larger."""
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
FETCHES_MAX: Final = 64
"""Fetches that are under way at once."""
NEAR_RECORDS: Final = 1_024
"""A session waits for the fetch of another one that stands so little before it."""
RETRY_MS: Final = 200
SOUGHT_MAX: Final = 1_024
"""Answers of other replicas that are kept."""


class Piece:
    """Batches of one partition."""

    def __init__(self, group: int, offset: int, batches: list[bytes]) -> None:
        self.group = group
        self.start = min(offset, BatchView(batches[0]).base_offset)
        self.end = BatchView(batches[-1]).next_offset
        self.batches = batches
        self.size = sum([len(batch) for batch in batches])


class History:
    """See the module."""

    def __init__(
        self,
        local: LocalLogs,
        locating: Locating,
        fetching: Fetching,
        seeking: Seeking,
        calls: Calls,
        wake: Callable[[], None],
    ) -> None:
        self._local = local
        self._locating = locating
        self._fetching = fetching
        self._seeking = seeking
        self._tasks = calls.tasks
        self._wake = wake
        self._pieces: dict[tuple[int, int], Piece] = {}
        self._bytes = 0
        self._under_way: set[tuple[int, int]] = set()
        self._gone: dict[int, int] = {}
        """By partition: where the log begins on all replicas."""
        self._lost: dict[int, Lost] = {}
        """By partition: records that are damaged on its only replica, which is on another node."""
        self._sought: dict[Seek, Sought] = {}
        self._seeks: set[Seek] = set()

    def seek(self, group: int, offset: int, filters: tuple[bytes, ...]) -> Sought | None:
        """Where the next record may be, from an offset on, that a filter matches; None: a replica is being asked."""
        question = Seek(group, offset, filters)
        if not is_askable(filters):
            return _anything(question)
        found = self._seeking.here(question) or self._sought.get(question)
        if found is None and question not in self._seeks and len(self._seeks) < FETCHES_MAX:
            self._tasks.start("seek of a session", self._ask(question))
        return found

    def _ask(self, question: Seek) -> Task[None]:
        self._seeks.add(question)
        try:
            found = (yield from self._seeking.seek([question]))[0]
        finally:
            self._seeks.discard(question)
        while len(self._sought) >= SOUGHT_MAX:
            del self._sought[next(iter(self._sought))]
        self._sought[question] = found or _anything(question)
        self._wake()

    def read(self, group: int, offset: int, bytes_max: int = CHUNK_BYTES) -> list[bytes] | None:
        """Batches from the one that holds ``offset`` on; None: they are on their way.

        OffsetGone: no replica has the offset any more. Damaged: the only replica can't give it back.
        """
        local = self._local
        if local.is_here(group) and local.first(group) <= offset < local.end(group):
            try:
                return local.read(group, offset, min(bytes_max, CHUNK_BYTES))
            except (OffsetGone, Behind, Damaged, NoReplica):
                end = local.lost_until(group, offset)
                if end:
                    raise Damaged(offset, end, named(group)) from None
        return self.fetch(group, offset, bytes_max)

    def fetch(self, group: int, offset: int, bytes_max: int = CHUNK_BYTES) -> list[bytes] | None:
        """The same, from other replicas."""
        for piece in self._pieces.values():
            if piece.group == group and piece.start <= offset < piece.end:
                return piece.batches
        first = self._gone.pop(group, 0)
        if offset < first:
            raise OffsetGone(first, f"Offset {offset} of {named(group)}")
        lost = self._lost.get(group)
        if lost is not None and lost.first <= offset < lost.end:
            del self._lost[group]
            raise Damaged(offset, lost.end, named(group))
        if len(self._under_way) < FETCHES_MAX and not self._is_near(group, offset):
            self._tasks.start("history", self._bring(group, offset, min(bytes_max, CHUNK_BYTES)))
        return None

    def _is_near(self, group: int, offset: int) -> bool:
        """Whether a fetch is under way that may bring this offset: sessions that stand near each other share it."""
        return any(one == group and 0 <= offset - start < NEAR_RECORDS for one, start in self._under_way)

    def _bring(self, group: int, offset: int, bytes_max: int) -> Task[None]:
        self._under_way.add((group, offset))
        try:
            yield from self._look_for(group, offset, bytes_max)
        finally:
            self._under_way.discard((group, offset))
        self._wake()

    def _look_for(self, group: int, offset: int, bytes_max: int) -> Task[None]:
        found = yield from self._fetching.fetch(group, offset, bytes_max)
        if found.batches:
            self._keep(Piece(group, offset, found.batches))
        elif isinstance(found.error, Lost):
            self._lost[group] = found.error
        elif not isinstance(found.error, OffsetGone):
            yield Sleep(RETRY_MS)
        else:
            begins = yield from self._locating.locate([group], Start(EARLIEST), REPLICAS)
            if group in begins and begins[group].first > offset:
                self._gone[group] = begins[group].first
            else:
                yield Sleep(RETRY_MS)

    def _keep(self, piece: Piece) -> None:
        self._bytes += piece.size
        old = self._pieces.pop((piece.group, piece.start), None)
        self._pieces[piece.group, piece.start] = piece
        self._bytes -= old.size if old is not None else 0
        while self._bytes > KEPT_BYTES_MAX and len(self._pieces) > 1:
            self._bytes -= self._pieces.pop(next(iter(self._pieces))).size


def _anything(question: Seek) -> Sought:
    """What a session does without an answer: it reads, and asks again a little further on."""
    return Sought(question.offset, question.offset + NEAR_RECORDS, CHUNK_BYTES, 0)
