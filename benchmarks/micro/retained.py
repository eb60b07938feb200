"""What retained messages cost: a put, memory, the way to the disk and back, and the repair of a node that lacks them.

    python benchmarks/micro/retained.py [--messages 100000] [--folder .] [--json]

``put`` and ``repair`` are processor time without sockets; ``disk`` is wall time with an event loop that publishes as
fast as it can while the file is written, so that it shows how many topics a second the disk takes (each changes once)
and how late the loop is meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import random
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

from flockmq.drivers.retained_store import RetainedStorage
from flockmq.mqtt.run import Run, make_run
from flockmq.node.events import EventList
from flockmq.peering.retained import RetainedSync
from flockmq.routing.retained import RetainedStore

WALL_MS = 1_772_366_400_000
PAYLOAD = b"x" * 100


def run_of(number: int) -> Run:
    return make_run(4, 1, True, b"site/%d/sensor/%d" % (number // 100, number), PAYLOAD, b"", 0, 1)


def runs_of(count: int) -> list[Run]:
    return [run_of(number) for number in range(count)]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def bench_put(count: int, shared: bool) -> dict[str, float]:
    store = RetainedStore(0, 0, WALL_MS)
    if shared:
        store.share(7)
    gc.collect()
    before = resident_bytes()
    for number in range(count):
        run = run_of(number)
        store.put(run.topic, run.alone(), 0)
    gc.collect()
    took = resident_bytes() - before
    runs = runs_of(count)
    began = time.process_time()
    for run in runs:
        store.put(run.topic, run.alone(), 1)
    again_s = time.process_time() - began
    fresh = RetainedStore(0, 0, WALL_MS)
    if shared:
        fresh.share(7)
    began = time.process_time()
    for run in runs:
        fresh.put(run.topic, run.alone(), 0)
    first_s = time.process_time() - began
    return {
        "puts_per_s": count / first_s,
        "replacing_puts_per_s": count / again_s,
        "bytes_per_message": took / count,
        "of_which_topic_and_packet": sum(sys.getsizeof(run.topic) + sys.getsizeof(run.wire) for run in runs) / count,
    }


class Wire:
    """An Outbox whose parts wait to be read."""

    def __init__(self) -> None:
        self.bodies: deque[bytes] = deque()
        self.bytes = 0

    def send(self, peer: int, channel: int, body: bytes) -> None:  # noqa: ARG002 there is one peer
        self.bytes += len(body)
        self.bodies.append(body)


def bench_repair(count: int) -> dict[str, float]:
    """One node has everything, the other nothing."""
    wires = [Wire(), Wire()]
    stores = [RetainedStore(0, 0, WALL_MS) for _ in wires]
    sides = [
        RetainedSync(node, stores[node], wires[node], EventList(), random.Random(1), 0) for node in range(len(wires))
    ]
    for run in runs_of(count):
        stores[0].put(run.topic, run.alone(), 0)
    sides[0].flush(0)
    began = time.process_time()
    for node, side in enumerate(sides):
        side.peer_up(1 - node, 0)
    turns = 0
    longest_s = 0.0
    while wires[0].bodies or wires[1].bodies or turns == 0:
        turns += 1
        for node, side in enumerate(sides):
            at = time.process_time()
            inbox = wires[1 - node].bodies
            for _ in range(len(inbox)):
                side.receive(1 - node, inbox.popleft(), 0)
            side.flush(0)
            longest_s = max(longest_s, time.process_time() - at)
    took_s = time.process_time() - began
    assert stores[0].usage.count == stores[1].usage.count == count
    return {
        "messages_per_s": count / took_s,
        "seconds": took_s,
        "round_trips": turns / 2,
        "bytes_on_the_wire_per_message": (wires[0].bytes + wires[1].bytes) / count,
        "longest_turn_ms": longest_s * 1000,
    }


async def bench_disk(count: int, folder: Path) -> dict[str, float]:
    path = folder / "retained.db"
    store = RetainedStore(0, 0, WALL_MS)
    storage = RetainedStorage(path, store, EventList(), lambda: 0)
    await storage.open()
    runs = runs_of(count)
    late_s = 0.0
    began = time.monotonic()
    for at in range(0, count, 100):
        for run in runs[at : at + 100]:
            store.put(run.topic, run.alone(), 0)
        turn = time.monotonic()
        await asyncio.sleep(0)
        late_s = max(late_s, time.monotonic() - turn)
    put_s = time.monotonic() - began
    await storage.flush()
    saved_s = time.monotonic() - began
    store.put(runs[0].topic, runs[0].alone(), 1)
    began = time.monotonic()
    await storage.flush()
    one_s = time.monotonic() - began
    await storage.stop()
    size = path.stat().st_size
    again = RetainedStore(0, 0, WALL_MS)
    storage = RetainedStorage(path, again, EventList(), lambda: 0)
    began = time.monotonic()
    await storage.open()
    loaded_s = time.monotonic() - began
    await storage.stop()
    assert again.usage.count == count
    return {
        "puts_per_s": count / put_s,
        "topics_saved_per_s": count / saved_s,
        "loop_late_ms_max": late_s * 1000,
        "one_message_ms": one_s * 1000,
        "file_bytes_per_message": size / count,
        "load_seconds": loaded_s,
        "loaded_per_s": count / loaded_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--folder", default=".", help="where the file is written: disks differ")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    gc.collect()
    gc.set_threshold(50_000, 20, 50)  # as the broker does
    figures = {
        "put, one node": bench_put(options.messages, shared=False),
        "put, in a cluster": bench_put(options.messages, shared=True),
        "repair": bench_repair(options.messages),
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures["disk"] = asyncio.run(bench_disk(options.messages, Path(folder)))
    if options.json:
        print(json.dumps({"python": platform.python_version(), "messages": options.messages} | figures, indent=2))
        return
    for name, values in figures.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:32} {value:>14,.1f}")


if __name__ == "__main__":
    main()
