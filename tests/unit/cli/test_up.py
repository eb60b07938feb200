"""`flockmq up` beside a cluster that it has started before."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.cli.main import run
from flockmq.client.local_cluster import STATE_FILE, LocalNode, read_cluster, write_cluster


def node(folder: Path, number: int, pid: int) -> LocalNode:
    place = folder / f"n{number}"
    place.mkdir(parents=True)
    return LocalNode(
        name=f"n{number}@127.0.0.1", folder=str(place), pid=pid, mqtt_port=1, ws_port=2, api_port=3, port=4
    )


@pytest.fixture
def half(tmp_path: Path) -> Iterator[Path]:
    """A cluster of two: the first runs, which is us, and the second has ended."""
    write_cluster(tmp_path, [node(tmp_path, 1, os.getpid()), node(tmp_path, 2, 0)])
    with (tmp_path / "n1" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        yield tmp_path


def test_another_number_of_nodes_than_there_are_is_refused(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_cluster(half)
    assert run(["up", "5", "--data-dir", str(half), "--detach"]) == 1
    said = capsys.readouterr().err
    assert "has 2 nodes, and some of them run" in said
    assert "For 5 nodes stop it first, with `flockmq down`" in said
    assert read_cluster(half) == before, "nothing was started"


def test_what_was_set_is_for_its_owner_alone(half: Path) -> None:
    for _ in range(2):
        write_cluster(half, read_cluster(half))
        assert (half / STATE_FILE).stat().st_mode & 0o777 == 0o600
