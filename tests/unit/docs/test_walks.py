"""The walks name calls that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py):(\w+)`", (ROOT / "docs/internals/walks.md").read_text("utf-8"))))


@pytest.mark.parametrize(("file", "function"), NAMED, ids=str)
def test_each_call_of_a_walk_exists(file: str, function: str) -> None:
    tree = ast.parse((ROOT / "src/flockmq" / file).read_text("utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert function in defined
