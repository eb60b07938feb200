"""What all calls of the API have in common: a request, its answer as a value, listings page after page."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from flockmq.admin import model
from flockmq.client.transport import DEFAULT_SERVER_URL, AdminError, Transport, UnreachableError

DECISION_S: Final = 5.0
"""How much longer a change may take than a look: nodes have to agree on it, or to find that they can't."""
T = TypeVar("T")


class ApiCalls:
    """One broker's API, for those who know its paths."""

    def __init__(
        self,
        server_url: str = DEFAULT_SERVER_URL,
        token: str | None = None,
        *,
        timeout_s: float = 10.0,
        ssl_context: ssl.SSLContext | None = None,
        keep: bool = False,
    ) -> None:
        self._transport = Transport(server_url, token, timeout_s=timeout_s, ssl_context=ssl_context, keep=keep)
        self.server_url = self._transport.server_url

    def close(self) -> None:
        """Close the connection, where one is kept."""
        self._transport.close()

    def _get(self, path: str, shape: type[T]) -> T:
        return self._decode(self._call("GET", path), shape)

    def _probe(self, path: str) -> bool:
        try:
            self._call("GET", path)
        except (UnreachableError, AdminError):
            return False
        return True

    def _listing(
        self,
        path: str,
        filters: dict[str, str | None],
        shape: type[model.Page[T]],
        unanswered: list[str] | None = None,
    ) -> Iterator[T]:
        query = {name: value for name, value in filters.items() if value is not None}
        query["limit"] = str(model.PAGE_LIMIT_MAX)
        while True:
            page = self._decode(self._call("GET", f"{path}?{urlencode(query)}"), shape)
            if unanswered is not None and isinstance(page, model.NodesPage):
                unanswered += [name for name in page.unanswered if name not in unanswered]
            yield from page.items
            if page.next is None:
                return
            query["after"] = page.next

    def _decode(self, body: bytes, shape: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=shape)
        except msgspec.MsgspecError as error:
            raise UnreachableError(
                f"{self.server_url} answered with something else than a FlockMQ admin API does ({error}); "
                "check the address and that client and broker are of the same version"
            ) from error

    def _call(self, method: str, path: str, request: msgspec.Struct | None = None) -> bytes:
        wait_s = 0.0 if method == "GET" else DECISION_S
        return self._transport.request(method, path, request, wait_s=wait_s).body

    def _send(self, method: str, path: str, request: msgspec.Struct, shape: type[T]) -> T:
        return self._decode(self._call(method, path, request), shape)


def segment(text: str) -> str:
    """One path segment: also the slashes of a topic are escaped, so that empty levels survive."""
    return quote(text, safe="")
