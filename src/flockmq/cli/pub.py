"""``flockmq pub``: publish messages from an argument, a file or standard input."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flockmq.cli import mqtt_options as o
from flockmq.cli.output import JsonOption, print_json
from flockmq.errors import FlockError
from flockmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from flockmq.mqtt.packets import Ack
    from flockmq.mqtt.properties import Properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """What to publish."""

    topic: str
    payload: bytes | None
    """None reads standard input, one message a line."""
    qos: int
    retain: bool
    count: int
    properties: Properties | None


@dataclass(slots=True)
class Published:
    """What became of it."""

    published: int = 0
    """Messages that the broker took."""
    unmatched: int = 0
    """Messages that had no subscriber."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """Partition and offset of those that a durable topic keeps, where that was asked for."""


@o.takes_target
def pub(
    topic: o.TopicArgument,
    payload: Annotated[
        str | None, typer.Argument(metavar="[PAYLOAD]", help="The message; - reads standard input.")
    ] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Publish the content of this file.")] = None,
    lines: Annotated[
        bool, typer.Option("--lines", "-l", help="Publish each line of standard input as it comes.")
    ] = False,
    empty: Annotated[bool, typer.Option("--empty", "-n", help="Publish an empty message.")] = False,
    qos: o.QosOption = 0,
    retain: Annotated[
        bool, typer.Option("--retain", "-r", help="Have the broker keep it for new subscribers.")
    ] = False,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Publish it this many times.")] = 1,
    content_type: Annotated[str | None, typer.Option("--content-type", help="Content type (MQTT 5).")] = None,
    response_topic: Annotated[str | None, typer.Option("--response-topic", help="Where to answer (MQTT 5).")] = None,
    correlation_data: Annotated[
        str | None, typer.Option("--correlation-data", help="What an answer should bring back (MQTT 5).")
    ] = None,
    expiry: Annotated[
        str | None, typer.Option("--expiry", help="How long the message is of use, like 30s (MQTT 5).")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Mark the payload as UTF-8 text (MQTT 5).")] = False,
    user_property: o.UserPropertyOption = None,
    target: o.Target,
    as_json: JsonOption = False,
) -> None:
    """Publish a message over MQTT, and say how it went."""
    sources = [payload is not None, file is not None, lines, empty]
    if sum(sources) > 1:
        raise typer.BadParameter("give one of PAYLOAD, --file, --lines and --empty, not several", param_hint="PAYLOAD")
    properties = _properties(
        content_type=content_type,
        response_topic=response_topic,
        correlation_data=correlation_data,
        expiry=expiry,
        text=text,
        user=o.pairs(user_property, "--user-property"),
    )
    if properties is not None and target.version != "5":
        raise typer.BadParameter(
            "properties exist in MQTT 5 only; leave them out, or use --mqtt 5", param_hint="--mqtt"
        )
    content = None if lines else _payload(payload, file, empty=empty)
    job = Publish(topic=topic, payload=content, qos=qos, retain=retain, count=count, properties=properties)
    done = asyncio.run(publish(target, job))
    if as_json:
        found: dict[str, object] = {
            "topic": topic,
            "published": done.published,
            "without_subscribers": done.unmatched,
        }
        if done.places:
            found["places"] = [{"partition": partition, "offset": offset} for partition, offset in done.places]
        print_json(found)
        return
    for partition, offset in done.places:
        print(f"partition {partition}, offset {offset}")
    if done.unmatched:
        print(
            f"The broker took {counted(done.published, 'message')}; it knew of no subscriber for {done.unmatched}.",
            file=sys.stderr,
        )


def _payload(payload: str | None, file: Path | None, *, empty: bool) -> bytes:
    if empty:
        return b""
    if file is not None:
        return o.read(file)
    if payload is None or payload == "-":
        if sys.stdin.isatty():
            raise typer.BadParameter("is missing; give it, or --file, --lines or --empty", param_hint="PAYLOAD")
        return sys.stdin.buffer.read()
    return payload.encode("utf-8", "surrogateescape")


def _properties(
    *,
    content_type: str | None,
    response_topic: str | None,
    correlation_data: str | None,
    expiry: str | None,
    text: bool,
    user: list[tuple[str, str]],
) -> Properties | None:
    if not (content_type or response_topic or correlation_data or expiry or text or user):
        return None
    from flockmq.config.units import parse_number
    from flockmq.mqtt.properties import Properties

    properties = Properties()
    properties.content_type = content_type
    properties.response_topic = response_topic.encode() if response_topic else None
    properties.correlation_data = correlation_data.encode() if correlation_data else None
    properties.payload_format = 1 if text else None
    properties.user = user
    if expiry:
        try:
            properties.message_expiry_s = parse_number(expiry, "s")
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--expiry") from None
    return properties


async def publish(target: o.Target, job: Publish) -> Published:
    """Publish all of it."""
    from flockmq.client.mqtt import MqttClient
    from flockmq.mqtt import reasons

    done = Published()
    async with await MqttClient.connect(target.options()) as client:
        async for payload in _payloads(job):
            answer = await client.ask_publish(
                job.topic, payload, qos=job.qos, retain=job.retain, properties=job.properties
            )
            done.published += 1
            if answer is None:
                continue
            if answer.reason >= 0x80:
                raise FlockError(
                    f"The broker refused a message to {job.topic!r}: {reasons.name(answer.reason)}{_why(answer)}."
                )
            done.unmatched += answer.reason == reasons.NO_MATCHING_SUBSCRIBERS
            place = _place(answer)
            if place is not None:
                done.places.append(place)
        if job.qos == 0:
            await client.ping()  # nothing else tells whether the broker took them, or closed the connection over one
    return done


def _why(answer: Ack) -> str:
    said = answer.properties.reason_string if answer.properties is not None else None
    return f" ({said.rstrip('.')})" if said else ""


def _place(answer: Ack) -> tuple[int, int] | None:
    """Where a durable topic keeps it, as the broker tells those that ask with ``flockmq-ack: offset``."""
    told = dict(answer.properties.user) if answer.properties is not None else {}
    partition, offset = told.get("flockmq-partition", ""), told.get("flockmq-offset", "")
    return (int(partition), int(offset)) if partition.isdecimal() and offset.isdecimal() else None


async def _payloads(job: Publish) -> AsyncIterator[bytes]:
    if job.payload is not None:
        for _ in range(job.count):
            yield job.payload
        return
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        for _ in range(job.count):
            yield line.rstrip(b"\r\n")
