"""What routing costs with few and with many wildcard subscriptions.

    python benchmarks/micro/routing.py [--filters 100 100000] [--names 65536] [--json]

``known``       a name whose plan is kept: one lookup
``never seen``  a name that comes for the first time while the plan cache is full: match
``again``       the same name for the second time: match, keep, evict the oldest
``unmatched``   a name that nobody subscribed to, for the first time
``subscribe``   one more wildcard filter while the plan cache is full, matching one kept name
``walk``        the same for a filter with a leading ``+``, which has to look at many names
``bytes``       memory of one subscription, filter included

The load is a fleet: filters ``fleet/<region>/<device>/+/state``, each of its own session, names below them. Times are
processor time, the best of some rounds, in which few and many filters take turns: so a busy machine disturbs less.
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
ROUNDS = 20
BATCH = 2048  # small, as names come: just cut out of a read buffer, not from far memory


def subscriptions(filters: list[bytes]) -> list[Subscription]:
    """One for each filter, each of its own session."""
    sessions = [Session(f"client-{number}", 5, 0) for number in range(len(filters))]
    return [
        Subscription(session, topic_filter, b"", 0, False, False, 0, 0)
        for session, topic_filter in zip(sessions, filters, strict=True)
    ]


def lookup(table: SubscriptionTable, names: list[bytes]) -> float:
    """Seconds per name, looked up as the broker does it."""
    plans = table.plans
    start = time.process_time()
    for name in names:
        plan = plans.get(name)
        if plan is None:
            plan = table.plan(name)
    return (time.process_time() - start) / len(names)


def subscribe(table: SubscriptionTable, filters: list[bytes]) -> float:
    """Seconds per filter."""
    asked = subscriptions(filters)
    start = time.process_time()
    for subscription in asked:
        table.add(subscription)
    return (time.process_time() - start) / len(asked)


class Fleet:
    """A table with so many filters, and a full cache of plans."""

    def __init__(self, filters: int, names: int) -> None:
        self.rng = random.Random(1)
        self.filters = filters
        self.fresh = 0
        self.table = SubscriptionTable(names, "round_robin", self.rng)
        self.best: dict[str, float] = {}
        asked = [f"{self.place(number)}/+/state".encode() for number in range(filters)]
        sessions = [Session(f"client-{number}", 5, 0) for number in range(filters)]
        tracemalloc.start()
        for session, topic_filter in zip(sessions, asked, strict=True):
            self.table.add(Subscription(session, topic_filter, b"", 0, False, False, 0, 0))
        self.bytes = tracemalloc.get_traced_memory()[0] / filters
        tracemalloc.stop()
        while len(self.table.plans) < names * 0.95:
            some = self.unseen(BATCH, "state")
            lookup(self.table, some)
            lookup(self.table, some)

    @staticmethod
    def place(device: int) -> str:
        return f"fleet/{device % REGIONS}/{device}"

    def unseen(self, count: int, leaf: str) -> list[bytes]:
        self.fresh += count
        numbers = range(self.fresh - count, self.fresh)
        return [f"{self.place(self.rng.randrange(self.filters))}/{number}/{leaf}".encode() for number in numbers]

    def note(self, row: str, seconds: float) -> None:
        self.best[row] = min(seconds, self.best.get(row, seconds))

    def publish(self) -> None:
        """One round of the rows about names."""
        self.note("known", lookup(self.table, self.rng.choices(list(self.table.plans), k=BATCH) * 8))
        some = self.unseen(BATCH, "state")
        self.note("never seen", lookup(self.table, some))
        self.note("again", lookup(self.table, some))
        self.note("unmatched", lookup(self.table, self.unseen(BATCH, "other")))

    def join(self, number: int) -> None:
        """One round of the rows about filters."""
        kept = self.rng.sample(list(self.table.plans), 200)
        self.note("subscribe", subscribe(self.table, [name + b"/#" for name in kept]))
        self.note("walk", subscribe(self.table, [b"+/%d/+/+/nothing" % number]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--filters", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--names", type=int, default=65_536, help="plans kept")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    fleets = [Fleet(filters, arguments.names) for filters in arguments.filters]
    gc.collect()
    gc.freeze()  # as the broker does after its start
    for _ in range(ROUNDS):
        for fleet in fleets:
            fleet.publish()
    for number in range(ROUNDS // 4):
        for fleet in fleets:
            fleet.join(number)
    compiled = not (table_module.__file__ or "").endswith(".py")
    if arguments.json:
        about = {"python": platform.python_version(), "machine": platform.platform(), "compiled": compiled}
        results = [{"filters": fleet.filters, "seconds": fleet.best, "bytes": fleet.bytes} for fleet in fleets]
        json.dump({**about, "names": arguments.names, "results": results}, sys.stdout, indent=2)
        return
    print(f"routing, {'compiled' if compiled else 'plain Python'}, {arguments.names:,} names kept; ns each")
    print(f"{'':<12}" + "".join(f"{f'{fleet.filters:,} filters':>20}" for fleet in fleets) + f"{'ratio':>10}")
    for row in fleets[0].best:
        cells = "".join(f"{fleet.best[row] * 1e9:>20,.0f}" for fleet in fleets)
        print(f"{row:<12}{cells}{fleets[-1].best[row] / fleets[0].best[row]:>10.2f}")
    print(f"{'bytes':<12}" + "".join(f"{fleet.bytes:>20,.0f}" for fleet in fleets))


if __name__ == "__main__":
    main()
