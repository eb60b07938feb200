"""One generator process: an engine whose start and end come through standard input. See ``workers``."""

from __future__ import annotations

import gc
import os
import select
import sys
import time

import msgspec

from flockmq.client.load.engine import Engine
from flockmq.client.load.usage import pin
from flockmq.client.load.workers import Order, Word
from flockmq.drivers.allocator import keep_buffers
from flockmq.errors import FlockError

REPORT_INTERVAL_NS = 50_000_000


def say(word: Word) -> None:
    """Write one line to the process that started this one."""
    sys.stdout.buffer.write(msgspec.json.encode(word) + b"\n")
    sys.stdout.buffer.flush()


def hear(timeout_s: float) -> str:
    """The next lines of the input, if any came; ``end`` when it was closed."""
    if not select.select([0], [], [], timeout_s)[0]:
        return ""
    return os.read(0, 4_096).decode() or "end"


def read_line() -> bytes:
    """The first line of the input and not a byte more: the rest is read as it comes."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return line


def work(engine: Engine) -> None:
    """Connect, wait for the start, turn until told to end."""
    engine.open()
    say(Word(ready=True))
    heard = ""
    while "go" not in heard:
        heard = hear(1.0)
        if "end" in heard:
            return
    gc.collect()
    gc.disable()
    engine.start()
    looked = time.monotonic_ns()
    while True:
        engine.turn()
        now = time.monotonic_ns()
        if now - looked < REPORT_INTERVAL_NS:
            continue
        looked = now
        heard = hear(0.0)
        if "stop" in heard:
            engine.stop()
        progress = engine.measure()
        if "end" in heard:
            say(Word(progress=progress, last=True, buckets=engine.latency.counts, highest_ns=engine.latency.highest))
            return
        say(Word(progress=progress))


def main() -> int:
    """Do one share of a load."""
    order = msgspec.json.decode(read_line(), type=Order)
    pin(order.cpus)
    keep_buffers()
    engine = Engine(order.target, order.load, order.share, order.shares)
    try:
        work(engine)
    except FlockError as error:
        say(Word(error=str(error)))
        return 1
    except BrokenPipeError:
        return 1
    finally:
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
