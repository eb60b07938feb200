"""Pages are plain technical English: each sentence names its actor, each paragraph says one thing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from docs_pages import GENERATED, ROOT, all_pages, prose, sentences

HAND_WRITTEN: Final = [page for page in all_pages() if page not in GENERATED]
SENTENCES_MAX: Final = 3
_VAGUE: Final = re.compile(r"\b(somebody|nobody|whoever|whomever|everybody|anybody)\b", re.IGNORECASE)
_BARE_WHO: Final = re.compile(
    r"(?<!\bperson )(?<!\bpeople )(?<!\buser )(?<!\busers )(?<!\boperator )(?<!\boperators )(?<!`)\bwho\b(?! = )",
    re.IGNORECASE,
)
"""Fine after a noun that means people; `who = "all"` is a key of ACL rules."""


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_name_their_actor(page: Path) -> None:
    text = page.read_text("utf-8")
    if page.name == "glossary.md":
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)  # its tables list the words to avoid
    assert not _VAGUE.findall(text)
    assert not [text[found.start() - 30 : found.end() + 30] for found in _BARE_WHO.finditer(text)]


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_paragraphs_are_short(page: Path) -> None:
    assert not [part[:80] for part in prose(page) if len(sentences(part)) > SENTENCES_MAX]
