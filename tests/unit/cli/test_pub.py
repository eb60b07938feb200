"""What ``flockmq pub`` makes of the broker's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from callee import serving
from flockmq.cli.mqtt_options import Target
from flockmq.cli.pub import Publish, Published, publish
from flockmq.errors import FlockError
from flockmq.mqtt import packets as p
from flockmq.mqtt import reasons
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.properties import Properties

JOB = Publish(topic="plant/1", payload=b"x", qos=1, retain=False, count=2, properties=None)


def told(**fields: object) -> Properties:
    properties = Properties()
    for name, value in fields.items():
        setattr(properties, name, value)
    return properties


def pub(answer: Callable[[int], p.Ack]) -> Published:
    """Publish to somebody who answers a CONNECT, and every PUBLISH like this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            first, length = await reader.readexactly(2)
            packet = decode_packet(5, first, await reader.readexactly(length))
            if isinstance(packet, p.Connect):
                writer.write(encode_packet(p.Connack(False, 0, told(assigned_client_id="c")), 5))
            elif isinstance(packet, p.Publish):
                writer.write(encode_packet(answer(packet.packet_id), 5))

    async def scenario() -> Published:
        async with serving(serve) as port:
            return await publish(Target(port=port), JOB)

    return asyncio.run(scenario())


def test_places_are_told_where_the_broker_tells_them() -> None:
    offsets = iter((7, 8))

    def answer(packet_id: int) -> p.Ack:
        user = [("flockmq-partition", "2"), ("flockmq-offset", str(next(offsets)))]
        return p.Ack(p.PUBACK, packet_id, 0, told(user=user))

    done = pub(answer)
    assert (done.published, done.unmatched, done.places) == (2, 0, [(2, 7), (2, 8)])


def test_messages_without_a_place() -> None:
    done = pub(lambda packet_id: p.Ack(p.PUBACK, packet_id, reasons.NO_MATCHING_SUBSCRIBERS))
    assert (done.published, done.unmatched, done.places) == (2, 2, [])


def test_a_refusal_says_why() -> None:
    why = told(reason_string="Partition 2 takes nothing now.")
    with pytest.raises(FlockError, match=r"'plant/1': Unspecified error \(Partition 2 takes nothing now\)\.$"):
        pub(lambda packet_id: p.Ack(p.PUBACK, packet_id, reasons.UNSPECIFIED_ERROR, why))
