"""Somebody on loopback who can be called, and who leaves no connection open behind a test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def serving(handle: Handle, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port. A connection is closed when ``handle`` has ended, and in the end: also one that only just came."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []
    is_over = False

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_over:
            writer.transport.abort()
            return
        writers.append(writer)
        task = loop.create_task(handle(reader, writer))
        tasks.append(task)
        task.add_done_callback(lambda _: writer.close())

    async with await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls) as server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            is_over = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in writers:
                writer.transport.abort()
