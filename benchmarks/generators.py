"""Makes the load: with the project's own engine, or with an external program that belongs to nobody.

```
 Engine     python -m flockmq bench ...      everything
 External   a program as ``--blast`` names    MQTT 3.1.1 over TCP: rates and latency
            a program as ``--hold`` names     idle connections
```
Either runs as a process of its own. What an external program can't do, the engine does, and the result says so. The
external programs take the options -h -p -P -S -T -q -s -n -w -r -f -B and print ``key=value`` pairs in one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.brokers import Running, pinned
from benchmarks.cases import MANY_SUBSCRIPTIONS, Case
from flockmq.client.load.plan import Load
from flockmq.errors import FlockError

TIMEOUT_S = 600
PROBE_MESSAGES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure, and with what."""

    seconds: float = 4.0
    connections: int = 10_000
    cpus: tuple[int, ...] = ()
    blast: str = ""
    """Path of an external load generator."""
    hold: str = ""
    """Path of an external program that holds connections."""


Figures = dict[str, float]


def measure(case: Case, running: Running, effort: Effort) -> tuple[Figures, str]:
    """The figures of one run of one case, and the name of the generator that made the load."""
    with pinned(effort.cpus):
        if case.kind == "memory":
            return _memory(running, effort)
        if case.kind == "cost":
            return _one_cost(case.load, running, effort), "flockmq bench"
        if effort.blast and case.setup in {"plain", "acl"} and case.load.version == 4:
            return _blast(case, running, effort), "external"
        return _engine(case, running, effort), "flockmq bench"


def many(case: Case) -> Case:
    """The same case with as many subscriptions as it is about."""
    return replace(case, load=replace(case.load, subscriptions=MANY_SUBSCRIPTIONS))


def _engine(case: Case, running: Running, effort: Effort) -> Figures:
    found = _bench("roundtrip", case.load, running, effort)
    if case.kind == "latency":
        return {"p50_us": found["latency_us_p50"], "p99_us": found["latency_us_p99"], "lost": found["lost"]}
    return {
        "rate": found["deliver_rate"],
        "lost": found["lost"],
        "generator_busy": found["client_busy"],
        "per_cpu_second": found["messages_per_cpu_s"] or 0.0,
    }


def _one_cost(load: Load, running: Running, effort: Effort) -> Figures:
    """Processor time of the broker for each message it was sent."""
    found = _bench("roundtrip", load, running, effort)
    name = "many_us" if load.subscriptions == MANY_SUBSCRIPTIONS else "few_us"
    return {name: found["broker_cpu_s"] * 1e6 / max(1, found["sent"]), "lost": found["lost"]}


def _memory(running: Running, effort: Effort) -> tuple[Figures, str]:
    if effort.hold:
        command = [effort.hold, "-p", str(running.target.port), "-n", str(effort.connections), "-H", "0"]
        found = _pairs([*command, "-B", ",".join(map(str, running.pids))])
        return {"kb": found["kb_per_conn"], "connect_rate": found["connect_rate"]}, "external"
    arguments = ["hold", "--connections", str(effort.connections), "--seconds", "0", *_where(running)]
    told = _flockmq(arguments)
    return {"kb": told["kb_per_connection"], "connect_rate": told["connect_rate"]}, "flockmq bench"


def _bench(command: str, load: Load, running: Running, effort: Effort) -> Figures:
    versions = {4: "3.1.1", 5: "5"}
    arguments = [command, *_where(running)]
    arguments += ["--mqtt", versions[load.version], "--mqtt-subscribers", versions[load.version_of_subscribers]]
    arguments += ["--publishers", str(load.publishers), "--subscribers", str(load.subscribers)]
    arguments += ["--topics", str(load.topics), "--subscriptions", str(load.subscriptions), "--filter", load.filter]
    arguments += ["--qos", str(load.qos), "--size", str(load.payload_bytes), "--window", str(load.window)]
    arguments += ["--rate", str(load.rate), "--seconds", str(effort.seconds), "--prefix", load.prefix]
    arguments += ["--user-properties", str(load.user_properties)]
    if load.fresh_names:
        arguments.append("--fresh-names")
    return _flockmq(arguments)


def _where(running: Running) -> list[str]:
    target = running.target
    found = ["--port", str(target.port), "--transport", target.transport]
    found += [part for port in target.more_ports for part in ("--more-port", str(port))]
    if target.ca_file:
        found += ["--ca-file", target.ca_file]
    for pid in running.pids:
        found += ["--broker-pid", str(pid)]
    return found


def _flockmq(arguments: Sequence[str]) -> Figures:
    command = [sys.executable, "-m", "flockmq", "bench", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if not done.stdout.strip():
        raise FlockError(done.stderr.strip() or f"The load generator ended with code {done.returncode}")
    figures: Figures = json.loads(done.stdout)
    return figures


def _blast(case: Case, running: Running, effort: Effort) -> Figures:
    """External programs end after a number of messages: a short run tells which number takes the wanted time."""
    if case.load.rate:
        count = int(case.load.rate * effort.seconds)
    else:
        probe = _pairs(_blast_command(case.load, running, effort, PROBE_MESSAGES // case.load.publishers))
        count = max(PROBE_MESSAGES, int(probe["pub_rate"] * effort.seconds)) // case.load.publishers
    found = _pairs(_blast_command(case.load, running, effort, count))
    lost = found["expect"] - found["got"]
    if case.kind == "latency":
        return {"p50_us": found["p50_us"], "p99_us": found["p99_us"], "lost": lost}
    return {"rate": found["deliver_rate"], "lost": lost, "per_cpu_second": found.get("msgs_per_cpu_s", 0.0)}


def _blast_command(load: Load, running: Running, effort: Effort, messages: int) -> list[str]:
    options = {
        "-h": "127.0.0.1",
        "-p": running.target.port,
        "-P": load.publishers,
        "-S": load.subscribers,
        "-T": load.topics,
        "-q": load.qos,
        "-s": load.payload_bytes,
        "-n": messages,
        "-w": load.window,
        "-r": f"{load.rate:g}",
        "-f": load.filter,
        "-t": load.prefix,
        "-B": ",".join(map(str, running.pids)),
    }
    return [effort.blast, *(str(part) for pair in options.items() for part in pair)]


def _pairs(command: Sequence[str]) -> Figures:
    """Run a program and read its ``key=value`` pairs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except OSError as error:
        raise FlockError(f"{command[0]} can't be run: {error.strerror}") from error
    found: Figures = {}
    for pair in done.stdout.split():
        key, equals, value = pair.partition("=")
        if equals:
            found[key] = float(value)
    if not found:
        raise FlockError(f"{command[0]} said nothing useful: {done.stderr.strip()}")
    return found
