from __future__ import annotations

import msgspec

from flockmq.admin.description import Description
from flockmq.admin.docs_page import page_headers, render_page
from flockmq.admin.openapi import build_openapi
from flockmq.admin.routes import OPERATIONS


def test_it_serves_what_the_tables_say_and_makes_it_once() -> None:
    described = Description(OPERATIONS, "1.2.3")
    openapi = build_openapi(OPERATIONS, "1.2.3")
    assert msgspec.json.decode(described.openapi) == openapi
    assert described.page.decode() == render_page(openapi)
    assert described.page_headers == page_headers()
    assert described.openapi is described.openapi
    assert described.page is described.page
