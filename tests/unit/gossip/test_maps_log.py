"""The log of a map and its pieces, against obvious lists."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flockmq.gossip.maps_codec import FULL_BYTES, FullHead, decode_entries
from flockmq.gossip.maps_log import SEGMENT_BYTES, SegmentLog, Snapshot


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300)), max_size=40), st.integers(0, 2_000))
def test_the_log_keeps_the_newest_without_gaps(turns: list[tuple[int, int]], bytes_max: int) -> None:
    log = SegmentLog(bytes_max)
    version = 0
    ends = {0: 0}
    for changes, size in turns:
        before = ends[version]
        log.append(version, version + changes, bytes(size))
        version += changes
        ends[version] = before + size + SEGMENT_BYTES
        segments = log.segments
        assert sum(len(one.body) + SEGMENT_BYTES for one in segments) <= bytes_max
        assert all(one.last == two.first for one, two in pairwise(segments))
        assert not segments or segments[-1].last == version
        firsts = [one.first for one in segments]
        lasts = [one.last for one in segments]
        for asked in range(version + 2):
            assert log.index_of(asked) == (firsts.index(asked) if asked in firsts else -1)
            assert log.end_at(asked) == (ends[asked] if asked in firsts + lasts else -1)


def test_a_cleared_log_leads_on_from_nowhere() -> None:
    log = SegmentLog(1_000)
    log.append(0, 2, b"x")
    log.clear()
    assert log.index_of(0) == -1
    assert log.end_at(2) == -1
    log.append(7, 8, b"y")
    assert log.index_of(7) == 0


@given(st.dictionaries(st.binary(max_size=20), st.binary(max_size=20), max_size=30))
def test_pieces_add_up_to_the_map(entries: dict[bytes, bytes]) -> None:
    snapshot = Snapshot(7, 8, 9, entries, 100)
    wanted = dict(entries)
    entries.clear()  # a map goes on changing while it is sent
    found: dict[bytes, bytes | None] = {}
    index = 0
    while True:
        body = snapshot.chunk(index)
        assert len(body) <= 100
        head = FullHead(body)
        assert (head.index, head.last) == (index, snapshot.is_last(index))
        found.update(decode_entries(body, FULL_BYTES, head.count, 20, 20))
        if head.last:
            break
        index += 1
    assert found == wanted
    assert snapshot.chunk(0) == snapshot.chunk(0)
