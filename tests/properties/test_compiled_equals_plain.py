"""The compiled broker and the plain one, byte for byte, under the same random loads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import flockmq.node.broker

SEEDS = 30


def fingerprints(pure: str) -> str:
    command = [sys.executable, "-m", "flockmq.testing.trace", "--seeds", str(SEEDS)]
    environment = {**os.environ, "FLOCKMQ_PURE": pure}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(
    (flockmq.node.broker.__file__ or "").endswith(".py"), reason="this run is of the plain build: nothing to compare"
)
def test_compiled_equals_plain() -> None:
    compiled = fingerprints("0")
    assert len(compiled.splitlines()) == SEEDS
    assert compiled == fingerprints("1")


def test_one_seed_gives_one_trace() -> None:
    from flockmq.testing.trace import trace

    assert len({trace(7) for _ in range(3)}) == 1
    assert trace(7) != trace(8)
