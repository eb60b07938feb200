"""The walks name calls that exist, and a message goes through the calls that they name."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/internals/walks.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py):(\w+)`", PAGE)))
ROW = re.compile(r"^\| (\d+) \| `([\w/]+\.py:\w+)` \|", re.MULTILINE)
COUNTS = re.compile(r"(\d+) calls in (\d+) files")
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
MOST = {
    "A QoS 0 publish on one node": (15, 8),
    "A durable QoS 1 publish": (60, 18),
    "A Spark micro-batch": (30, 12),
    "A node dies": (20, 8),
}
"""Calls and files: a reader follows a walk in one sitting."""
RECORDED = ("A QoS 0 publish on one node", "A durable QoS 1 publish")


@pytest.mark.parametrize(("file", "function"), NAMED, ids=str)
def test_each_call_of_a_walk_exists(file: str, function: str) -> None:
    tree = ast.parse((ROOT / "src/flockmq" / file).read_text("utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert function in defined


@pytest.mark.parametrize("title", SECTIONS)
def test_a_walk_is_numbered_and_counted(title: str) -> None:
    rows = ROW.findall(SECTIONS[title])
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    counts = (len(rows), len({call.partition(":")[0] for _, call in rows}))
    assert all(count <= most for count, most in zip(counts, MOST[title], strict=True))
    counted = COUNTS.search(SECTIONS[title])
    assert counted is not None
    assert counted.groups() == (str(counts[0]), str(counts[1]))


def test_messages_go_through_the_calls_of_the_page() -> None:
    """Only plain Python shows its calls. The harness stands in for drivers."""
    done = subprocess.run(
        [sys.executable, "-m", "flockmq.testing.walks"],
        env={**os.environ, "FLOCKMQ_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    recorded = {part.partition(":")[0].strip(): part.splitlines()[1:] for part in done.stdout.split("# ")[1:]}
    for title in RECORDED:
        named = [call for _, call in ROW.findall(SECTIONS[title]) if not call.startswith("drivers/")]
        assert set(named) == set(recorded[title]), title
