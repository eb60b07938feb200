"""``flockmq bench``: load on any MQTT broker, and what it made of it.

```
 bench pub | sub | roundtrip | latency      options --> Target, Load, Setting --> client.load.run --> Outcome
 bench hold | connect                       options --> Target, Crowd ----------> client.load.hold --> CrowdOutcome
```
Nothing is measured here; the commands only say what to do and print what came of it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from flockmq.cli.bench_options import (
    PORTS,
    BrokerPid,
    CaFile,
    Connections,
    CountAll,
    Cpus,
    FilterKind,
    FreshNames,
    Host,
    IdleSeconds,
    Insecure,
    KeepAlive,
    ListenSeconds,
    Messages,
    MorePorts,
    Mqtt,
    MqttSubscribers,
    PasswordFile,
    Port,
    Prefix,
    Processes,
    Publishers,
    Qos,
    Rate,
    Retain,
    Seconds,
    Size,
    StaySeconds,
    SteadyRate,
    Subscribe,
    Subscribers,
    Subscriptions,
    TopicAlias,
    Topics,
    Username,
    UserProperties,
    Via,
    Window,
    WsPath,
)
from flockmq.cli.bench_print import count_up, live_rates, print_crowd, print_outcome
from flockmq.cli.output import JsonOption, print_json
from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.client.load.plan import Load, Target


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Make load on a broker and measure it.")
    group.command("roundtrip")(roundtrip)
    group.command("latency")(latency)
    group.command("pub")(pub)
    group.command("sub")(sub)
    group.command("hold")(hold_command)
    group.command("connect")(connect_command)
    app.add_typer(group, name="bench")


def roundtrip(
    *,
    host: Host = "127.0.0.1",
    port: Port = 0,
    more_ports: MorePorts = None,
    transport: Via = "tcp",
    path: WsPath = "/mqtt",
    ca_file: CaFile = "",
    insecure: Insecure = False,
    username: Username = "",
    password_file: PasswordFile = None,
    mqtt: Mqtt = "3.1.1",
    mqtt_subscribers: MqttSubscribers = "",
    publishers: Publishers = 1,
    subscribers: Subscribers = 1,
    topics: Topics = 1,
    subscriptions: Subscriptions = 0,
    filter_kind: FilterKind = "each",
    qos: Qos = 0,
    size: Size = 64,
    messages: Messages = 0,
    seconds: Seconds = 5.0,
    window: Window = 100,
    rate: Rate = 0.0,
    user_properties: UserProperties = 0,
    topic_alias: TopicAlias = False,
    fresh_names: FreshNames = False,
    retain: Retain = False,
    prefix: Prefix = "bench",
    processes: Processes = 1,
    cpus: Cpus = "",
    broker_pid: BrokerPid = None,
    idle_seconds: IdleSeconds = 3.0,
    as_json: JsonOption = False,
) -> None:
    """Publish and receive: what comes out at the other end, and how fast."""
    from flockmq.client.load.plan import Load

    load = Load(
        publishers=publishers,
        subscribers=subscribers,
        topics=topics,
        subscriptions=subscriptions,
        filter=filter_kind,
        qos=qos,
        payload_bytes=size,
        messages=messages,
        seconds=seconds,
        window=window,
        rate=rate,
        version=_level(mqtt),
        subscriber_version=_level(mqtt_subscribers),
        user_properties=user_properties,
        topic_alias=topic_alias,
        fresh_names=fresh_names,
        retain=retain,
        prefix=prefix,
        idle_s=idle_seconds,
    )
    target = _target(host, port, transport, path, ca_file, insecure, username, password_file)
    target = replace(target, more_ports=tuple(more_ports or ()))
    _run(target, load, processes, cpus, broker_pid, as_json=as_json)


def latency(
    *,
    host: Host = "127.0.0.1",
    port: Port = 0,
    transport: Via = "tcp",
    path: WsPath = "/mqtt",
    ca_file: CaFile = "",
    insecure: Insecure = False,
    username: Username = "",
    password_file: PasswordFile = None,
    mqtt: Mqtt = "3.1.1",
    publishers: Publishers = 1,
    subscribers: Subscribers = 1,
    topics: Topics = 1,
    qos: Qos = 1,
    size: Size = 64,
    seconds: Seconds = 10.0,
    rate: SteadyRate = 2_000.0,
    prefix: Prefix = "bench",
    cpus: Cpus = "",
    broker_pid: BrokerPid = None,
    as_json: JsonOption = False,
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
        version=_level(mqtt),
        prefix=prefix,
    )
    target = _target(host, port, transport, path, ca_file, insecure, username, password_file)
    _run(target, load, 1, cpus, broker_pid, as_json=as_json)


def pub(
    *,
    host: Host = "127.0.0.1",
    port: Port = 0,
    transport: Via = "tcp",
    path: WsPath = "/mqtt",
    ca_file: CaFile = "",
    insecure: Insecure = False,
    username: Username = "",
    password_file: PasswordFile = None,
    mqtt: Mqtt = "3.1.1",
    publishers: Publishers = 1,
    topics: Topics = 1,
    qos: Qos = 0,
    size: Size = 64,
    messages: Messages = 0,
    seconds: Seconds = 5.0,
    window: Window = 100,
    rate: Rate = 0.0,
    user_properties: UserProperties = 0,
    topic_alias: TopicAlias = False,
    retain: Retain = False,
    prefix: Prefix = "bench",
    processes: Processes = 1,
    cpus: Cpus = "",
    broker_pid: BrokerPid = None,
    as_json: JsonOption = False,
) -> None:
    """Only publish; subscribers, if any, are elsewhere (for example ``bench sub`` with the same prefix)."""
    from flockmq.client.load.plan import Load

    load = Load(
        publishers=publishers,
        subscribers=0,
        topics=topics,
        qos=qos,
        payload_bytes=size,
        messages=messages,
        seconds=seconds,
        window=window,
        rate=rate,
        version=_level(mqtt),
        user_properties=user_properties,
        topic_alias=topic_alias,
        retain=retain,
        prefix=prefix,
    )
    target = _target(host, port, transport, path, ca_file, insecure, username, password_file)
    _run(target, load, processes, cpus, broker_pid, as_json=as_json)


def sub(
    *,
    host: Host = "127.0.0.1",
    port: Port = 0,
    transport: Via = "tcp",
    path: WsPath = "/mqtt",
    ca_file: CaFile = "",
    insecure: Insecure = False,
    username: Username = "",
    password_file: PasswordFile = None,
    mqtt: Mqtt = "3.1.1",
    subscribers: Subscribers = 1,
    topics: Topics = 1,
    filter_kind: FilterKind = "wild",
    qos: Qos = 0,
    messages: CountAll = 0,
    seconds: ListenSeconds = 10.0,
    prefix: Prefix = "bench",
    processes: Processes = 1,
    cpus: Cpus = "",
    broker_pid: BrokerPid = None,
    as_json: JsonOption = False,
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
        version=_level(mqtt),
        prefix=prefix,
    )
    target = _target(host, port, transport, path, ca_file, insecure, username, password_file)
    _run(target, load, processes, cpus, broker_pid, as_json=as_json)


def hold_command(
    *,
    host: Host = "127.0.0.1",
    port: Port = 0,
    transport: Via = "tcp",
    path: WsPath = "/mqtt",
    ca_file: CaFile = "",
    insecure: Insecure = False,
    username: Username = "",
    password_file: PasswordFile = None,
    mqtt: Mqtt = "3.1.1",
    connections: Connections = 10_000,
    seconds: StaySeconds = 1.0,
    subscribe: Subscribe = False,
    keep_alive: KeepAlive = 0,
    broker_pid: BrokerPid = None,
    as_json: JsonOption = False,
) -> None:
    """Open many connections that do nothing, and measure what each costs the broker."""
    from flockmq.client.load.hold import Crowd, hold

    target = _target(host, port, transport, path, ca_file, insecure, username, password_file)
    crowd = Crowd(
        connections=connections,
        seconds=seconds,
        version=_level(mqtt),
        subscribe=subscribe,
        keep_alive_s=keep_alive,
    )
    print_crowd(hold(target, crowd, tuple(broker_pid or ()), count_up(as_json, connections)), as_json=as_json)


def connect_command(
    *,
    host: Host = "127.0.0.1",
    port: Port = 0,
    transport: Via = "tcp",
    path: WsPath = "/mqtt",
    ca_file: CaFile = "",
    insecure: Insecure = False,
    username: Username = "",
    password_file: PasswordFile = None,
    mqtt: Mqtt = "3.1.1",
    connections: Connections = 10_000,
    as_json: JsonOption = False,
) -> None:
    """Connect and leave again, as fast as the broker allows."""
    from flockmq.client.load.hold import Crowd, connect_rate

    target = _target(host, port, transport, path, ca_file, insecure, username, password_file)
    crowd = Crowd(connections=connections, version=_level(mqtt))
    print_crowd(connect_rate(target, crowd, count_up(as_json, connections)), as_json=as_json)


def _target(
    host: str,
    port: int,
    transport: str,
    path: str,
    ca_file: str,
    insecure: bool,
    username: str,
    password_file: Path | None,
) -> Target:
    from flockmq.client.load.plan import Target

    password = os.environ.get("FLOCKMQ_PASSWORD", "") if username else ""
    if password_file is not None:
        try:
            password = password_file.read_text(encoding="utf-8").partition("\n")[0]
        except OSError as error:
            raise FlockError(f"{password_file} can't be read ({error.strerror}); check its name.") from None
    return Target(
        host=host,
        port=port or PORTS[transport],
        transport=transport,
        path=path,
        ca_file=ca_file,
        insecure=insecure,
        username=username,
        password=password,
    )


def _level(version: str) -> int:
    return {"3.1.1": 4, "5": 5}.get(version, 0)


def _processors(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise UsageError(f"--cpus can't be {text!r}; write numbers with commas, like 1 or 1,3.") from None


def _run(
    target: Target, load: Load, processes: int, cpus: str, broker_pids: list[int] | None, *, as_json: bool
) -> None:
    from flockmq.client.load.run import Setting, run

    setting = Setting(processes=processes, cpus=_processors(cpus), broker_pids=tuple(broker_pids or ()))
    outcome = run(target, load, setting, None if as_json else live_rates())
    if as_json:
        print_json(outcome.as_json())
    else:
        print_outcome(load, outcome)
    if outcome.lost and load.qos:
        raise typer.Exit(1)
