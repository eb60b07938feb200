"""What routing costs with few and with many wildcard subscriptions.

    python benchmarks/micro/routing.py [--filters 100 100000] [--names 65536] [--json]

``known``       a name whose plan is kept: one lookup
``never seen``  a name that comes for the first time while the plan cache is full: match
``again``       the same name for the second time: match, keep, evict the oldest
``unmatched``   the same for a name that nobody subscribed to
``subscribe``   one more wildcard filter while the plan cache is full, matching one kept name
``walk``        the same for a filter with a leading ``+``, which has to look at many names
``bytes``       memory of one subscription, filter included

The load is a fleet: filters ``fleet/<region>/<device>/+/state``, each of its own session, names below them.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import sys
import time
import tracemalloc

from flockmq.routing import table as table_module
from flockmq.routing.subscription import Subscription
from flockmq.routing.table import SubscriptionTable
from flockmq.session.session import Session

REGIONS = 64
REPEATS = 10


def place(device: int) -> str:
    return f"fleet/{device % REGIONS}/{device}"


def subscriptions(filters: list[str]) -> list[Subscription]:
    """One for each filter, each of its own session."""
    sessions = [Session(f"client-{number}", 5, 0) for number in range(len(filters))]
    return [
        Subscription(session, topic_filter.encode(), b"", 0, False, False, 0, 0)
        for session, topic_filter in zip(sessions, filters, strict=True)
    ]


def subscribe(table: SubscriptionTable, filters: list[str]) -> float:
    """Seconds per filter."""
    asked = subscriptions(filters)
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    for subscription in asked:
        table.add(subscription)
    return (time.perf_counter() - start) / len(asked)


def lookup(table: SubscriptionTable, names: list[bytes]) -> float:
    """Seconds per name, looked up as the broker does it."""
    plans = table.plans
    start = time.perf_counter()
    for name in names:
        plan = plans.get(name)
        if plan is None:
            plan = table.plan(name)
    return (time.perf_counter() - start) / len(names)


def measure(filters: int, names: int) -> dict[str, float]:
    rng = random.Random(1)
    table = SubscriptionTable(names, "round_robin", rng)
    gc.collect()
    tracemalloc.start()
    sessions = [Session(f"client-{number}", 5, 0) for number in range(filters)]
    empty, _ = tracemalloc.get_traced_memory()
    for number in range(filters):
        topic_filter = f"{place(number)}/+/state".encode()
        table.add(Subscription(sessions[number], topic_filter, b"", 0, False, False, 0, 0))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    fresh = 0

    def unseen(count: int, leaf: str) -> list[bytes]:
        nonlocal fresh
        fresh += count
        return [f"{place(rng.randrange(filters))}/{fresh - n}/{leaf}".encode() for n in range(count)]

    warm = unseen(names, "state")
    lookup(table, warm)
    lookup(table, warm)
    known = rng.sample(sorted(table.plans), min(4096, names)) * 4
    gc.collect()
    gc.freeze()
    result = {"known": min(lookup(table, known) for _ in range(REPEATS))}
    batch = min(4096, names)  # small, as names come: just cut out of a read buffer, not from far memory
    result["never seen"] = result["again"] = result["unmatched"] = 1.0
    for row, leaf in (("never seen", "state"), ("unmatched", "other")):
        for _ in range(REPEATS):
            some = unseen(batch, leaf)
            result[row] = min(result[row], lookup(table, some))
            result["again"] = min(result["again"], lookup(table, some))
    kept = rng.sample(sorted(table.plans), names // 16)
    result["subscribe"] = subscribe(table, [name.decode() + "/#" for name in kept])
    result["walk"] = subscribe(table, [f"+/{number}/+/+/nothing" for number in range(20)])
    result["bytes"] = (used - empty) / filters
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--filters", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--names", type=int, default=65_536, help="plans kept")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {filters: measure(filters, arguments.names) for filters in arguments.filters}
    compiled = not (table_module.__file__ or "").endswith(".py")
    if arguments.json:
        about = {"python": platform.python_version(), "machine": platform.platform(), "compiled": compiled}
        json.dump({**about, "seconds": results}, sys.stdout, indent=2)
        return
    print(f"routing, {'compiled' if compiled else 'plain Python'}, {arguments.names:,} names kept; ns each")
    print(f"{'':<12}" + "".join(f"{f'{filters:,} filters':>20}" for filters in results) + f"{'ratio':>10}")
    first, last = next(iter(results.values())), list(results.values())[-1]
    for row in first:
        scale = 1 if row == "bytes" else 1e9
        cells = "".join(f"{result[row] * scale:>20,.0f}" for result in results.values())
        print(f"{row:<12}{cells}{last[row] / first[row]:>10.2f}")


if __name__ == "__main__":
    main()
