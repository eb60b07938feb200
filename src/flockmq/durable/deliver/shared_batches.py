"""Batches that sessions read at about the same time: fetched once, decoded once, each filter decided once.

Not about ``$share`` groups: ``routing/shared.py`` chooses the member that gets a message.

```
 read(group, offset) --> a kept Chunk that holds the offset, or History.read, which is kept then
 SharedBatch    filter --> names of the batch that it matches
                filters --> spans: consecutive records of one name, flags and properties
                span, version of MQTT --> Piece, whose run all these sessions share
```
What is kept is bounded in bytes, with the runs that were made; the chunk that was kept first makes room.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, Protocol

from flockmq.durable.deliver.decoding import BatchDecoder, Piece
from flockmq.durable.logs.history import CHUNK_BYTES
from flockmq.log.batch import BatchView
from flockmq.mqtt.topics import has_wildcard
from flockmq.routing.names import Named, NameTree

SPAN_RECORDS: Final = 256
"""Records of a run at most: sessions that stand apart by less share it but for their first part."""
KEPT_BYTES_MAX: Final = 16 * 1_024 * 1_024
CHUNKS_MAX: Final = 64
"""Chunks of one partition that are kept."""
FILTERS_MAX: Final = 4_096
"""Filters, and sets of filters, of which a batch keeps what they match."""
RECORD_BYTES: Final = 64
"""About what a decoded record takes beside its payload."""
NO_NAMES: Final[list[int]] = []


class Reads(Protocol):
    """Where batches come from: a ``History``."""

    def read(self, group: int, offset: int, bytes_max: int) -> list[bytes] | None:
        """Batches from the one that holds ``offset`` on; None: they are on their way."""


class Tally:
    """Bytes that all kept batches take."""

    def __init__(self) -> None:
        self.kept = 0


class _Name(Named):
    """A name of a batch, with its number there."""

    def __init__(self, topic: bytes, index: int) -> None:
        super().__init__(topic)
        self.index = index


class _Spans:
    """Where the records of a batch are cut, by position from its first record on."""

    def __init__(self, decoder: BatchDecoder, by_client: bool) -> None:
        self.ends: dict[int, int] = {}
        """By the position of its first record, where a span ends."""
        self.by_name: dict[int, list[int]] = {}
        self.pieces: dict[int, Piece] = {}
        """By position and version of MQTT."""
        self.selected: dict[tuple[bytes, ...], list[int]] = {}
        start = 0
        for end in decoder.cuts(by_client, SPAN_RECORDS):
            self.ends[start] = end
            self.by_name.setdefault(decoder.topic_at(start), []).append(start)
            start = end


class SharedBatch:
    """One batch; see the module."""

    def __init__(self, batch: bytes, tally: Tally) -> None:
        view = BatchView(batch)
        self.base = view.base_offset
        self.end = view.next_offset
        self.size = len(batch)
        self._batch = batch
        self._tally = tally
        self._decoder: BatchDecoder | None = None
        self._names: dict[bytes, int] = {}
        self._tree: NameTree[_Name] | None = None
        self._matching: dict[bytes, list[int]] = {}
        self._spans: dict[bool, _Spans] = {}
        self._wall_offset_ms = 0

    def decoder(self) -> BatchDecoder:
        """The batch, decoded at first need."""
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = BatchDecoder(self._batch)
            self._names = {name: index for index, name in enumerate(decoder.topics)}
        return decoder

    def names_of(self, topic_filter: bytes) -> list[int]:
        """The numbers of the names that a filter matches."""
        self.decoder()
        if not has_wildcard(topic_filter):
            index = self._names.get(topic_filter)
            return NO_NAMES if index is None else [index]
        found = self._matching.get(topic_filter)
        if found is None:
            tree = self._tree
            if tree is None:
                tree = self._tree = NameTree()
                for name, index in self._names.items():
                    tree.set(_Name(name, index))
            if len(self._matching) >= FILTERS_MAX:
                self._matching.clear()
            found = sorted([name.index for name in tree.match(topic_filter)])
            self._matching[topic_filter] = found
        return found

    def pieces(
        self, filters: tuple[bytes, ...], low: int, high: int, version: int, by_client: bool, wall_offset_ms: int
    ) -> list[Piece]:
        """Runs of the records from offset ``low`` to ``high`` whose names these filters match, in order.

        A message that expired may be among them.
        """
        spans = self._spans_for(by_client, wall_offset_ms)
        selected = spans.selected.get(filters)
        if selected is None:
            if len(spans.selected) >= FILTERS_MAX:
                spans.selected.clear()
            names: set[int] = set()
            for topic_filter in filters:
                names.update(self.names_of(topic_filter))
            selected = []
            for index in names:
                selected += spans.by_name.get(index, NO_NAMES)
            selected.sort()
            spans.selected[filters] = selected
        found: list[Piece] = []
        place = max(bisect_right(selected, low - self.base) - 1, 0)
        while place < len(selected) and self.base + selected[place] < high:
            start = selected[place]
            place += 1
            if self.base + spans.ends[start] > low:
                found.append(within(self._piece(spans, start, version), low, high))
        return found

    def _spans_for(self, by_client: bool, wall_offset_ms: int) -> _Spans:
        if wall_offset_ms != self._wall_offset_ms:  # runs have the time at which they expire by this node's clock
            self._wall_offset_ms = wall_offset_ms
            self._spans.clear()
        spans = self._spans.get(by_client)
        if spans is None:
            self._count(self.decoder().view.count * RECORD_BYTES)
            spans = self._spans[by_client] = _Spans(self.decoder(), by_client)
        return spans

    def _piece(self, spans: _Spans, start: int, version: int) -> Piece:
        piece = spans.pieces.get(start << 3 | version)
        if piece is None:
            piece = self.decoder().piece(start, spans.ends[start], version, self._wall_offset_ms)
            self._count(len(piece.run.wire))
            spans.pieces[start << 3 | version] = piece
        return piece

    def _count(self, size: int) -> None:
        self.size += size
        self._tally.kept += size


class Chunk:
    """Batches that were read at once."""

    def __init__(self, group: int, batches: list[SharedBatch]) -> None:
        self.group = group
        self.batches = batches
        self.start = batches[0].base
        self.end = batches[-1].end


class SharedBatches:
    """The kept batches of all partitions; see the module."""

    def __init__(self, history: Reads, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._history = history
        self._bytes_max = bytes_max
        self._chunks: dict[int, list[Chunk]] = {}
        self._order: dict[Chunk, None] = {}
        self._tally = Tally()
        self.hits = 0
        """Reads that a kept chunk served,"""
        self.reads = 0
        """those that brought batches of a log,"""
        self.read_bytes = 0
        """and how large these batches were."""

    def kept_bytes(self) -> int:
        """Bytes of all kept chunks."""
        return self._tally.kept

    def read(self, group: int, offset: int, bytes_max: int = CHUNK_BYTES) -> list[SharedBatch] | None:
        """Batches from the one that holds ``offset`` on; None: they are on their way. Raises as ``History.read``."""
        chunks = self._chunks.setdefault(group, [])
        for chunk in reversed(chunks):
            if chunk.start <= offset < chunk.end:
                self.hits += 1
                return chunk.batches
        batches = self._history.read(group, offset, bytes_max)
        if not batches:
            return None
        chunk = Chunk(group, [SharedBatch(batch, self._tally) for batch in batches])
        size = sum([len(batch) for batch in batches])
        self._tally.kept += size
        self.reads += 1
        self.read_bytes += size
        if chunk.end <= offset:
            self._drop(chunk)
            return chunk.batches
        chunks.append(chunk)
        self._order[chunk] = None
        if len(chunks) > CHUNKS_MAX:
            self._forget(chunks[0])
        while self._tally.kept > self._bytes_max and len(self._order) > 1:
            self._forget(next(iter(self._order)))
        return chunk.batches

    def clear(self) -> None:
        """No session reads any more."""
        self._chunks.clear()
        self._order.clear()
        self._tally = Tally()

    def _forget(self, chunk: Chunk) -> None:
        del self._order[chunk]
        self._chunks[chunk.group].remove(chunk)
        self._drop(chunk)

    def _drop(self, chunk: Chunk) -> None:
        for batch in chunk.batches:
            self._tally.kept -= batch.size


def within(piece: Piece, low: int, high: int) -> Piece:
    """The part of a piece from offset ``low`` to ``high``; itself if that is all of it."""
    if piece.offset >= low and piece.end <= high:
        return piece
    low = max(low, piece.offset)
    run = piece.run.part(low - piece.offset, min(high, piece.end) - piece.offset)
    return Piece(run, low, piece.topic_index, piece.client)
