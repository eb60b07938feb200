"""What a node writes is its user's alone: files 0600, folders 0700, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.client.mqtt import MqttClient, Options
from flockmq.testing.nodes import HOST, NodeCluster


@pytest.fixture(autouse=True)
def _common_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """All under a folder that others can read, write or enter."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}
    return {str(path.relative_to(folder)): oct(mode) for path, mode in modes.items() if mode & 0o077}


async def store_something(port: int) -> None:
    async with await MqttClient.connect(Options(host=HOST, port=port, client_id="c")) as client:
        await client.publish("kept", b"retained", qos=1, retain=True)
        await client.publish("safe/1", b"durable", qos=1)


async def test_all_that_a_node_keeps_is_private_also_what_older_ones_left_open(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 1) as cluster:
        node = cluster.nodes[0]
        cluster.create_topic("safe", filters=["safe/#"])
        await store_something(node.mqtt_port)
        data = node.folder / "data"
        cluster.wait((data / "retained.db-wal").exists, "retained messages on disk")
        assert open_to_others(data) == {}
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        node.stop()
        assert open_to_others(data) == {}
        (data / "retained.db").chmod(0o644)
        (data / "store").chmod(0o755)
        (data / "node_id").chmod(0o664)
        (data / "notes of an operator").touch(0o644)
        node.start()
        node.wait_ready()
        assert open_to_others(data) == {"notes of an operator": "0o644"}
