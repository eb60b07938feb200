"""The process around a server: event loop, signals, limits of the operating system, memory, garbage collection.

```
 SIGINT, SIGTERM   stop in order, exit code 0; a second one ends the process at once
 SIGHUP            read passwords, ACL and certificates again
```
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.drivers.allocator import keep_buffers
from flockmq.errors import FlockError
from flockmq.server.log import Log, LogHandler, console_line, json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flockmq.config.sections import Config, LogConfig
    from flockmq.server.app import Server

GC_THRESHOLDS: Final = (50_000, 20, 50)
"""The broker makes few cycles and many short-lived objects: looking for cycles after every 700 of them is wasted."""


def run_server(config: Config, show_config: Callable[[], Mapping[str, object]] | None = None) -> None:
    """Run a node until a signal ends it; FlockError when it can't start."""
    os.umask(0o077)  # all that a broker writes is its user's alone
    log = make_log(config.log)
    log.start()
    logging.basicConfig(handlers=[LogHandler(log)], level=logging.WARNING, force=True)
    _raise_file_limit(log)
    keep_buffers()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, log, show_config))
    finally:
        log.stop()


def make_log(settings: LogConfig) -> Log:
    """The log on standard error."""
    terminal = sys.stderr.isatty()
    console = settings.format == "console" or (settings.format == "auto" and terminal)
    line = partial(console_line, color=terminal and "NO_COLOR" not in os.environ) if console else json_line
    return Log(
        sys.stderr,
        line,
        level=settings.level,
        queue_events_max=settings.queue_events_max,
        events_per_s_max=settings.events_per_s_max,
    )


async def _serve(config: Config, log: Log, show_config: Callable[[], Mapping[str, object]] | None) -> None:
    from flockmq.server.app import Server

    gc.collect()
    gc.set_threshold(*GC_THRESHOLDS)
    server = Server(config, log, show_config)
    stopping = asyncio.Event()
    _handle_signals(server, stopping, log)
    starting = asyncio.ensure_future(server.start())
    asked = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        await starting
        _settle_memory()
        failed = asyncio.ensure_future(server.failed.wait())
        await asyncio.wait((asked, failed), return_when=asyncio.FIRST_COMPLETED)
        failed.cancel()
    log.event("info", "stopping")
    if starting.done():
        await server.stop()
    else:  # the start may wait for other nodes; a cancelled start stops its own parts
        starting.cancel()
        await asyncio.wait((starting,))
    log.event("info", "stopped")
    if server.failure:
        raise FlockError(server.failure)


def _handle_signals(server: Server, stopping: asyncio.Event, log: Log) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def stop(number: signal.Signals) -> None:
        if stopping.is_set():
            log.stop(0.5)
            os._exit(128 + number)  # asked twice: at once, without goodbyes
        stopping.set()

    def reload() -> None:
        task = loop.create_task(_reload(server, log))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, reload)


async def _reload(server: Server, log: Log) -> None:
    try:
        log.event("info", "reloaded", files=list(await server.reload()))
    except FlockError as error:
        log.event("error", "reload_refused", message=f"{error} Everything stays as it was.")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _raise_file_limit(log: Log) -> None:
    """Take all file descriptors that this user may have: each client needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.event("warning", "file_limit", limit=soft, message=f"it can't be raised to {hard} ({error})")


def _settle_memory() -> None:
    """Freeze the objects of the start: they stay, so the garbage collector need not visit them again.

    No collection runs before: with thousands of partitions it would stop this node for a second.
    """
    gc.freeze()
