"""HTTP around the operations: what a request passes before its handler runs, and what every answer carries.

```
 bytes --> aiohttp parser --> Host (421) --> path and method (404, 405) --> token (401, 429) --> body (408, 413, 415)
                |                                                                                     |
          400, same shape                                                      query and JSON (400) <-'
                                                                                      |
 answer <-- headers, one error shape <-- anything unforeseen: 500, logged <-- handler +'
```
Bounded everywhere: connections (``callers.py``: strangers give way), header sizes, body size, and the time from the
first byte to the last for headers, for the body, for the whole request and for reading the answer. There is no CORS: a
browser page of another origin gets nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler

from flockmq.admin.callers import Callers
from flockmq.admin.decode import decode_body, decode_query
from flockmq.admin.guard import check_host, network
from flockmq.admin.model import ErrorBody, ErrorDetail
from flockmq.admin.operations import JSON, Call, Operation, Raw, Router
from flockmq.errors import (
    BAD_REQUEST,
    BODY_TOO_LARGE,
    INTERNAL,
    TIMEOUT,
    TOOK_TOO_LONG,
    UNAVAILABLE,
    UNSUPPORTED_MEDIA_TYPE,
    ApiError,
    FlockError,
)

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk

SECURITY_HEADERS: Final = {
    "Server": "flockmq",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
LINGER_S: Final = 1.0
"""How long the rest of an unwanted body is still read, so that the caller sees the answer and not a reset."""
_AUDITED: Final = ("kind", "value", "topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """What callers of the admin API may cost."""

    connections_max: int = 128
    """Most connections at once. Then the oldest without a right token gives way; without one, newcomers are closed."""
    strangers_per_address_max: int = 64
    """Most connections of one address on which no right token has come. Then its oldest one gives way."""
    body_bytes_max: int = 2_097_152
    """Longest request body. A published payload has to fit into it, as base64."""
    body_timeout_s: float = 10.0
    """How long a body may take to arrive."""
    request_timeout_s: float = 30.0
    """How long a request may take from its headers to its answer."""
    answer_timeout_s: float = 30.0
    """How long a caller may take to read the answer."""
    headers_timeout_s: float = 10.0
    """How long a connection may take to send all headers of its first request, and to do its TLS handshake."""
    idle_timeout_s: float = 30.0
    """How long a connection may take after an answer to send all headers of its next request."""


class _Handler(RequestHandler):
    """aiohttp's protocol, with our error shape where it answers by itself, and a bound on connections."""

    __slots__ = ("_owner", "_until_asked")

    def __init__(self, owner: WebServer, **options: Any) -> None:
        super().__init__(owner, **options)
        self._owner = owner
        self._until_asked: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or none too many."""
        peername = transport.get_extra_info("peername")
        address = str(peername[0]) if isinstance(peername, tuple) and peername else ""
        if not self._owner.admit(self, address):
            transport.abort()  # type: ignore[attr-defined]
            return
        super().connection_made(transport)
        self._until_asked = self._loop.call_later(self._owner.limits.headers_timeout_s, self.give_way)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of everything."""
        self._owner.callers.forget(self)
        self.asked()
        super().connection_lost(exc)

    def asked(self) -> None:
        """A request has come in time."""
        if self._until_asked is not None:
            self._until_asked.cancel()
            self._until_asked = None

    def trust(self) -> None:
        """A right token has come."""
        self._owner.callers.forget(self)

    def give_way(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - may quote the request
    ) -> web.StreamResponse:
        """What aiohttp could not parse, or what escaped: in the one shape. Never logged with what the caller sent."""
        if isinstance(exc, ConnectionError):
            raise exc  # the caller is gone, or was cut off
        if request.writer.output_size > 0:
            raise ConnectionError("the answer is already on its way")
        if status == 400:
            error = ApiError(BAD_REQUEST, "The request is not valid HTTP; check the client that sent it")
        else:
            error = self._owner.internal_error(exc)
        response = error_response(error)
        response.force_close()
        return response


class WebServer(web.Server):
    """Serves operations; one for all sockets of an AdminApi."""

    def __init__(self, desk: Desk, router: Router, limits: WebLimits, allowed_hosts: frozenset[str]) -> None:
        super().__init__(self._serve)
        self._desk = desk
        self._router = router
        self.limits = limits
        self.callers = Callers(limits.connections_max, limits.strangers_per_address_max)
        self._allowed_hosts = allowed_hosts

    def __call__(self) -> RequestHandler:
        """Make the protocol of a new connection."""
        return _Handler(
            self,
            loop=self._loop,
            keepalive_timeout=self.limits.idle_timeout_s,
            access_log=None,
            lingering_time=LINGER_S,
            # A body that unpacks into a thousand times its size would pass the limit by.
            auto_decompress=False,
        )

    def admit(self, caller: _Handler, address: str) -> bool:
        """Take a connection, maybe in place of another; False when there is no place for it."""
        return self.callers.admit(caller, network(address), len(self._connections))

    def internal_error(self, error: BaseException | None) -> ApiError:
        """Log what must not happen; the caller learns no more than that it did."""
        frames = [] if error is None else traceback.extract_tb(error.__traceback__)[-5:]
        self._desk.ports.log(
            "error",
            "admin_error",
            error=repr(error),
            at=[f"{frame.filename}:{frame.lineno}:{frame.name}" for frame in frames],
        )
        return ApiError(INTERNAL, "The broker made a mistake while it answered; its log says more. Please report it")

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request.protocol, _Handler)
        request.protocol.asked()
        response = await self._answer(request)
        try:
            # Written here and not by aiohttp after us, so that a caller that does not read it is cut off.
            async with asyncio.timeout(self.limits.answer_timeout_s):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the caller does not read the answer") from None
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self.limits.request_timeout_s) as limit:
                return await self._operate(request, limit)
        except ApiError as error:
            response = error_response(error)
            if error.kind in (BODY_TOO_LARGE, TIMEOUT):
                response.force_close()  # more of the body may come, and is not read to its end
            return response
        except TimeoutError:
            return error_response(
                ApiError(
                    TOOK_TOO_LONG,
                    f"The operation did not finish within {self.limits.request_timeout_s:g} s and was given up; "
                    "look at what it changed before trying again",
                )
            )
        except FlockError as error:
            return error_response(ApiError(UNAVAILABLE, str(error)))
        except ConnectionError:
            raise
        except Exception as error:  # the last line of defence: one broken handler must not look like a broken server
            return error_response(self.internal_error(error))

    async def _operate(self, request: web.BaseRequest, limit: asyncio.Timeout) -> web.StreamResponse:
        raw_path, _, raw_query = request.raw_path.partition("?")
        self._check_target(request, raw_path)
        operation, path = self._router.find(request.method, raw_path)
        until = limit.when()
        if operation.extra_s and until is not None:
            limit.reschedule(until + operation.extra_s)
        peer = _address(request, "peername")
        authorization = request.headers.get(hdrs.AUTHORIZATION)
        has_token = operation.secured or (operation.token_tells_more and authorization is not None)
        if has_token:
            self._desk.guard.check(peer, authorization, self._desk.clock())
            if isinstance(request.protocol, _Handler):
                request.protocol.trust()
        body = await self._read_body(request, operation.body_bytes_max or self.limits.body_bytes_max)
        call = Call(
            path,
            decode_query(raw_query, operation.query),
            self._decode_body(request, body, operation),
            peer,
            request.headers.get(hdrs.ACCEPT, ""),
            has_token,
            lambda: request.transport is None or request.transport.is_closing(),
        )
        if operation.method != "GET":
            self._desk.check_running()
        answer = operation.handler(self._desk, call)
        if inspect.isawaitable(answer):
            answer = await answer
        if operation.method != "GET" and operation.audited:
            named = {name: getattr(call.body, name) for name in _AUDITED if hasattr(call.body, name)}
            self._desk.ports.log("info", "admin_action", operation=operation.name, peer=peer, **path, **named)
        return success_response(operation, answer)

    def _check_target(self, request: web.BaseRequest, raw_path: str) -> None:
        hosts = request.headers.getall(hdrs.HOST, [])
        if len(hosts) > 1 or not raw_path.startswith("/"):
            raise ApiError(BAD_REQUEST, "The request must name a path and one Host; check the client that sent it")
        check_host(hosts[0] if hosts else None, _address(request, "sockname"), self._allowed_hosts)

    async def _read_body(self, request: web.BaseRequest, bytes_max: int) -> bytes:
        if not request.body_exists:
            return b""
        too_large = ApiError(BODY_TOO_LARGE, f"The body is longer than {bytes_max} bytes; send less at once")
        if (request.content_length or 0) > bytes_max:
            raise too_large
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts: list[bytes] = []
        total = 0
        try:
            async with asyncio.timeout(self.limits.body_timeout_s):
                while part := await request.content.readany():
                    total += len(part)
                    if total > bytes_max:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            raise ApiError(
                TIMEOUT, f"The body did not arrive within {self.limits.body_timeout_s:g} s; check the network"
            ) from None
        return b"".join(parts)

    def _decode_body(
        self, request: web.BaseRequest, body: bytes, operation: Operation
    ) -> msgspec.Struct | bytes | None:
        if operation.body_type:
            if hdrs.CONTENT_ENCODING in request.headers or request.content_type != operation.body_type:
                raise ApiError(
                    UNSUPPORTED_MEDIA_TYPE,
                    f"The body must come with `Content-Type: {operation.body_type}`, not compressed",
                )
            return body
        if operation.body is None:
            return None
        if hdrs.CONTENT_ENCODING in request.headers or request.content_type != JSON:
            raise ApiError(
                UNSUPPORTED_MEDIA_TYPE,
                f"The body must be plain JSON; send it with `Content-Type: {JSON}`, not compressed",
            )
        return decode_body(body, operation.body)


def success_response(operation: Operation, answer: object) -> web.Response:
    """The answer of a handler as HTTP."""
    if isinstance(answer, Raw):
        headers = {**SECURITY_HEADERS, **answer.headers, hdrs.CONTENT_TYPE: answer.content_type}
        return web.Response(status=answer.status, body=answer.body, headers=headers)
    if operation.answer is None:
        return web.Response(status=204, headers=SECURITY_HEADERS)
    headers = {**SECURITY_HEADERS, hdrs.CONTENT_TYPE: JSON}
    return web.Response(status=operation.status, body=msgspec.json.encode(answer), headers=headers)


def error_response(error: ApiError) -> web.Response:
    """A refusal as HTTP, in the one shape."""
    headers = {**SECURITY_HEADERS, **error.headers, hdrs.CONTENT_TYPE: JSON}
    body = msgspec.json.encode(ErrorBody(error=ErrorDetail(code=error.code, message=str(error))))
    return web.Response(status=error.status, body=body, headers=headers)


def _address(request: web.BaseRequest, end: str) -> str:
    transport = request.transport
    name = transport.get_extra_info(end) if transport is not None else None
    return str(name[0]) if isinstance(name, tuple) and name else ""
