"""Python files that pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs_pages import GENERATED, ROOT, all_pages

NAMED = re.compile(r"`((?:\w+/)*\w+\.py)`")
FILES = [f"/{file.relative_to(ROOT)}" for top in ("src", "tests", "benchmarks") for file in (ROOT / top).rglob("*.py")]
FILES.append("/setup.py")


@pytest.mark.parametrize("page", [page for page in all_pages() if page not in GENERATED], ids=lambda page: page.stem)
def test_named_files_exist(page: Path) -> None:
    named = set(NAMED.findall(page.read_text("utf-8")))
    assert not [name for name in named if not any(file.endswith(f"/{name}") for file in FILES)]
