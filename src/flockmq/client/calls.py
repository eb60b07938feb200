"""What all calls of the API have in common: a path, a request, its answer as a value, listings page after page."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from flockmq.admin import model
from flockmq.client.transport import DEFAULT_SERVER_URL, Transport, UnreachableError
from flockmq.errors import ApiError

DECISION_S: Final = 5.0
"""How much longer a change may take than a look: nodes have to agree on it, or to find that they can't."""
Value = str | int | bool | None
T = TypeVar("T")


class ApiCalls:
    """One broker's API, for callers that know its paths."""

    def __init__(
        self,
        server_url: str = DEFAULT_SERVER_URL,
        token: str | None = None,
        *,
        timeout_s: float = 10.0,
        ssl_context: ssl.SSLContext | None = None,
        keep: bool = False,
    ) -> None:
        self.transport = Transport(server_url, token, timeout_s=timeout_s, ssl_context=ssl_context, keep=keep)
        self.server_url = self.transport.server_url

    def close(self) -> None:
        """Close the connection, where one is kept."""
        self.transport.close()

    def _get(self, path: str, shape: type[T], *, wait_s: float = 0.0) -> T:
        return self._decode(self.transport.request("GET", path, wait_s=wait_s).body, shape)

    def _send(
        self, method: str, path: str, shape: type[T], request: msgspec.Struct | None = None, wait_s: float = DECISION_S
    ) -> T:
        return self._decode(self.transport.request(method, path, request, wait_s=wait_s).body, shape)

    def _delete(self, path: str) -> None:
        self.transport.request("DELETE", path, wait_s=DECISION_S)

    def _probe(self, path: str) -> bool:
        try:
            self.transport.request("GET", path)
        except (UnreachableError, ApiError):
            return False
        return True

    def _listing(
        self,
        path: str,
        shape: type[model.Page[T]],
        filters: Mapping[str, Value] = {},
        unanswered: list[str] | None = None,
    ) -> Iterator[T]:
        after: str | None = None
        while True:
            page = self._get(with_query(path, **filters, limit=model.PAGE_LIMIT_MAX, after=after), shape)
            if unanswered is not None and isinstance(page, model.NodesPage):
                unanswered += [name for name in page.unanswered if name not in unanswered]
            yield from page.items
            if page.next is None:
                return
            after = page.next

    def _decode(self, body: bytes, shape: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=shape)
        except msgspec.MsgspecError as error:
            raise UnreachableError(
                f"{self.server_url} answered with something else than a FlockMQ admin API does ({error}); "
                "check the address and that client and broker are of the same version"
            ) from error


def v1(*segments: str | int, **query: Value) -> str:
    """A path of the API: also the slashes of a topic are escaped, so that empty levels survive."""
    return with_query("/api/v1/" + "/".join([quote(str(one), safe="") for one in segments]), **query)


def with_query(path: str, **query: Value) -> str:
    """A path and its parameters, without those that are None."""
    given = {name: value for name, value in query.items() if value is not None}
    pairs = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    return f"{path}?{urlencode(pairs)}" if pairs else path
