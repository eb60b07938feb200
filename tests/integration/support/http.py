"""The least of an HTTP client that tests of the admin API need: requests as bytes, answers in parts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Status, headers by lower-case name, and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code in the one error shape; any other shape fails the test."""
        assert self.headers["content-type"] == "application/json"
        found = self.json
        assert set(found) == {"error"}
        assert set(found["error"]) == {"code", "message"}
        assert found["error"]["message"]
        code: str = found["error"]["code"]
        return code


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, closed for good at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def exchange(port: int, request: bytes) -> bytes:
    """Send bytes on a new connection and read until the other side closes."""
    async with connected(port) as (reader, writer):
        writer.write(request)
        await writer.drain()
        return await reader.read()


async def ask(
    port: int,
    method: str,
    path: str,
    *,
    token: str | None = "right",
    body: object = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request, one answer; ``body`` is sent as JSON unless it is bytes. A header set to "" is left out."""
    sent = {"Host": f"127.0.0.1:{port}", "Connection": "close"}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    sent |= headers or {}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value)]
    return parse(await exchange(port, "\r\n".join(lines).encode() + b"\r\n\r\n" + data))


def parse(raw: bytes) -> Answer:
    """Take an answer apart."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(status_line.split()[1]), headers, body)
