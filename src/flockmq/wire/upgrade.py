"""The HTTP request that turns a connection into a WebSocket one (RFC 6455 section 4), for both ends.

```
 bytes --> UpgradeParser.feed --> None       more is needed (at most REQUEST_BYTES_MAX in all)
                              --> Upgrade    send its response, then go on with its rest as frames
                              --> Refusal    send its response (an HTTP error that says why), then close
 client_request(...) --> bytes to send;  check_client_response(...) --> the bytes after the response
```
A server takes the subprotocol ``mqtt`` [MQTT-6.0.0-3], and ``mqttv3.1`` as older clients call it, and nothing else.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha1
from typing import Final

from flockmq.errors import FlockError

REQUEST_BYTES_MAX: Final = 8_192
HEADERS_MAX: Final = 64
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
"""What is accepted, best first."""

_ACCEPT_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BLANK_LINE: Final = b"\r\n\r\n"
_REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    505: "HTTP Version Not Supported",
}
_SINGLE_HEADERS: Final = (
    "host",
    "origin",
    "sec-websocket-key",
    "sec-websocket-version",
    "content-length",
    "transfer-encoding",
)


class Upgrade:
    """The request is fine: what to answer, and the bytes that already came after it."""

    def __init__(self, response: bytes, rest: bytes, subprotocol: str) -> None:
        self.response: bytes = response
        self.rest: bytes = rest
        self.subprotocol: str = subprotocol


class Refusal:
    """The request is not; ``text`` says why, to the client and to the log."""

    def __init__(self, status: int, text: str) -> None:
        self.status: int = status
        self.text: str = text
        self.response: bytes = _error_response(status, text)


def accept_key(key: str) -> str:
    """Answer to a ``Sec-WebSocket-Key``; the algorithm is the protocol's, it protects nothing."""
    return b64encode(sha1(key.encode() + _ACCEPT_SUFFIX, usedforsecurity=False).digest()).decode()


class UpgradeParser:
    """Collects one upgrade request and judges it."""

    def __init__(self, path: str = "/mqtt", origins: tuple[str, ...] = ()) -> None:
        self._path: str = path
        self._origins: list[str] = [origin.lower() for origin in origins]  # empty: pages of any origin may connect
        self._held: bytes = b""

    def _is_welcome(self, origin: str) -> bool:
        """Whether the list has this origin, or its host alone, which stands for any scheme and port of it."""
        if origin in self._origins:
            return True
        host = origin.partition("://")[2]
        if host.startswith("["):
            return host.partition("]")[0] + "]" in self._origins
        return host != "" and host.partition(":")[0] in self._origins

    def feed(self, data: bytes) -> Upgrade | Refusal | None:
        """Take bytes of the request; an answer once it is complete or can't become right any more."""
        before = len(self._held)
        self._held += data[: REQUEST_BYTES_MAX - before]
        end = self._held.find(_BLANK_LINE, max(0, before - 3))
        if end < 0:
            if not self._held[:1].isalpha():
                return Refusal(400, "This port speaks MQTT over WebSocket, which begins with an HTTP request")
            if len(self._held) >= REQUEST_BYTES_MAX:
                return Refusal(431, f"The request is over {REQUEST_BYTES_MAX} bytes")
            return None
        head = self._held[:end]
        self._held = b""
        return self._judge(head, data[end + 4 - before :])

    def _judge(self, head: bytes, rest: bytes) -> Upgrade | Refusal:
        lines = head.decode("latin-1").split("\r\n")
        request = lines[0].split(" ")
        if len(request) != 3 or not request[2].startswith("HTTP/"):
            return Refusal(400, "The first line is not an HTTP request line")
        if request[2] != "HTTP/1.1":
            return Refusal(505, "WebSocket needs HTTP/1.1")
        if request[0] != "GET":
            return Refusal(405, "WebSocket begins with a GET request")
        if request[1].partition("?")[0] != self._path:
            return Refusal(404, f"MQTT over WebSocket is at {self._path}")
        headers = _read_headers(lines)
        if isinstance(headers, Refusal):
            return headers
        return self._judge_headers(headers, rest)

    def _judge_headers(self, headers: dict[str, str], rest: bytes) -> Upgrade | Refusal:
        if "host" not in headers:
            return Refusal(400, "The Host header is missing")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return Refusal(400, "An upgrade request has no body")
        if not _names(headers, "upgrade", "websocket") or not _names(headers, "connection", "upgrade"):
            return Refusal(426, "This port speaks MQTT over WebSocket; the request does not ask for that upgrade")
        if headers.get("sec-websocket-version", "") != "13":
            return Refusal(426, "Only version 13 of WebSocket is spoken here")
        key = headers.get("sec-websocket-key", "")
        if not _is_key(key):
            return Refusal(400, "Sec-WebSocket-Key is not 16 bytes in base64")
        if self._origins and "origin" in headers and not self._is_welcome(headers["origin"].lower()):
            return Refusal(403, "Pages of this origin may not connect; the setting origins lists those that may")
        offered = _tokens(headers.get("sec-websocket-protocol", ""))
        for subprotocol in SUBPROTOCOLS:
            if subprotocol in offered:
                return Upgrade(_accepted(key, subprotocol), rest, subprotocol)
        return Refusal(400, "Ask for the WebSocket subprotocol mqtt")  # [MQTT-6.0.0-3]


def _read_headers(lines: list[str]) -> dict[str, str] | Refusal:
    headers: dict[str, str] = {}
    if len(lines) > HEADERS_MAX + 1:
        return Refusal(431, f"The request has more than {HEADERS_MAX} headers")
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or "\n" in line or "\r" in line or "\0" in line:
            return Refusal(400, "A header line is not 'Name: value'")
        name = name.lower()
        value = value.strip(" \t")
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE_HEADERS:
            return Refusal(400, f"The header {name} is there twice")
        else:
            headers[name] += "," + value
    return headers


def _tokens(value: str) -> list[str]:
    return [token.strip(" \t") for token in value.split(",")]


def _names(headers: dict[str, str], name: str, token: str) -> bool:
    """Whether the comma-separated header names this token, in any case."""
    return token in _tokens(headers.get(name, "").lower())


def _is_key(key: str) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except ValueError:
        return False


def _accepted(key: str, subprotocol: str) -> bytes:
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_key(key)}\r\nSec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    ).encode()


def _error_response(status: int, text: str) -> bytes:
    body = text.encode() + b"\n"
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", "Content-Type: text/plain; charset=utf-8"]
    lines += [f"Content-Length: {len(body)}", "Connection: close"]
    if status == 426:
        lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    elif status == 405:
        lines.append("Allow: GET")
    return "\r\n".join(lines).encode() + _BLANK_LINE + body


def client_request(host: str, path: str, key: bytes, subprotocol: str = "mqtt") -> bytes:
    """Encode the request of a client; ``key`` is 16 bytes drawn by the caller."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {b64encode(key).decode()}\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    ).encode()


def check_client_response(data: bytes, key: bytes, subprotocol: str = "mqtt") -> bytes | None:
    """Return what follows the server's answer, None while that is incomplete; FlockError when it refused."""
    end = data.find(_BLANK_LINE)
    if end < 0:
        if len(data) > REQUEST_BYTES_MAX:
            raise FlockError(
                "The server's answer to the WebSocket request is too long; is this an MQTT WebSocket port?"
            )
        return None
    lines = data[:end].decode("latin-1").split("\r\n")
    status = lines[0].split(" ")
    if len(status) < 2 or status[1] != "101":
        said = data[end + 4 : end + 204].decode(errors="replace").strip()
        raise FlockError(f"The server refused the WebSocket request: {lines[0]!r} {said!r}")
    headers = _read_headers(lines)
    if isinstance(headers, Refusal):
        raise FlockError(f"The server's answer to the WebSocket request is not HTTP: {headers.text}")
    if headers.get("sec-websocket-accept", "") != accept_key(b64encode(key).decode()):
        raise FlockError("The server did not answer our WebSocket key; something between us answers for it")
    if headers.get("sec-websocket-protocol", "") != subprotocol:
        raise FlockError(f"The server does not speak the WebSocket subprotocol {subprotocol}")
    return data[end + 4 :]
