"""Nodes that one command starts on this machine: which ports they get, and that none of them stays behind."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from flockmq.client.local_cluster import (
    LAST_FILE,
    WS_STEP,
    Ports,
    ports_of,
    read_cluster,
    start_cluster,
    start_ended,
    stop_cluster,
    stop_nodes,
    usable_ports,
    wait_ready,
)
from flockmq.testing.ports import free_ports


@pytest.mark.xdist_group("default-ports")
def test_ports_are_beyond_those_that_did_not_serve() -> None:
    first = usable_ports(3)
    second = usable_ports(3, tried=first)
    assert second.mqtt > first.mqtt
    with socket.create_server(("127.0.0.1", second.mqtt + 2)):
        assert usable_ports(3, tried=first).mqtt > second.mqtt


def ports_for_two() -> Ports:
    """First ports for two nodes; the WebSockets of the second are two ports on."""
    found: list[int] = []
    while len(found) < 4:
        first, _, third = free_ports(3)
        if third == first + WS_STEP:
            found.append(first)
    mqtt, ws, api, node = found
    return Ports(mqtt=mqtt, ws=ws, api=api, node=node)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_node_that_only_just_starts_is_stopped_too(tmp_path: Path) -> None:
    environment = {"FLOCKMQ_COOKIE": secrets.token_hex(32), "FLOCKMQ_CREDENTIALS": str(tmp_path / "credentials.toml")}
    (node,) = start_cluster(tmp_path, 1, Ports(mqtt=0, ws=0, api=0, node=0), ["--allow-anonymous"], environment)
    assert [one.name for one, _ in stop_cluster(tmp_path)] == [node.name]
    with pytest.raises(ProcessLookupError):
        os.kill(node.pid, 0)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_node_that_ended_is_started_again_beside_the_others(tmp_path: Path) -> None:
    environment = {"FLOCKMQ_COOKIE": secrets.token_hex(32), "FLOCKMQ_CREDENTIALS": str(tmp_path / "credentials.toml")}
    options = ["--allow-anonymous", "--set=limits.topic_aliases_max=77"]
    ports = ports_for_two()
    first, second = start_cluster(tmp_path, 2, ports, options, environment)
    try:
        list(wait_ready([first, second]))
        assert start_ended(tmp_path, environment=environment) == [], "all of them run"
        [(_, orderly)] = stop_nodes([second])
        assert orderly
        (again,) = start_ended(tmp_path, environment=environment)
        list(wait_ready([again]))
        assert first.is_running(), "nobody touched it"
        assert read_cluster(tmp_path) == [first, again]
        assert again == replace(second, pid=again.pid), "the same name, folder, ports and settings"
    finally:
        list(stop_cluster(tmp_path))
    assert start_ended(tmp_path, environment=environment) == [], "there is none any more"
    last = read_cluster(tmp_path, LAST_FILE)
    assert (last, ports_of(last)) == ([first, again], ports), "where it was is known"
    assert (tmp_path / "n1").stat().st_mode & 0o077 == 0
