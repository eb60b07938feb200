"""The options of ``flockmq bench``, each described once and used by several of its commands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from flockmq.cli.output import JsonOption
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.client.load.plan import Load, Target

Transport = Literal["tcp", "tls", "ws", "wss"]
PORTS: Final = {"tcp": 1883, "tls": 8883, "ws": 8083, "wss": 8084}

Where: Final = "Where the broker is"
What: Final = "What to send"
How: Final = "How to measure"

Host = Annotated[str, typer.Option("--host", "-H", help="Host of the broker.", rich_help_panel=Where)]
Port = Annotated[
    int, typer.Option("--port", "-p", min=0, help="Port; 0 is the usual one of the transport.", rich_help_panel=Where)
]
MorePorts = Annotated[
    list[int] | None,
    typer.Option("--more-port", min=1, help="A further node; may repeat. Spreads clients.", rich_help_panel=Where),
]
Via = Annotated[Transport, typer.Option("--transport", help="What to go through.", rich_help_panel=Where)]
WsPath = Annotated[str, typer.Option("--path", help="Path of the WebSocket endpoint.", rich_help_panel=Where)]
CaFile = Annotated[str, typer.Option("--ca-file", help="Authority to trust for TLS.", rich_help_panel=Where)]
Insecure = Annotated[bool, typer.Option("--insecure", help="Accept any certificate.", rich_help_panel=Where)]
Username = Annotated[str, typer.Option("--username", "-u", help="User name.", rich_help_panel=Where)]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", help="File whose first line is the password; or set FLOCKMQ_PASSWORD.", rich_help_panel=Where
    ),
]
Mqtt = Annotated[
    Literal["3.1.1", "5"], typer.Option("--mqtt", help="Protocol version of all clients.", rich_help_panel=Where)
]
MqttSubscribers = Annotated[
    Literal["3.1.1", "5", ""],
    typer.Option("--mqtt-subscribers", help="Protocol version of the subscribers, if another.", rich_help_panel=Where),
]

Publishers = Annotated[int, typer.Option("--publishers", "-P", min=1, help="Publishers.", rich_help_panel=What)]
Subscribers = Annotated[int, typer.Option("--subscribers", "-S", min=1, help="Subscribers.", rich_help_panel=What)]
Topics = Annotated[int, typer.Option("--topics", "-T", min=1, help="Topic names, shared out.", rich_help_panel=What)]
Subscriptions = Annotated[
    int, typer.Option("--subscriptions", min=0, help="With filter plus: filters in all.", rich_help_panel=What)
]
FilterKind = Annotated[
    Literal["each", "plus", "wild", "share"],
    typer.Option(
        "--filter",
        "-f",
        help="each: exact names; plus: a + filter for each topic; wild: all hear all; share: one shared group.",
        rich_help_panel=What,
    ),
]
Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Quality of service.", rich_help_panel=What)]
Size = Annotated[int, typer.Option("--size", "-s", min=0, help="Payload in bytes.", rich_help_panel=What)]
Messages = Annotated[
    int, typer.Option("--messages", "-n", min=0, help="Messages of each publisher; 0: by time.", rich_help_panel=What)
]
Seconds = Annotated[float, typer.Option("--seconds", "-d", min=0, help="How long to publish.", rich_help_panel=What)]
Window = Annotated[
    int, typer.Option("--window", "-w", min=1, help="QoS 1, 2: unacknowledged at a time.", rich_help_panel=What)
]
Rate = Annotated[
    float,
    typer.Option("--rate", "-r", min=0, help="Messages a second of all, timed; 0: all out.", rich_help_panel=What),
]
UserProperties = Annotated[
    int, typer.Option("--user-properties", min=0, help="MQTT 5 user properties a message.", rich_help_panel=What)
]
TopicAlias = Annotated[
    bool, typer.Option("--topic-alias", help="MQTT 5 topic aliases, both ways.", rich_help_panel=What)
]
FreshNames = Annotated[
    bool, typer.Option("--fresh-names", help="Every message to a name never seen before.", rich_help_panel=What)
]
Retain = Annotated[bool, typer.Option("--retain", help="Publish retained messages.", rich_help_panel=What)]
Prefix = Annotated[str, typer.Option("--prefix", "-t", help="First part of all topic names.", rich_help_panel=What)]

Processes = Annotated[int, typer.Option("--processes", min=1, help="Generator processes.", rich_help_panel=How)]
Cpus = Annotated[str, typer.Option("--cpus", help="Processors to run on, like 1 or 1,3.", rich_help_panel=How)]
BrokerPid = Annotated[
    list[int] | None,
    typer.Option("--broker-pid", "-B", help="Process whose CPU time and memory to measure.", rich_help_panel=How),
]
IdleSeconds = Annotated[
    float, typer.Option("--idle-seconds", min=0.1, help="Silence after which the rest is lost.", rich_help_panel=How)
]

Connections = Annotated[int, typer.Option("--connections", "-n", min=1, help="Connections.", rich_help_panel=What)]
KeepAlive = Annotated[int, typer.Option("--keep-alive", min=0, help="Keep alive in seconds.", rich_help_panel=What)]
Subscribe = Annotated[
    bool, typer.Option("--subscribe", help="Each subscribes to a topic of its own.", rich_help_panel=What)
]

SteadyRate = Annotated[float, typer.Option("--rate", "-r", min=1, help="Messages a second.", rich_help_panel=What)]
CountAll = Annotated[
    int, typer.Option("--messages", "-n", min=0, help="End after so many, all together.", rich_help_panel=What)
]
ListenSeconds = Annotated[float, typer.Option("--seconds", "-d", min=0, help="How long.", rich_help_panel=What)]
StaySeconds = Annotated[float, typer.Option("--seconds", "-d", min=0, help="How long they stay.", rich_help_panel=What)]


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Where the broker is, and as which user and version clients connect."""

    host: Host = "127.0.0.1"
    port: Port = 0
    transport: Via = "tcp"
    path: WsPath = "/mqtt"
    ca_file: CaFile = ""
    insecure: Insecure = False
    username: Username = ""
    password_file: PasswordFile = None
    mqtt: Mqtt = "3.1.1"

    @property
    def level(self) -> int:
        """The protocol level that clients say."""
        return level_of(self.mqtt)

    def target(self) -> Target:
        """The broker as the load generator takes it."""
        from flockmq.client.load.plan import Target

        password = os.environ.get("FLOCKMQ_PASSWORD", "") if self.username else ""
        if self.password_file is not None:
            try:
                password = self.password_file.read_text(encoding="utf-8").partition("\n")[0]
            except OSError as error:
                raise FlockError(f"{self.password_file} can't be read ({error.strerror}); check its name.") from None
        return Target(
            host=self.host,
            port=self.port or PORTS[self.transport],
            transport=self.transport,
            path=self.path,
            ca_file=self.ca_file,
            insecure=self.insecure,
            username=self.username,
            password=password,
        )


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """What publishers send."""

    publishers: Publishers = 1
    topics: Topics = 1
    qos: Qos = 0
    size: Size = 64
    messages: Messages = 0
    seconds: Seconds = 5.0
    window: Window = 100
    rate: Rate = 0.0
    user_properties: UserProperties = 0
    topic_alias: TopicAlias = False
    retain: Retain = False
    prefix: Prefix = "bench"

    def load(self, level: int) -> Load:
        """The load of these publishers, without subscribers."""
        from flockmq.client.load.plan import Load

        return Load(
            publishers=self.publishers,
            subscribers=0,
            topics=self.topics,
            qos=self.qos,
            payload_bytes=self.size,
            messages=self.messages,
            seconds=self.seconds,
            window=self.window,
            rate=self.rate,
            version=level,
            user_properties=self.user_properties,
            topic_alias=self.topic_alias,
            retain=self.retain,
            prefix=self.prefix,
        )


@dataclass(frozen=True, kw_only=True)
class AudienceOptions:
    """Which subscribers hear the stream."""

    subscribers: Subscribers = 1
    subscriptions: Subscriptions = 0
    filter_kind: FilterKind = "each"
    fresh_names: FreshNames = False
    mqtt_subscribers: MqttSubscribers = ""


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """Where the generator runs, which processes are measured, and how the outcome is printed."""

    cpus: Cpus = ""
    broker_pid: BrokerPid = None
    as_json: JsonOption = False


def level_of(version: str) -> int:
    """The protocol level of a version; 0 for none."""
    return {"3.1.1": 4, "5": 5}.get(version, 0)
