"""Batches out of files and memory, with and without a choice of names."""

from __future__ import annotations

import pytest

from flockmq.cluster.wanted_names import WantedNames
from flockmq.durable.logs.local import EngineLogs
from flockmq.log.batch import DATA, BatchView, control_batch
from flockmq.log.extents import FilePart
from flockmq.log.extents_reading import Again, filter_batches, scan_extents
from partition_cluster import Node, PartitionCluster

EVERYTHING = 1 << 20


def cluster_of(records: int) -> tuple[PartitionCluster, Node]:
    cluster = PartitionCluster(nodes=4, groups=1)
    cluster.fill(1, records)
    return cluster, cluster.nodes[2]


def forget_memory(node: Node) -> None:
    """Only files are left."""
    node.store.request_checkpoint()
    node.write()
    for index in list(node.store.groups[1].recent):
        del node.store.groups[1].recent[index]


def views_of(data: bytes) -> list[BatchView]:
    views: list[BatchView] = []
    while not views or views[-1].end < len(data):
        views.append(BatchView(data, views[-1].end if views else 0))
    return views


def scan(local: EngineLogs, node: Node, offset: int, bytes_max: int) -> bytes:
    return scan_extents(node.store.staging, local.extents(1, offset, bytes_max)).data()


@pytest.mark.parametrize("cached", [True, False])
def test_extents_hold_what_a_read_would_give(cached: bool) -> None:
    cluster, node = cluster_of(120)
    if not cached:
        forget_memory(node)
        cluster.fill(1, 3)
    assert len(node.store.groups[1].segments) > 3
    for offset in (0, 17, 64, 119):
        wanted = node.local.read(1, offset, EVERYTHING)
        assert scan(node.local, node, offset, EVERYTHING) == b"".join(wanted)
        some = scan_extents(node.store.staging, node.local.extents(1, offset, 2_000))
        assert some.size == len(some.data()) <= 2_000
        assert b"".join(wanted).startswith(some.data())
        assert some.next_offset == views_of(some.data())[-1].next_offset
    assert scan(node.local, node, node.local.end(1), EVERYTHING) == b""


@pytest.mark.parametrize("cached", [True, False])
def test_one_batch_comes_however_little_was_asked_for(cached: bool) -> None:
    _, node = cluster_of(60)
    if not cached:
        forget_memory(node)
    for offset in range(60):
        [view] = views_of(scan(node.local, node, offset, 1))
        assert view.base_offset == offset


def test_what_is_read_is_verified() -> None:
    _, node = cluster_of(60)
    forget_memory(node)
    extents = node.local.extents(1, 0, EVERYTHING)
    part = extents.parts[0]
    assert isinstance(part, FilePart)
    position = part.start + 150
    byte = node.disk.read(part.path, position, 1)[0]
    node.disk.write(part.path, position, bytes((byte ^ 1,)))
    found = scan_extents(node.store.staging, extents)
    assert (found.data(), found.next_offset, found.suspect > 0) == (b"", 0, True)
    node.disk.remove(part.path)
    with pytest.raises(Again):
        scan_extents(node.store.staging, extents)


def test_a_file_that_is_too_short_is_told() -> None:
    _, node = cluster_of(60)
    forget_memory(node)
    extents = node.local.extents(1, 0, EVERYTHING)
    part = extents.parts[0]
    assert isinstance(part, FilePart)
    whole = scan_extents(node.store.staging, extents).data()
    node.disk.truncate(part.path, part.stop - 50)
    found = scan_extents(node.store.staging, extents)
    assert found.suspect
    assert whole.startswith(found.data())


@pytest.mark.parametrize("size", [100, 3_000, 20_000])
def test_batches_larger_than_a_piece(size: int) -> None:
    cluster, node = cluster_of(1)
    for _ in range(3):
        cluster.publish(1, 1, bytes(size))
        cluster.run(200)
    one = len(node.local.read(1, 1, 1)[0])
    forget_memory(node)
    for bytes_max, count in ((1, 1), (one, 1), (2 * one, 2), (3 * one - 1, 2), (EVERYTHING, 3)):
        extents = node.local.extents(1, 1, bytes_max)
        extents.piece_bytes_min, extents.piece_bytes_max = 512, 4_096
        found = scan_extents(node.store.staging, extents)
        views = views_of(found.data())
        assert [view.base_offset for view in views] == list(range(1, 1 + count))
        assert found.next_offset == 1 + count


def mixed(cached: bool) -> Node:
    """Every fifth batch is of another topic."""
    cluster, node = cluster_of(0)
    for number in range(40):
        name = b"t/rare" if number % 5 == 0 else b"t/often"
        cluster.publish(1, 1, b"%d" % number, topic=name)
        cluster.run(50)
    cluster.run(500)
    assert node.local.end(1) == 40
    if not cached:
        forget_memory(node)
    return node


@pytest.mark.parametrize("cached", [True, False])
def test_batches_without_a_wanted_name_are_left_out(cached: bool) -> None:
    node = mixed(cached)
    extents = node.local.extents(1, 0, EVERYTHING)
    found = scan_extents(node.store.staging, extents, WantedNames([b"t/rare"]).wants_any)
    assert [view.base_offset for view in views_of(found.data())] == list(range(0, 40, 5))
    assert found.next_offset == 40
    nothing = scan_extents(node.store.staging, extents, WantedNames([b"else/#"]).wants_any)
    assert (nothing.data(), nothing.next_offset) == (b"", 40)


@pytest.mark.parametrize("cached", [True, False])
def test_a_scan_that_finds_nothing_ends_and_goes_on_where_it_ended(cached: bool) -> None:
    node = mixed(cached)
    wanted = WantedNames([b"t/rare"])
    offset = 1
    steps: list[int] = []
    kept: list[int] = []
    while offset < 40:
        extents = node.local.extents(1, offset, 1, scan_bytes_max=500)
        found = scan_extents(node.store.staging, extents, wanted.wants_any)
        assert found.looked_at < 1_000
        assert found.next_offset > offset
        kept += [view.base_offset for view in views_of(found.data())] if found.size else []
        offset = found.next_offset
        steps.append(offset)
    assert kept == list(range(5, 40, 5))
    assert len(steps) > 8


def test_batches_from_elsewhere_are_filtered_alike() -> None:
    node = mixed(cached=True)
    batches = [*node.local.read(1, 0, EVERYTHING), control_batch(DATA + 1)]
    kept, following = filter_batches(batches, 3, WantedNames([b"t/rare"]).wants_any)
    assert [BatchView(one).base_offset for one in kept] == list(range(0, 40, 5))
    assert following == 40
    assert filter_batches([], 3, None) == ([], 3)
