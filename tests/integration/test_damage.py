"""Bits that turn over in older segment files of real nodes: found, told, served from elsewhere, and brought back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.cli.doctor import FAIL, examine
from flockmq.client.log_client import LogClient
from flockmq.errors import Damaged
from flockmq.log.header import HEADER_BYTES
from flockmq.security import credentials
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

SEGMENT_BYTES = 65_536
OPTIONS = (f"--set=store.segment_bytes={SEGMENT_BYTES}", "--set=store.cache_bytes=65536", "--json")
RECORDS = 10
BATCHES = 40


def client_of(node: NodeProcess) -> LogClient:
    """Asks this very node."""
    url = f"http://{HOST}:{node.api_port}"
    file = str(node.folder / "credentials.toml")
    return LogClient(
        url,
        token_of=lambda asked: credentials.load(asked, {"FLOCKMQ_CREDENTIALS": file}),
        timeout_s=10,
        retry_s=5,
        named_first=True,
    )


def fill(node: NodeProcess, topic: str) -> list[bytes]:
    """Records in batches of about 10 KB each."""
    payloads = [b"%d:" % number + bytes(1_000) for number in range(RECORDS * BATCHES)]
    with client_of(node) as client:
        for at in range(0, len(payloads), RECORDS):
            client.publish(topic, [(f"{topic}/x", payload) for payload in payloads[at : at + RECORDS]])
    return payloads


def read_all(node: NodeProcess, topic: str, offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    with client_of(node) as client:
        while batches := client.read(topic, 0, offset, max_bytes=20_000).views:
            for view in batches:
                assert view.base_offset == offset
                found += [record.payload for record in view.records()]
                offset = view.next_offset
    return found


def segments(node: NodeProcess, group: int) -> list[Path]:
    return sorted((node.folder / "data" / "store" / "groups" / f"{group:016x}").glob("*.log"))


def content(node: NodeProcess, group: int) -> bytes:
    """All of a log that is in files: segments may be cut anywhere, what is in them is the same."""
    return b"".join(path.read_bytes() for path in segments(node, group))


def flip(path: Path, position: int) -> None:
    """Into the very file, as a disk would."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes((byte ^ 4,)))


def events(node: NodeProcess, kind: str, group: int) -> list[dict[str, object]]:
    lines = [line for line in node.log_file.read_text("utf-8").splitlines() if f'"{kind}"' in line]
    return [told for told in map(json.loads, lines) if told["partition"] == group]


def restart(cluster: NodeCluster) -> None:
    """In order, so that all there is is in segment files and no longer in memory."""
    for node in cluster.nodes:
        node.stop()
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        node.wait_ready()
    cluster.wait(cluster.sees_all, "all nodes to see each other")


def is_well(cluster: NodeCluster, group: int) -> bool:
    found = cluster.nodes[0].admin().partition(group)
    return found.healthy and not any(one.verdict == FAIL for one in examine(cluster.nodes[0].admin().cluster()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("nodes"), 3, OPTIONS) as nodes:
        nodes.wait_settled()
        yield nodes


@pytest.fixture(scope="module")
def copies(cluster: NodeCluster) -> tuple[int, list[bytes]]:
    """A partition on all nodes: its group, and its payloads."""
    made = cluster.create_topic("kept", replication_factor=3)
    payloads = fill(cluster.nodes[0], "kept")
    restart(cluster)
    cluster.wait(lambda: is_well(cluster, made.groups[0]), "a healthy partition")
    return made.groups[0], payloads


def test_a_flip_under_a_running_node_is_served_from_elsewhere_and_mended(
    cluster: NodeCluster, copies: tuple[int, list[bytes]]
) -> None:
    group, payloads = copies
    node = cluster.nodes[1]
    before = content(node, group)
    flip(segments(node, group)[1], SEGMENT_BYTES // 3)
    assert content(node, group) != before
    assert read_all(node, "kept") == payloads
    cluster.wait(lambda: content(node, group) == before, "the bytes to be back")
    cluster.wait(lambda: bool(events(node, "log_repaired", group)), "the log to tell")
    told = events(node, "log_damaged", group)[-1]
    assert (told["level"], told["partition"]) == ("error", group)
    assert str(told["file"]).endswith(segments(node, group)[1].name)
    cluster.wait(lambda: is_well(cluster, group), "a healthy partition")
    with client_of(node):
        metrics = node.admin().metrics()
    assert "flockmq_log_damaged_batches 0" in metrics
    assert "flockmq_log_repaired_batches_total 1" in metrics
    assert read_all(node, "kept") == payloads


def test_a_flip_while_a_node_is_stopped_is_found_by_the_scrub_and_mended(cluster: NodeCluster) -> None:
    made = cluster.create_topic("bounded", replication_factor=3, retention_bytes=4 * SEGMENT_BYTES)
    group = made.groups[0]
    fill(cluster.nodes[0], "bounded")
    # Retention needs a checkpoint: what is before that is not read when a node starts.
    cluster.wait(lambda: (cluster.nodes[0].admin().partition(group).first_offset or 0) > 0, "retention")
    restart(cluster)
    cluster.wait(lambda: is_well(cluster, group), "a healthy partition")
    node = cluster.nodes[2]
    node.stop()
    before = content(node, group)
    files = segments(node, group)
    flip(files[1], HEADER_BYTES // 2)  # the header of its first batch
    flip(files[0], SEGMENT_BYTES // 2)
    node.start()
    node.wait_ready()
    cluster.wait(cluster.sees_all, "all nodes to see each other")
    assert cluster.nodes[0].admin().scrub("bounded").replicas == 3
    cluster.wait(lambda: content(node, group) == before, "the bytes to be back")
    cluster.wait(lambda: len(events(node, "log_repaired", group)) == 2, "the log to tell")
    assert {Path(str(told["file"])).name for told in events(node, "log_damaged", group)} == {
        files[0].name,
        files[1].name,
    }
    cluster.wait(lambda: is_well(cluster, group), "a healthy partition")
    replicas = cluster.nodes[0].admin().partition(group).replicas
    assert all(one.scrubbed_at is not None and not one.scrubbing for one in replicas)


def test_a_flip_in_what_a_start_reads_is_told_and_filled_by_the_leader(
    cluster: NodeCluster, copies: tuple[int, list[bytes]]
) -> None:
    group, payloads = copies
    node = cluster.nodes[2]
    node.stop()
    flip(segments(node, group)[2], HEADER_BYTES // 2)
    node.start()
    node.wait_ready()
    cluster.wait(cluster.sees_all, "all nodes to see each other")
    cluster.wait(lambda: is_well(cluster, group), "a healthy partition")
    cluster.wait(lambda: bool(events(node, "log_damaged", group)), "the log to tell")
    assert read_all(node, "kept") == payloads


def test_without_another_replica_the_damage_is_named_and_the_rest_is_served(cluster: NodeCluster) -> None:
    made = cluster.create_topic("alone", replication_factor=1)
    payloads = fill(cluster.nodes[0], "alone")
    restart(cluster)
    group = made.groups[0]
    cluster.wait(lambda: cluster.nodes[0].admin().partition(group).leader is not None, "a leader")
    name = cluster.nodes[0].admin().partition(group).replicas[0].node
    node = next(one for one in cluster.nodes if one.name == name)
    flip(segments(node, group)[1], SEGMENT_BYTES // 3)
    with pytest.raises(Damaged, match="damaged") as caught:
        read_all(node, "alone")
    cluster.wait(lambda: bool(events(node, "log_damaged", group)), "the log to tell")
    damaged = events(node, "log_damaged", group)[-1]
    first, end = int(str(damaged["first_offset"])), int(str(damaged["end_offset"]))
    assert end - first == RECORDS
    assert (caught.value.first, caught.value.end) == (first, end)
    assert f"{first} to {end - 1}" in str(caught.value)
    assert f"read on from offset {end}" in str(caught.value)
    assert read_all(node, "alone", end) == payloads[end:]
    other = next(one for one in cluster.nodes if one.name != name)
    assert read_all(other, "alone", end) == payloads[end:]
    found = cluster.nodes[0].admin().partition(group)
    assert not found.healthy
    assert f"between offsets {first} and {end}" in found.problem
    assert any(one.verdict == FAIL and "damaged" in one.text for one in examine(cluster.nodes[0].admin().cluster()))
