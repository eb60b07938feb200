"""``python -m benchmarks.gossip``: a large cluster's membership for hours of simulated time.

```
 --nodes 1000 --loss 0.05 --hours 1     start them, let them find each other, then kill and restart one now and then;
                                        says how long joins and deaths took, and which deaths were wrong
 --bandwidth 10,100,1000 [--loss 0.05]  what a node sends when nothing changes
```
Probes go by datagrams alone here (no help of links), so that loss counts in full. Exit code 1 if anything that
docs/internals/membership.md promises did not hold.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

from flockmq.gossip.settings import PROFILES, GossipSettings
from flockmq.testing.simulation.gossip.cluster import GossipSimulation

DISSEMINATION_FACTOR = 3
"""The paper's lambda: after lambda x ln(nodes) rounds all but nodes^-(2 lambda - 2) have heard it."""
MISSED_PROBES = 7
"""The chance that no node of a large cluster probes a given member in so many intervals is e^-7, one in a thousand."""


def say(text: str) -> None:
    """Print a line now: runs are long and often watched through a pipe."""
    print(text, flush=True)


def bound_ms(settings: GossipSettings, nodes: int) -> int:
    """Within which a death is known to all; docs/internals/membership.md derives it."""
    period = settings.probe_interval_ms
    detection = (MISSED_PROBES + 1) * period
    confirmation = 3 * period
    rounds = math.ceil(DISSEMINATION_FACTOR * math.log(max(nodes, 2)))
    return detection + confirmation + settings.suspicion_min_ms(nodes) + rounds * settings.gossip_interval_ms


class Run:
    """One long run and what it showed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.nodes: int = options.nodes
        self.hours: float = options.hours
        self.deaths: int = options.deaths
        self.settings = PROFILES[options.profile]
        loss = 0.05 if options.loss is None else options.loss
        self.simulation = GossipSimulation(options.seed, self.settings, loss=loss, link_probes=False)
        self.failures: list[str] = []
        self.took_ms: list[int] = []
        self.first_ms: list[int] = []
        self.began = time.monotonic()

    def join(self, over_ms: int) -> None:
        """All nodes come within this time."""
        simulation = self.simulation
        simulation.start_many(self.nodes, over_ms=over_ms)
        took = simulation.run_until_agreed(120_000)
        sent = sum(node.bytes_sent + node.link_bytes_sent for node in simulation.nodes) / self.nodes
        say(
            f"join         {self.nodes} nodes within {over_ms / 1_000:g} s; all agree {took} ms after the last came, "
            f"{sent / 1_000:.0f} kB sent a node ({self.spent()})"
        )
        if took < 0:
            self.failures.append("not all nodes agree two minutes after the last one joined")

    def spent(self) -> str:
        """Real time so far."""
        return f"{time.monotonic() - self.began:.0f} s real"

    def failed_probes(self) -> int:
        """Of the nodes that run now; each began a suspicion, or confirmed one."""
        return sum(node.swim.counters.probes_failed for node in self.simulation.running())

    def live(self) -> None:
        """Time passes; now and then a node loses power, and comes back minutes later."""
        total_ms = int(self.hours * 3_600_000)
        slice_ms = total_ms // (self.deaths + 1) if self.deaths else total_ms
        simulation = self.simulation
        limit = bound_ms(self.settings, self.nodes)
        for number in range(self.deaths + 1):
            end = simulation.now + slice_ms
            victim = -1
            if number:
                victim = simulation.rng.randrange(3, self.nodes)
                simulation.kill(victim, silent=True)
                simulation.run(min(slice_ms // 2, 4 * limit))
                self.judge(victim, limit)
                simulation.restart(victim)
            simulation.run(max(0, end - simulation.now))
            say(
                f"{(number + 1) * slice_ms / 60_000:6.1f} min   {simulation.datagrams:,} datagrams, "
                f"{self.failed_probes():,} failed probes, {len(simulation.false_deaths)} wrong deaths ({self.spent()})"
            )

    def judge(self, victim: int, limit: int) -> None:
        """Was this death known to all in time?"""
        known = self.simulation.known_dead[victim]
        died_at = self.simulation.died_at[victim]
        others = len(self.simulation.running())
        if len(known) < others:
            self.failures.append(f"node {victim} is known as dead by {len(known)} of {others}")
            return
        self.first_ms.append(min(known.values()) - died_at)
        self.took_ms.append(max(known.values()) - died_at)
        if self.took_ms[-1] > limit:
            self.failures.append(f"it took {self.took_ms[-1]} ms until all knew of a death, the bound is {limit} ms")

    def report(self) -> int:
        """The figures; 1 if something failed."""
        simulation = self.simulation
        if self.took_ms:
            mean = sum(self.took_ms) / len(self.took_ms)
            first = sum(self.first_ms) / len(self.first_ms)
            limit = bound_ms(self.settings, self.nodes)
            say(
                f"deaths       {len(self.took_ms)}: known to the first after {first:.0f} ms on average, to all after "
                f"{mean:.0f} ms on average, {max(self.took_ms)} ms at most; bound {limit} ms"
            )
        say(f"wrong deaths {len(simulation.false_deaths)} in {self.hours:g} h")
        if simulation.false_deaths:
            self.failures.append(f"{len(simulation.false_deaths)} times a node was called dead and was not")
        if simulation.run_until_agreed(60_000) < 0:
            self.failures.append("the nodes do not agree in the end")
        for failure in self.failures:
            say(f"FAILED       {failure}")
        say(f"{'failed' if self.failures else 'passed'} ({self.spent()})")
        return int(bool(self.failures))


def measure_bandwidth(
    counts: list[int], settings: GossipSettings, seed: int, loss: float, minutes: float = 2.0
) -> None:
    """What a node sends when nothing changes."""
    for count in counts:
        simulation = GossipSimulation(seed, settings, loss=loss, link_probes=False)
        simulation.start_many(count, over_ms=count * 10)
        simulation.run_until_agreed(120_000)
        simulation.run(30_000)
        nodes = simulation.nodes
        datagrams = simulation.datagrams
        by_datagram = sum(node.bytes_sent for node in nodes)
        by_link = sum(node.link_bytes_sent for node in nodes)
        simulation.run(int(minutes * 60_000))
        seconds = count * minutes * 60
        say(
            f"{count:>6} nodes: {(simulation.datagrams - datagrams) / seconds:6.2f} datagrams/s, "
            f"{(sum(node.bytes_sent for node in nodes) - by_datagram) / seconds:7.1f} B/s by datagrams, "
            f"{(sum(node.link_bytes_sent for node in nodes) - by_link) / seconds:6.1f} B/s by links, a node"
        )


def parse_options(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gossip", description="Simulate members.")
    parser.add_argument("--nodes", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--loss", type=float, help="share of datagrams that is lost (default 0.05; of --bandwidth: 0)")
    parser.add_argument("--hours", type=float, default=0.1, help="simulated (default 0.1)")
    parser.add_argument("--deaths", type=int, default=10, help="nodes that die in this time (default 10)")
    parser.add_argument("--join-seconds", type=float, default=20, help="time in which all nodes come (default 20)")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="lan")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bandwidth", help="measure idle traffic instead, for these numbers of nodes: 10,100")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run; the process's exit code."""
    options = parse_options(words)
    if options.bandwidth:
        counts = [int(count) for count in options.bandwidth.split(",")]
        measure_bandwidth(counts, PROFILES[options.profile], options.seed, options.loss or 0.0)
        return 0
    run = Run(options)
    run.join(int(options.join_seconds * 1_000))
    run.live()
    return run.report()


if __name__ == "__main__":
    sys.exit(main())
