from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

from flockmq.admin.docs_page import page_headers, render_page
from flockmq.admin.openapi import build_openapi
from flockmq.admin.routes import OPERATIONS

OPENAPI = build_openapi(OPERATIONS, "1.2.3")
PAGE = render_page(OPENAPI)


class Links(HTMLParser):
    """Collects what a browser would load or follow, and checks that tags are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in {"meta"}:
            self.open.append(tag)
        for name, value in attrs:
            if name == "src" or (tag == "link" and name == "href"):
                self.loaded.append(value or "")
            if tag == "a" and name == "href" and value and value.startswith("#"):
                self.targets.add(value[1:])
            if name == "id" and value:
                self.anchors.add(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed() -> Links:
    links = Links()
    links.feed(PAGE)
    return links


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    links = parsed()
    assert links.loaded == []
    assert "script" not in links.tags
    assert "url(" not in PAGE
    assert "@import" not in PAGE


def test_tags_are_balanced_and_links_lead_somewhere() -> None:
    links = parsed()
    assert links.open == []
    assert links.targets <= links.anchors


def test_every_operation_and_schema_has_its_place() -> None:
    anchors = parsed().anchors
    assert {one.name for one in OPERATIONS} <= anchors
    assert {f"schema-{name}" for name in OPENAPI["components"]["schemas"]} <= anchors


def test_the_policy_lets_exactly_this_style_through() -> None:
    [style] = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert page_headers()["Content-Security-Policy"] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
    )


def test_texts_are_escaped() -> None:
    described = build_openapi(OPERATIONS, "<script>alert(1)</script>")
    assert "<script>" not in render_page(described)
