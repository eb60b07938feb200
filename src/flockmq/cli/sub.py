"""``flockmq sub``: print messages as they come."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from flockmq.cli import mqtt_options as o
from flockmq.cli.durable_options import WHERE_HELP, parse_where
from flockmq.cli.output import JsonOption
from flockmq.errors import FlockError
from flockmq.server.escape import printable

if TYPE_CHECKING:
    from flockmq.client.mqtt import Message, MqttClient
    from flockmq.mqtt.properties import Properties

Format = Literal["line", "payload", "hex", "json"]
_WHY_NOT: Final = (
    "; --from needs a durable topic, offset:SHARD=N,... where it has several shards (MQTT 5 would say which it is)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What to subscribe to and how to print it."""

    filters: tuple[str, ...]
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    count: int
    timeout_s: float | None
    format: Format
    start: str | None = None
    """Where in the log of a durable topic to begin."""


@o.takes_target
def sub(
    filters: Annotated[list[str], typer.Argument(metavar="FILTER...", help="Topic filters, like plant/+/temp.")],
    *,
    qos: o.QosOption = 0,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help=f"On a durable topic, history first: {WHERE_HELP}",
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-c", min=0, help="End after this many messages; 0: never.")] = 0,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", "-W", min=0, help="End after this many seconds; failed if --count is set."),
    ] = None,
    output: Annotated[
        Format, typer.Option("--format", "-F", help="line: topic and payload; payload: its bytes alone; hex; json.")
    ] = "line",
    no_local: Annotated[
        bool, typer.Option("--no-local", help="Leave out what this client publishes (MQTT 5).")
    ] = False,
    retain_as_published: Annotated[
        bool, typer.Option("--retain-as-published", help="Keep the retain flag as it was (MQTT 5).")
    ] = False,
    retain_handling: Annotated[
        int,
        typer.Option("--retain-handling", min=0, max=2, help="Retained messages: 0 send, 1 if new, 2 none (MQTT 5)."),
    ] = 0,
    session_expiry: Annotated[
        str | None,
        typer.Option("--session-expiry", metavar="TIME", help="Resume the session; keep it this long, like 1h."),
    ] = None,
    target: o.Target,
    as_json: JsonOption = False,
) -> None:
    """Subscribe over MQTT and print messages as they come, until Ctrl-C, --count or --timeout."""
    if start is not None:
        parse_where(start, "--from")
    if session_expiry is not None and not target.client_id:
        raise typer.BadParameter("needs --client-id: a session belongs to a client id", param_hint="--session-expiry")
    job = Subscription(
        filters=tuple(filters),
        qos=qos,
        no_local=no_local,
        retain_as_published=retain_as_published,
        retain_handling=retain_handling,
        count=count,
        timeout_s=timeout,
        format="json" if as_json else output,
        start=start,
    )
    printed = asyncio.run(subscribe(target, job, session_expiry))
    if count and printed < count:
        raise FlockError(f"Only {printed} of {count} messages came within {timeout:g} s.")


async def subscribe(target: o.Target, job: Subscription, session_expiry: str | None = None) -> int:
    """Print messages until there were enough or the time is over; how many."""
    from flockmq.client.mqtt import MqttClient

    options = target.options(clean_start=session_expiry is None, properties=_session_properties(session_expiry))
    printed = 0
    async with await MqttClient.connect(options) as client:
        try:
            async with asyncio.timeout(job.timeout_s):
                await _subscribe(client, job, is_old=options.version != 5)
                async for message in client.messages():
                    _print(message, job.format)
                    printed += 1
                    if printed == job.count:
                        break
        except TimeoutError:
            pass
    return printed


def _session_properties(session_expiry: str | None) -> Properties | None:
    if session_expiry is None:
        return None
    from flockmq.config.units import parse_number
    from flockmq.mqtt.properties import Properties

    properties = Properties()
    try:
        properties.session_expiry_s = parse_number(session_expiry, "s")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--session-expiry") from None
    return properties


async def _subscribe(client: MqttClient, job: Subscription, *, is_old: bool) -> None:
    from flockmq.mqtt import reasons
    from flockmq.mqtt.packets import SubscribeEntry

    filters = replays(job.filters, job.start) if is_old and job.start else job.filters
    entries = [
        SubscribeEntry(one.encode(), job.qos, job.no_local, job.retain_as_published, job.retain_handling)
        for one in filters
    ]
    properties = None if is_old or not job.start else _start_property(job.start)
    answer = await client.ask_subscribe(*entries, properties=properties)
    for one, reason in zip(job.filters, answer.reasons, strict=True):
        if reason >= 0x80:
            said = answer.properties.reason_string if answer.properties is not None else None
            hint = f" ({said})" if said else _WHY_NOT if job.start else ""
            raise FlockError(f"The broker refused the subscription to {one!r}: {reasons.name(reason)}{hint}.")
    for name, value in answer.properties.user if answer.properties is not None else []:
        if name == "flockmq-oldest":
            print(f"What --from asks for is gone; it begins at the oldest: {printable(value)}.", file=sys.stderr)


def replays(filters: tuple[str, ...], start: str) -> tuple[str, ...]:
    """How MQTT 3.1.1, which has no properties, asks for history."""
    return tuple(f"$replay/{start}/{one}" for one in filters)


def _start_property(start: str) -> Properties:
    from flockmq.mqtt.properties import Properties

    properties = Properties()
    properties.user = [("flockmq-from", start)]
    return properties


def _print(message: Message, output: Format) -> None:
    if output == "payload":
        sys.stdout.buffer.write(message.payload + b"\n")
        sys.stdout.buffer.flush()
        return
    print(_line(message, output), flush=True)


def _line(message: Message, output: Format) -> str:
    if output == "json":
        return json.dumps(as_dict(message))
    shown = message.payload.hex(" ") if output == "hex" else message.payload.decode("utf-8", "backslashreplace")
    return f"{printable(message.topic)} {printable(shown)}"


def as_dict(message: Message) -> dict[str, object]:
    """A message for programs: the payload as text where it is UTF-8, else as base64."""
    fields: dict[str, object] = {"topic": message.topic}
    try:
        fields["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(message.payload).decode()
    fields |= {"qos": message.qos, "retain": message.retain, "duplicate": message.duplicate}
    if message.properties is not None:
        fields["properties"] = {name: _plain(value) for name, value in message.properties.present().items()}
    return fields


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return [list(item) if isinstance(item, tuple) else item for item in value] if isinstance(value, list) else value
