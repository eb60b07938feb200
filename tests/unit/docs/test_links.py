"""Every page can be found from README, and no link leads nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_pages import ROOT, all_pages, anchors, links, target


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    for link in links(page):
        found = target(page, link)
        assert found.exists(), link
        anchor = link.partition("#")[2]
        assert not anchor or anchor in anchors(found), link


def test_every_page_is_reachable_from_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md" and page.exists():
            seen.add(page)
            waiting += [target(page, link) for link in links(page)]
    assert set(all_pages()) <= seen, sorted(set(all_pages()) - seen)


def test_readme_is_a_landing_page() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150
