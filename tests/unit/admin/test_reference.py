from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.admin.reference import metrics_page, rest_page

DOCS = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize(("name", "text"), [("rest-api.md", rest_page()), ("metrics.md", metrics_page())])
def test_the_page_in_docs_is_the_one_made_from_the_tables(name: str, text: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == text, (
        f"docs/reference/{name} is behind; run `python -m flockmq.admin.reference docs/reference`"
    )


@pytest.mark.parametrize("text", [rest_page(), metrics_page()])
def test_tables_have_as_many_cells_in_each_row(text: str) -> None:
    width = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.count("|")
        assert width in (0, cells), line
        width = cells
