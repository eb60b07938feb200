"""The pages of the documentation, as tests read them: links, headings, prose."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
GENERATED: Final = frozenset(
    ROOT / "docs/reference" / name
    for name in ("cli.md", "configuration.md", "conformance.md", "metrics.md", "rest-api.md")
)
"""Written by the code that they describe; other tests compare them with it."""
_FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


def all_pages() -> list[Path]:
    """README, CONTRIBUTING and every page under docs/."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[str]:
    """Targets of the relative links of a page, in order, examples in code left out."""
    found = _LINK.findall(_CODE.sub("", _FENCE.sub("", page.read_text("utf-8"))))
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """What `#...` of a link to this page may say: headings, spelled as GitHub does."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def target(page: Path, link: str) -> Path:
    """The file or folder that a relative link of a page leads to."""
    path = link.partition("#")[0]
    return (page.parent / path).resolve() if path else page


def prose(page: Path) -> list[str]:
    """Paragraphs and list items of a page: no code, no tables, no headings; one line each."""
    text = _FENCE.sub("\n", page.read_text("utf-8"))
    lines = ["" if re.match(r"\s*(\||#|<)", line) else line for line in text.split("\n")]
    lines = [re.sub(r"^\s*(?:[-*]|\d+\.) +", "\n", line) for line in lines]
    parts = re.split(r"\n\s*\n", "\n".join(lines))
    return [" ".join(part.split()) for part in parts if part.strip()]


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; a title in bold counts for none, and dots inside code end none."""
    plain = _CODE.sub("x", re.sub(r"^\*\*[^*]+\*\*", "", paragraph))
    return [one for one in re.split(r"(?<=[.!?])[)*_]*\s+(?=[A-Z*_(\[x0-9])", plain) if one.strip()]
