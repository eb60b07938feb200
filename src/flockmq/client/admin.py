"""Talks to a broker's admin API from outside its process: what the command line is built on.

```
 AdminClient.method() --> _call(operation) --> one HTTP request, one connection, one timeout
                                                |-- nobody answers ----> UnreachableError  (is it running?)
                                                |-- {"error": ...} ----> AdminError         (code, status, sentence)
                                                `-- a body ------------> a value of flockmq.admin.model
```
Synchronous and of the standard library alone: a command starts, asks, prints and ends. Listings come as iterators
that fetch page after page, so a million sessions never lie in memory at once. Proxies named in the environment are
not used and redirects are not followed: the token goes to the server that was named and nowhere else.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from flockmq import __version__
from flockmq.admin import cluster_model, model
from flockmq.errors import FlockError

DEFAULT_SERVER_URL: Final = "http://127.0.0.1:18083"
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest answer that is read; a page of 1,000 entries is far below it."""

T = TypeVar("T")


class UnreachableError(FlockError):
    """Nobody answers at the server's address, or not in HTTP, or not in time."""


class AdminError(FlockError):
    """The broker answered with an error; ``code`` is for programs, ``str(error)`` is the sentence for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class AdminClient:
    """One broker's admin API. Holds no connection, so it needs no closing."""

    def __init__(
        self,
        server_url: str = DEFAULT_SERVER_URL,
        token: str | None = None,
        *,
        timeout_s: float = 10.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.server_url = server_url.rstrip("/")
        self._scheme, self._host, self._port, self._prefix = _split_url(self.server_url)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise FlockError("The admin token holds characters that no token has; copy it again")
        self._token = token
        self._timeout_s = timeout_s
        self._ssl_context = ssl_context

    # --- node -------------------------------------------------------------------------------------------------------

    def node(self) -> model.Node:
        """Name, version, build, uptime and listeners of the node that answers."""
        return self._get("/api/v1/node", model.Node)

    def stats(self) -> model.Stats:
        """Gauges and counters, by name."""
        return self._get("/api/v1/stats", model.Stats)

    def config(self) -> dict[str, Any]:
        """The configuration in effect, secrets blacked out."""
        return self._get("/api/v1/config", dict[str, Any])

    def reload(self) -> model.ReloadResult:
        """Make the broker read passwords, ACL and certificates again."""
        return self._decode(self._call("POST", "/api/v1/reload"), model.ReloadResult)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description; needs no token."""
        return self._get("/api/v1/openapi.json", dict[str, Any])

    def metrics(self) -> str:
        """Metrics in Prometheus' text format."""
        return self._call("GET", "/metrics").decode()

    def is_live(self) -> bool:
        """Whether a broker answers at all; False instead of an error when nobody does."""
        return self._probe("/health/live")

    def is_ready(self) -> bool:
        """Whether the broker takes clients now; False while it starts or stops, or when nobody answers."""
        return self._probe("/health/ready")

    # --- cluster ----------------------------------------------------------------------------------------------------

    def cluster(self) -> cluster_model.Cluster:
        """The cluster as the node that answers sees it."""
        return self._get("/api/v1/cluster", cluster_model.Cluster)

    def join(self, address: str, *, discard_data: bool = False) -> cluster_model.JoinResult:
        """Make the node a member of another node's cluster; AdminError ``refused`` says why not."""
        request = cluster_model.JoinRequest(address=address, discard_data=discard_data)
        return self._decode(self._call("POST", "/api/v1/cluster/join", request), cluster_model.JoinResult)

    def leave(self) -> None:
        """Let the node take leave of the others."""
        self._call("POST", "/api/v1/cluster/leave")

    def routes(self) -> Iterator[cluster_model.Route]:
        """All topic filters of the cluster with their nodes."""
        return self._listing("/api/v1/routes", {}, model.Page[cluster_model.Route])

    def explain(self, topic: str, *, publisher: str = "publisher") -> cluster_model.Explanation:
        """Who would get a message to this topic, and on which way."""
        path = f"/api/v1/explain/{_segment(topic)}?{urlencode({'publisher': publisher})}"
        return self._get(path, cluster_model.Explanation)

    # --- clients ----------------------------------------------------------------------------------------------------

    def connections(
        self, *, client_id_prefix: str | None = None, username: str | None = None, peer: str | None = None
    ) -> Iterator[model.Connection]:
        """All connected clients, or those that pass every filter given."""
        query = {"client_id": client_id_prefix, "username": username, "peer": peer}
        return self._listing("/api/v1/connections", query, model.Page[model.Connection])

    def connection(self, client_id: str) -> model.Connection:
        """One connected client; AdminError ``not_found`` when it is not connected."""
        return self._get(f"/api/v1/connections/{_segment(client_id)}", model.Connection)

    def kick(self, client_id: str) -> None:
        """Disconnect a client (MQTT 5: reason 0x98, Administrative action). It may connect again."""
        self._call("DELETE", f"/api/v1/connections/{_segment(client_id)}")

    def sessions(
        self, *, client_id_prefix: str | None = None, connected: bool | None = None
    ) -> Iterator[model.Session]:
        """All sessions, or those that pass every filter given."""
        query = {"client_id": client_id_prefix, "connected": None if connected is None else str(connected).lower()}
        return self._listing("/api/v1/sessions", query, model.Page[model.Session])

    def session(self, client_id: str) -> model.Session:
        """One session; AdminError ``not_found`` when there is none."""
        return self._get(f"/api/v1/sessions/{_segment(client_id)}", model.Session)

    def delete_session(self, client_id: str) -> None:
        """Disconnect the client, if it is connected, and forget its subscriptions and waiting messages."""
        self._call("DELETE", f"/api/v1/sessions/{_segment(client_id)}")

    def session_subscriptions(self, client_id: str) -> Iterator[model.Subscription]:
        """Subscriptions of one session; AdminError ``not_found`` when there is no such session."""
        path = f"/api/v1/sessions/{_segment(client_id)}/subscriptions"
        return self._listing(path, {}, model.Page[model.Subscription])

    def subscriptions(
        self, *, client_id: str | None = None, topic_filter: str | None = None, match: str | None = None
    ) -> Iterator[model.Subscription]:
        """All subscriptions; of one client, of one exact filter, or those that a topic name would reach."""
        query = {"client_id": client_id, "filter": topic_filter, "match": match}
        return self._listing("/api/v1/subscriptions", query, model.Page[model.Subscription])

    # --- bans -------------------------------------------------------------------------------------------------------

    def bans(self, *, kind: model.BanKind | None = None) -> Iterator[model.Ban]:
        """Who may not connect."""
        return self._listing("/api/v1/bans", {"kind": kind}, model.Page[model.Ban])

    def ban(
        self, kind: model.BanKind, value: str, *, duration_s: int | None = None, reason: str = ""
    ) -> model.BanResult:
        """Keep a client id, user name or address out, and disconnect whom it hits; ``None`` means without end."""
        request = model.BanRequest(kind=kind, value=value, duration_s=duration_s, reason=reason)
        return self._decode(self._call("POST", "/api/v1/bans", request), model.BanResult)

    def unban(self, kind: model.BanKind, value: str) -> None:
        """Let them in again; AdminError ``not_found`` when there is no such ban."""
        self._call("DELETE", f"/api/v1/bans/{kind}/{_segment(value)}")

    # --- messages ---------------------------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: model.MessageProperties | None = None,
    ) -> model.PublishResult:
        """Publish one message; the result says how many subscribers it was routed to."""
        data = payload.encode() if isinstance(payload, str) else payload
        request = model.PublishRequest(
            topic=topic, payload_base64=_base64(data), qos=qos, retain=retain, properties=properties
        )
        return self._decode(self._call("POST", "/api/v1/publish", request), model.PublishResult)

    def retained(self, *, topic_filter: str | None = None) -> Iterator[model.Retained]:
        """All retained messages without their payloads, or those whose topic the filter matches."""
        return self._listing("/api/v1/retained", {"filter": topic_filter}, model.Page[model.Retained])

    def retained_message(self, topic: str) -> model.RetainedMessage:
        """One retained message with its payload; AdminError ``not_found`` when there is none."""
        return self._get(f"/api/v1/retained/{_segment(topic)}", model.RetainedMessage)

    def delete_retained(self, topic: str) -> None:
        """Forget the retained message of a topic."""
        self._call("DELETE", f"/api/v1/retained/{_segment(topic)}")

    # --- HTTP -------------------------------------------------------------------------------------------------------

    def _get(self, path: str, shape: type[T]) -> T:
        return self._decode(self._call("GET", path), shape)

    def _probe(self, path: str) -> bool:
        try:
            self._call("GET", path)
        except (UnreachableError, AdminError):
            return False
        return True

    def _listing(self, path: str, filters: dict[str, str | None], shape: type[model.Page[T]]) -> Iterator[T]:
        query = {name: value for name, value in filters.items() if value is not None}
        query["limit"] = str(model.PAGE_LIMIT_MAX)
        while True:
            page = self._decode(self._call("GET", f"{path}?{urlencode(query)}"), shape)
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
        headers = {"User-Agent": f"flockmq/{__version__}", "Accept": "application/json", "Connection": "close"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None
        if request is not None:
            body = msgspec.json.encode(request)
            headers["Content-Type"] = "application/json"
        connection = self._connect()
        try:
            connection.request(method, self._prefix + path, body, headers)
            response = connection.getresponse()
            answer = response.read(RESPONSE_BYTES_MAX + 1)
        except (
            OSError,
            http.client.HTTPException,
            UnicodeError,
        ) as error:  # UnicodeError: no host name has such a label
            raise UnreachableError(self._why(error)) from error
        finally:
            connection.close()
        if len(answer) > RESPONSE_BYTES_MAX:
            raise UnreachableError(f"{self.server_url} sends an answer without end; is that a FlockMQ broker?")
        if not 200 <= response.status < 300:
            raise self._error(response.status, answer)
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        if self._scheme == "https":
            context = self._ssl_context or ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def _why(self, error: Exception) -> str:
        for kind, sentence in _CAUSES:
            if isinstance(error, kind):
                return sentence(self.server_url, self._timeout_s, error)
        return f"No broker answers at {self.server_url} ({error}); is it running? Start one with `flockmq start`"

    def _error(self, status: int, answer: bytes) -> FlockError:
        try:
            detail = msgspec.json.decode(answer, type=model.ErrorBody).error
        except msgspec.MsgspecError:
            return UnreachableError(
                f"{self.server_url} answered with HTTP status {status} and without FlockMQ's explanation; "
                "check that the address is that of a broker's admin API"
            )
        return AdminError(status, detail.code, detail.message)


_Sentence = Callable[[str, float, Exception], str]


def _unknown_host(url: str, _timeout_s: float, _error: Exception) -> str:
    return f"The host of {url} has no address; check the spelling of --server or FLOCKMQ_SERVER"


def _bad_certificate(url: str, _timeout_s: float, error: Exception) -> str:
    return f"The certificate of {url} is not trusted ({error}); check the address, or name the CA that signed it"


def _bad_tls(url: str, _timeout_s: float, error: Exception) -> str:
    return f"{url} does not speak TLS as expected ({error}); does that port want http:// instead?"


def _too_slow(url: str, timeout_s: float, _error: Exception) -> str:
    return f"The broker at {url} did not answer within {timeout_s:g} s; it may be overloaded or the network is cut"


def _not_http(url: str, _timeout_s: float, _error: Exception) -> str:
    return f"What answers at {url} does not speak HTTP as expected; is that the admin port (18083 by default)?"


_CAUSES: Final[tuple[tuple[type[Exception], _Sentence], ...]] = (
    # The first that fits wins: narrow causes stand above the wide ones they derive from.
    (socket.gaierror, _unknown_host),
    (UnicodeError, _unknown_host),
    (ssl.SSLCertVerificationError, _bad_certificate),
    (ssl.SSLError, _bad_tls),
    (TimeoutError, _too_slow),
    (http.client.HTTPException, _not_http),
)


def _split_url(url: str) -> tuple[str, str, int, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise FlockError(f"{url!r} is not a server address ({error}); write it like {DEFAULT_SERVER_URL}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise FlockError(f"{url!r} is not a server address; write it like {DEFAULT_SERVER_URL}")
    if parts.username is not None:
        raise FlockError("A server address holds no user name or token; set FLOCKMQ_TOKEN or run `flockmq login`")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), parts.path


def _segment(text: str) -> str:
    """One path segment: also the slashes of a topic are escaped, so that empty levels survive."""
    return quote(text, safe="")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
