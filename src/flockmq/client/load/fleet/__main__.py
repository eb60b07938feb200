"""A fleet as a process of its own: its plan on standard input, a line of JSON for every report on standard output.

It ends early, in order, when its input is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

import msgspec

from flockmq.client.load.fleet.fleet import Fleet
from flockmq.client.load.fleet.report import Plan, Report
from flockmq.errors import FlockError


def say(report: Report) -> None:
    """Write one line to the parent process."""
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


async def live() -> int:
    """Read the plan, run it, tell the end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    fleet = Fleet(msgspec.json.decode(await reader.readline(), type=Plan), say)

    async def watch() -> None:
        await reader.read()
        fleet.stop()

    watching = asyncio.create_task(watch())
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, fleet.stop)
    try:
        report = await fleet.run()
    except ExceptionGroup as group:
        report = failed(group)
    except FlockError as error:
        report = failed(error)
    finally:
        watching.cancel()
    say(report)
    return 0 if report.flawless else 1


def failed(error: Exception) -> Report:
    """A last report that says why there is no better one."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, FlockError):
        raise error
    return Report(
        seconds=0,
        devices=0,
        online=0,
        published=[0, 0, 0],
        received=[0, 0, 0],
        repeated=[0, 0, 0],
        latency_us_p50=0,
        latency_us_p99=0,
        commands=0,
        answers=0,
        command_us_p50=0,
        wills_due=0,
        wills_seen=0,
        missing=0,
        last=True,
        error=str(error),
    )


def main() -> int:
    """Run a fleet."""
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with contextlib.suppress(BrokenPipeError), asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(live())
    return 1


if __name__ == "__main__":
    sys.exit(main())
