"""HTTP as the clients speak it: one request, one answer, and a sentence for everything that can go wrong.

```
 Transport.request(...) --> Answer(status, headers, body)
      |-- no answer, or not in HTTP, or not in time --> UnreachableError   (is it running?)
      `-- {"error": ...} -----------------------------> the class of flockmq.errors that the broker raised
```
With ``keep`` the connection stays open for the next request; one that the server closed meanwhile is opened again.
Proxies named in the environment are not used and redirects are not followed: the token goes to the server that was
named and nowhere else.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec

from flockmq import __version__
from flockmq.admin import model
from flockmq.errors import FlockError, decode

DEFAULT_SERVER_URL: Final = "http://127.0.0.1:18083"
DEFAULT_PORT: Final = 18_083
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest answer that is read; a page of 1,000 entries is far below it."""


class UnreachableError(FlockError):
    """No broker answers at the server's address, or not in HTTP, or not in time."""

    was_never_sent = False
    """Whether there was not even a connection, so that the request was certainly not heard."""


class Answer:
    """The answer of a server; header names are in lower case."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Transport:
    """One server."""

    def __init__(
        self,
        server_url: str,
        token: str | None,
        *,
        timeout_s: float,
        ssl_context: ssl.SSLContext | None = None,
        keep: bool = False,
    ) -> None:
        self.server_url = server_url.rstrip("/")
        self._scheme, self._host, self._port, self._prefix = _split_url(self.server_url)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise FlockError("The admin token holds characters that no token has; copy it again")
        self._token = token
        self._timeout_s = timeout_s
        self._ssl_context = ssl_context
        self._keep = keep
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        path: str,
        request: msgspec.Struct | None = None,
        *,
        accept: str = "application/json",
        wait_s: float = 0.0,
        data: bytes | None = None,
        data_type: str = "application/octet-stream",
        is_repeatable: bool = False,
    ) -> Answer:
        """Ask; ``wait_s`` is how long the server was asked to wait before it answers.

        ``data`` is a body that is no JSON. ``is_repeatable``: asking twice does no harm, as with every GET.
        """
        body = data
        headers = {
            "User-Agent": f"flockmq/{__version__}",
            "Accept": accept,
            "Connection": "keep-alive" if self._keep else "close",
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if request is not None:
            body = msgspec.json.encode(request)
            headers["Content-Type"] = "application/json"
        elif data is not None:
            headers["Content-Type"] = data_type
        path = self._prefix + path
        answer = None
        if self._connection is not None and (is_repeatable or method == "GET"):
            # The server may have closed the kept connection meanwhile: only what can be asked twice is tried on it.
            try:
                answer = self._ask(self._connection, method, path, body, headers, wait_s)
            except TimeoutError as error:
                raise UnreachableError(self._why(error)) from error
            except (OSError, http.client.HTTPException):
                pass
        if answer is None:
            connection = self._connect()
            try:
                answer = self._ask(connection, method, path, body, headers, wait_s)
            except (OSError, http.client.HTTPException) as error:
                raise UnreachableError(self._why(error)) from error
        if not 200 <= answer.status < 300:
            raise self._error(answer)
        return answer

    def close(self) -> None:
        """Close the connection that was kept."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        wait_s: float,
    ) -> Answer:
        is_kept = False
        try:
            connection.timeout = self._timeout_s
            connection.request(method, path, body, headers)
            if wait_s and connection.sock is not None:
                connection.sock.settimeout(self._timeout_s + wait_s)
            response = connection.getresponse()
            answer = response.read(RESPONSE_BYTES_MAX + 1)
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout_s)
            if len(answer) > RESPONSE_BYTES_MAX:
                raise UnreachableError(f"{self.server_url} sends an answer without end; is that a FlockMQ broker?")
            is_kept = self._keep and not response.will_close
        finally:
            if is_kept:
                self._connection = connection
            else:
                connection.close()
                self._connection = None
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, answer)

    def _connect(self) -> http.client.HTTPConnection:
        self.close()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        if self._scheme == "https":
            context = self._ssl_context or ssl.create_default_context()
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:  # UnicodeError: no host name has such a label
            unreachable = UnreachableError(self._why(error))
            unreachable.was_never_sent = True
            raise unreachable from error
        return connection

    def _why(self, error: Exception) -> str:
        for kind, sentence in _CAUSES:
            if isinstance(error, kind):
                return sentence(self.server_url, self._timeout_s, error)
        return f"No broker answers at {self.server_url} ({error}); is it running? Start one with `flockmq start`"

    def _error(self, answer: Answer) -> FlockError:
        try:
            detail = msgspec.json.decode(answer.body, type=model.ErrorBody).error
        except msgspec.MsgspecError:
            return UnreachableError(
                f"{self.server_url} answered with HTTP status {answer.status} and without FlockMQ's explanation; "
                "check that the address is that of a broker's admin API"
            )
        return decode(answer.status, detail.code, detail.message, answer.headers)


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


def server_url(text: str) -> str:
    """The URL of a server as people name it: ``host``, ``host:port``, an IPv6 address, or a URL, which stays as it is.

    The admin API's own port is meant where none is named; in a URL it is that of its scheme, as in every URL.
    """
    text = text.strip()
    if "://" in text:
        return text
    place = text
    if text.count(":") > 1 and not text.startswith("["):
        place = f"[{text}]"  # a bare IPv6 address
    try:
        parts = urlsplit(f"http://{place}")
        port = parts.port
        if text.startswith("[") or place != text:
            ip_address(parts.hostname or "")
    except ValueError:
        raise _no_address(text) from None
    if parts.netloc != place or not parts.hostname or " " in place or place.endswith(":"):
        raise _no_address(text)
    return f"http://{place}" if port is not None else f"http://{place}:{DEFAULT_PORT}"


def _no_address(text: str) -> FlockError:
    return FlockError(f"{text!r} is not a server address; write a host, host:port or {DEFAULT_SERVER_URL}")


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
