"""Nodes that one command starts on this machine: which ports they get, and that none of them stays behind."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

import pytest

from flockmq.client.local_cluster import Ports, start_cluster, stop_cluster, usable_ports


@pytest.mark.xdist_group("default-ports")
def test_ports_are_beyond_those_that_did_not_serve() -> None:
    first = usable_ports(3)
    second = usable_ports(3, tried=first)
    assert second.mqtt > first.mqtt
    with socket.create_server(("127.0.0.1", second.mqtt + 2)):
        assert usable_ports(3, tried=first).mqtt > second.mqtt


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_node_that_only_just_starts_is_stopped_too(tmp_path: Path) -> None:
    environment = {"FLOCKMQ_COOKIE": secrets.token_hex(32), "FLOCKMQ_CREDENTIALS": str(tmp_path / "credentials.toml")}
    (node,) = start_cluster(tmp_path, 1, Ports(mqtt=0, ws=0, api=0, node=0), ["--allow-anonymous"], environment)
    assert [one.name for one, _ in stop_cluster(tmp_path)] == [node.name]
    with pytest.raises(ProcessLookupError):
        os.kill(node.pid, 0)
