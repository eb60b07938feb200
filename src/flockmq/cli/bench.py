"""``flockmq bench``: load on any MQTT broker, and what it made of it.

```
 bench pub | sub | roundtrip | latency      options --> Target, Load, Setting --> client.load.run --> Outcome
 bench hold | connect                       options --> Target, Crowd ----------> client.load.hold --> CrowdOutcome
```
Nothing is measured here; the commands only say what to do and print what came of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from flockmq.cli.bench_options import (
    AudienceOptions,
    BrokerOptions,
    BrokerPid,
    Connections,
    CountAll,
    FilterKind,
    IdleSeconds,
    KeepAlive,
    ListenSeconds,
    MeasureOptions,
    MorePorts,
    Prefix,
    Processes,
    Publishers,
    Qos,
    Seconds,
    Size,
    StaySeconds,
    SteadyRate,
    StreamOptions,
    Subscribe,
    Subscribers,
    Topics,
    level_of,
)
from flockmq.cli.bench_print import count_up, live_rates, print_crowd, print_outcome
from flockmq.cli.option_groups import grouped
from flockmq.cli.output import JsonOption, print_json
from flockmq.cli.usage import UsageError

if TYPE_CHECKING:
    from flockmq.client.load.plan import Load, Target


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Make load on a broker and measure it.")
    group.command("roundtrip")(grouped(roundtrip))
    group.command("latency")(grouped(latency))
    group.command("pub")(grouped(pub))
    group.command("sub")(grouped(sub))
    group.command("hold")(grouped(hold_command))
    group.command("connect")(grouped(connect_command))
    app.add_typer(group, name="bench")


def roundtrip(
    *,
    broker: BrokerOptions,
    more_ports: MorePorts = None,
    stream: StreamOptions,
    audience: AudienceOptions,
    processes: Processes = 1,
    measure: MeasureOptions,
    idle_seconds: IdleSeconds = 3.0,
) -> None:
    """Publish and receive: what comes out at the other end, and how fast."""
    load = replace(
        stream.load(broker.level),
        subscribers=audience.subscribers,
        subscriptions=audience.subscriptions,
        filter=audience.filter_kind,
        subscriber_version=level_of(audience.mqtt_subscribers),
        fresh_names=audience.fresh_names,
        idle_s=idle_seconds,
    )
    _run(replace(broker.target(), more_ports=tuple(more_ports or ())), load, processes, measure)


def latency(
    *,
    broker: BrokerOptions,
    publishers: Publishers = 1,
    subscribers: Subscribers = 1,
    topics: Topics = 1,
    qos: Qos = 1,
    size: Size = 64,
    seconds: Seconds = 10.0,
    rate: SteadyRate = 2_000.0,
    prefix: Prefix = "bench",
    measure: MeasureOptions,
) -> None:
    """Publish at a steady rate and measure how long each message is under way."""
    from flockmq.client.load.plan import Load

    load = Load(
        publishers=publishers,
        subscribers=subscribers,
        topics=topics,
        qos=qos,
        payload_bytes=size,
        seconds=seconds,
        rate=rate,
        version=broker.level,
        prefix=prefix,
    )
    _run(broker.target(), load, 1, measure)


def pub(*, broker: BrokerOptions, stream: StreamOptions, processes: Processes = 1, measure: MeasureOptions) -> None:
    """Only publish; subscribers, if any, are elsewhere (for example ``bench sub`` with the same prefix)."""
    _run(broker.target(), stream.load(broker.level), processes, measure)


def sub(
    *,
    broker: BrokerOptions,
    subscribers: Subscribers = 1,
    topics: Topics = 1,
    filter_kind: FilterKind = "wild",
    qos: Qos = 0,
    messages: CountAll = 0,
    seconds: ListenSeconds = 10.0,
    prefix: Prefix = "bench",
    processes: Processes = 1,
    measure: MeasureOptions,
) -> None:
    """Only subscribe and count what others publish."""
    from flockmq.client.load.plan import Load

    load = Load(
        publishers=0,
        subscribers=subscribers,
        topics=topics,
        filter=filter_kind,
        qos=qos,
        messages=messages,
        seconds=seconds,
        version=broker.level,
        prefix=prefix,
    )
    _run(broker.target(), load, processes, measure)


def hold_command(
    *,
    broker: BrokerOptions,
    connections: Connections = 10_000,
    seconds: StaySeconds = 1.0,
    subscribe: Subscribe = False,
    keep_alive: KeepAlive = 0,
    broker_pid: BrokerPid = None,
    as_json: JsonOption = False,
) -> None:
    """Open many connections that do nothing, and measure what each costs the broker."""
    from flockmq.client.load.hold import Crowd, hold

    crowd = Crowd(
        connections=connections,
        seconds=seconds,
        version=broker.level,
        subscribe=subscribe,
        keep_alive_s=keep_alive,
    )
    outcome = hold(broker.target(), crowd, tuple(broker_pid or ()), count_up(as_json, connections))
    print_crowd(outcome, as_json=as_json)


def connect_command(*, broker: BrokerOptions, connections: Connections = 10_000, as_json: JsonOption = False) -> None:
    """Connect and leave again, as fast as the broker allows."""
    from flockmq.client.load.hold import Crowd, connect_rate

    crowd = Crowd(connections=connections, version=broker.level)
    print_crowd(connect_rate(broker.target(), crowd, count_up(as_json, connections)), as_json=as_json)


def _processors(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise UsageError(f"--cpus can't be {text!r}; write numbers with commas, like 1 or 1,3.") from None


def _run(target: Target, load: Load, processes: int, measure: MeasureOptions) -> None:
    from flockmq.client.load.run import Setting, run

    pids = tuple(measure.broker_pid or ())
    setting = Setting(processes=processes, cpus=_processors(measure.cpus), broker_pids=pids)
    outcome = run(target, load, setting, None if measure.as_json else live_rates())
    if measure.as_json:
        print_json(outcome.as_json())
    else:
        print_outcome(load, outcome)
    if outcome.lost and load.qos:
        raise typer.Exit(1)
