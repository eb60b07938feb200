"""The options of ``flockmq bench``, each described once and used by several of its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

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
