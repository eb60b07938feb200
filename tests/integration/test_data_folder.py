"""A data folder that can't be written: one sentence at a start, and no traceback while a node runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flockmq.admin.durable_model import TopicRequest
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

DROP_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Root may write everywhere; a root without capabilities is a user like others."""


@pytest.fixture
def node(tmp_path: Path) -> NodeProcess:
    if os.getuid() == 0 and shutil.which(DROP_RIGHTS[0]) is None:
        pytest.skip("setpriv is not installed, and root may write everywhere")
    like = NodeCluster(tmp_path / "ports", 1)
    (one,) = like.nodes
    prefix = DROP_RIGHTS if os.getuid() == 0 else ()
    ports = (one.mqtt_port, one.api_port, one.port)
    environment = {"FLOCKMQ_COOKIE": like.cookie}
    return NodeProcess(tmp_path / "n1", one.name, ports, [f"--host={HOST}"], environment, prefix)


def set_mode(folder: Path, mode: int) -> None:
    for path, _, _ in os.walk(folder):
        Path(path).chmod(mode)


def test_a_folder_that_turns_read_only_is_a_sentence(node: NodeProcess, tmp_path: Path) -> None:
    data = node.folder / "data"
    waiting = NodeCluster(tmp_path / "waiting", 0)
    try:
        node.start()
        node.wait_ready()
        node.admin().create_topic(TopicRequest(name="plant"))
        set_mode(data, 0o500)
        node.admin().create_topic(TopicRequest(name="later"))
        waiting.wait(lambda: "data_folder_not_writable" in node.log_tail(), "word of it")
        node.admin().create_topic(TopicRequest(name="goes-on"))
        assert node.stop() == 0
        node.start()
        waiting.wait(lambda: not node.is_running, "the start to fail")
        assert node.process is not None
        assert node.process.returncode == 1
        assert f"The data folder {data} can't be written" in node.log_tail()
        said = node.log_file.read_text("utf-8")
        assert "Traceback" not in said
        assert "mistake in FlockMQ" not in said
        set_mode(data, 0o700)
        node.start()
        node.wait_ready()
        assert len(list(node.admin().topics())) == 3
    finally:
        node.close()
        set_mode(data, 0o700)
