"""The index of sections in docs/internals/raft.md is complete: each has tests where it says, and no test is missing."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "internals" / "raft.md"
ROW = re.compile(r"^\| ((?:thesis )?\d+(?:\.\d+)*) \|[^|]*\| (.*) \|$", re.MULTILINE)
TEST = re.compile(r"^def test_((?:thesis_)?\d+(?:_\d+)*)_", re.MULTILINE)


def test_each_section_has_its_tests_and_each_test_its_section() -> None:
    promised = {
        (section.replace(" ", "_").replace(".", "_"), name)
        for section, names in ROW.findall(PAGE.read_text())
        for name in re.findall(r"`(\w+)`", names)
    }
    found = {(section, path.stem) for path in HERE.glob("test_*.py") for section in TEST.findall(path.read_text())}
    assert promised == found
