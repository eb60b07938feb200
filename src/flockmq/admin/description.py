"""The description of the API as it is served: made at the first request, because a start should not wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from flockmq.admin.docs_page import page_headers, render_page
from flockmq.admin.openapi import build_openapi

if TYPE_CHECKING:
    from flockmq.admin.operations import Operation


class Description:
    """OpenAPI and page of a set of operations."""

    def __init__(self, operations: Sequence[Operation], version: str) -> None:
        self._operations = operations
        self._version = version
        self.page_headers = page_headers()

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI description as JSON."""
        return msgspec.json.encode(build_openapi(self._operations, self._version))

    @cached_property
    def page(self) -> bytes:
        """The same as HTML."""
        return render_page(build_openapi(self._operations, self._version)).encode()
