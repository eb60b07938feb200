from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.config.reference import field_docs, reference
from flockmq.config.schema import SECTIONS, section_keys

PAGE = Path(__file__).parents[3] / "docs/reference/configuration.md"


def test_the_page_is_what_the_dataclasses_say() -> None:
    assert PAGE.read_text("utf-8") == reference(), "write it anew with python -m flockmq.config.reference"


@pytest.mark.parametrize("path", SECTIONS, ids=".".join)
def test_every_setting_tells_what_it_trades(path: tuple[str, ...]) -> None:
    docs = field_docs(SECTIONS[path])
    assert not [key.path[-1] for key in section_keys(path) if not docs.get(key.path[-1])]
