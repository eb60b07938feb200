"""The client against a scripted broker: the other end of a real socket says what the test tells it to."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from callee import serving
from flockmq.client.mqtt import QUEUE_MESSAGES_MAX, Message, MqttClient, MqttError, Options
from flockmq.mqtt import packets as p
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.varint import decode_varint
from integration.support.certificates import Authority


class Peer:
    """The broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader = reader
        self.writer = writer
        self.version = version

    async def receive(self) -> p.Packet:
        head = await self.reader.readexactly(2)
        while head[-1] & 0x80:
            head += await self.reader.readexactly(1)
        length, _ = decode_varint(head, 1, len(head))
        return decode_packet(self.version, head[0], await self.reader.readexactly(length))

    def send(self, *packets: p.Packet) -> None:
        self.writer.write(b"".join(encode_packet(packet, self.version) for packet in packets))


@asynccontextmanager
async def scripted(
    version: int = 5, connack: p.Connack | None = None
) -> AsyncIterator[tuple[Options, asyncio.Queue[Peer]]]:
    """A broker that answers CONNECT; its ends of connections come through the queue."""
    peers: asyncio.Queue[Peer] = asyncio.Queue()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, version)
        assert isinstance(await peer.receive(), p.Connect)
        peer.send(connack or p.Connack(False, 0))
        peers.put_nowait(peer)
        await asyncio.Event().wait()

    async with serving(handle) as port:
        yield Options(port=port, version=version), peers


@asynccontextmanager
async def connected(version: int = 5, connack: p.Connack | None = None) -> AsyncIterator[tuple[MqttClient, Peer]]:
    async with scripted(version, connack) as (options, peers), await MqttClient.connect(options) as client:
        yield client, await peers.get()


async def take(client: MqttClient, count: int) -> list[Message]:
    messages = client.messages()
    return [await anext(messages) for _ in range(count)]


@pytest.mark.parametrize("version", [4, 5])
async def test_qos_1_returns_with_the_puback(version: int) -> None:
    async with connected(version) as (client, peer):
        publishing = asyncio.create_task(client.publish("a/b", b"x", qos=1, retain=True))
        packet = await peer.receive()
        assert isinstance(packet, p.Publish)
        assert (packet.topic, packet.payload, packet.qos, packet.retain) == (b"a/b", b"x", 1, True)
        assert not publishing.done()
        peer.send(p.Ack(p.PUBACK, packet.packet_id, 0x10 if version == 5 else 0))
        assert await publishing == (0x10 if version == 5 else 0)


async def test_qos_2_takes_both_round_trips() -> None:
    async with connected() as (client, peer):
        publishing = asyncio.create_task(client.publish("a", b"x", qos=2))
        packet = await peer.receive()
        assert isinstance(packet, p.Publish)
        peer.send(p.Ack(p.PUBREC, packet.packet_id))
        assert await peer.receive() == p.Ack(p.PUBREL, packet.packet_id)
        assert not publishing.done()
        peer.send(p.Ack(p.PUBCOMP, packet.packet_id))
        assert await publishing == 0


async def test_a_refused_qos_2_message_ends_with_the_pubrec() -> None:
    async with connected() as (client, peer):
        publishing = asyncio.create_task(client.publish("a", b"x", qos=2))
        packet = await peer.receive()
        assert isinstance(packet, p.Publish)
        peer.send(p.Ack(p.PUBREC, packet.packet_id, 0x97))
        assert await publishing == 0x97


async def test_the_brokers_receive_maximum_is_kept() -> None:
    properties = Properties()
    properties.receive_maximum = 1
    async with connected(connack=p.Connack(False, 0, properties)) as (client, peer):
        both = [asyncio.create_task(client.publish("a", payload, qos=1)) for payload in (b"1", b"2")]
        first = await peer.receive()
        assert isinstance(first, p.Publish)
        ping = asyncio.create_task(client.unsubscribe("x"))  # what comes next is not the second message
        assert isinstance(await peer.receive(), p.Unsubscribe)
        peer.send(p.Ack(p.PUBACK, first.packet_id))
        second = await peer.receive()
        assert isinstance(second, p.Publish)
        assert second.payload == b"2"
        peer.send(p.Ack(p.PUBACK, second.packet_id), p.Unsuback(2, [0]))
        assert await asyncio.gather(*both) == [0, 0]
        assert await ping == [0]


async def test_messages_are_acknowledged_and_a_repeated_qos_2_is_told_once() -> None:
    async with connected() as (client, peer):
        again = p.Publish(b"t", b"2", 2, packet_id=8, dup=True)
        peer.send(
            p.Publish(b"t", b"0"), p.Publish(b"t", b"1", 1, packet_id=7), p.Publish(b"t", b"2", 2, packet_id=8), again
        )
        peer.send(p.Ack(p.PUBREL, 8), p.Publish(b"t", b"3", 2, packet_id=8))
        assert [message.payload for message in await take(client, 4)] == [b"0", b"1", b"2", b"3"]
        answers = [await peer.receive() for _ in range(5)]
        assert answers == [
            p.Ack(p.PUBACK, 7),
            p.Ack(p.PUBREC, 8),
            p.Ack(p.PUBREC, 8),
            p.Ack(p.PUBCOMP, 8),
            p.Ack(p.PUBREC, 8),
        ]


async def test_subscriptions_bring_their_reason_codes() -> None:
    async with connected() as (client, peer):
        entry = p.SubscribeEntry(b"a/#", 1, no_local=True)
        subscribing = asyncio.create_task(client.subscribe(entry, p.SubscribeEntry(b"b")))
        packet = await peer.receive()
        assert isinstance(packet, p.Subscribe)
        assert packet.entries == [entry, p.SubscribeEntry(b"b")]
        peer.send(p.Suback(packet.packet_id, [1, 0x87]))
        assert await subscribing == [1, 0x87]


async def test_the_whole_answer_to_a_subscribe() -> None:
    async with connected() as (client, peer):
        subscribing = asyncio.create_task(client.ask_subscribe(p.SubscribeEntry(b"a")))
        packet = await peer.receive()
        assert isinstance(packet, p.Subscribe)
        properties = Properties()
        properties.user = [("flockmq-oldest", "0=7")]
        peer.send(p.Suback(packet.packet_id, [1], properties))
        answer = await subscribing
        assert answer.properties is not None
        assert (answer.reasons, answer.properties.user) == ([1], [("flockmq-oldest", "0=7")])


async def test_who_does_not_take_messages_does_not_read_them() -> None:
    async with connected() as (client, peer):
        total = QUEUE_MESSAGES_MAX + 500
        peer.send(*[p.Publish(b"t", b"%d" % number, 1, packet_id=number + 1) for number in range(total)])
        acknowledged = [await peer.receive() for _ in range(QUEUE_MESSAGES_MAX)]
        assert acknowledged[-1] == p.Ack(p.PUBACK, QUEUE_MESSAGES_MAX)
        got = await take(client, total)  # as room appears, the rest comes
        assert [int(message.payload) for message in got] == list(range(total))


async def test_an_answer_behind_many_messages_is_found() -> None:
    async with connected() as (client, peer):
        total = 3 * QUEUE_MESSAGES_MAX
        peer.send(*[p.Publish(b"t", b"%d" % number, 0) for number in range(total)])
        subscribing = asyncio.create_task(client.subscribe(p.SubscribeEntry(b"t")))
        packet = await peer.receive()
        assert isinstance(packet, p.Subscribe)
        peer.send(p.Suback(packet.packet_id, [0]))
        assert await subscribing == [0]
        assert len(await take(client, total)) == total


async def test_everybody_who_waits_hears_why_it_is_over() -> None:
    async with connected() as (client, peer):
        waiting = asyncio.create_task(client.publish("a", b"", qos=1))
        await peer.receive()
        properties = Properties()
        properties.reason_string = "for maintenance"
        peer.send(p.Disconnect(0x8B, properties))
        for doing in (waiting, take(client, 1), client.publish("a", b""), client.subscribe(p.SubscribeEntry(b"a"))):
            with pytest.raises(MqttError, match=r"Server shutting down \(for maintenance\)") as ended:
                await doing
            assert ended.value.reason_code == 0x8B


async def test_a_connection_that_breaks_has_no_reason_code() -> None:
    async with connected() as (client, peer):
        peer.writer.transport.abort()
        with pytest.raises(MqttError, match="without a reason") as ended:
            await take(client, 1)
        assert ended.value.reason_code is None


async def test_what_arrived_before_the_end_can_still_be_read() -> None:
    async with connected() as (client, peer):
        peer.send(p.Publish(b"t", b"last"), p.Disconnect(0x8B))
        messages = client.messages()
        assert (await anext(messages)).payload == b"last"
        with pytest.raises(MqttError):
            await anext(messages)


async def test_leaving_ends_the_messages_without_an_error_and_says_goodbye() -> None:
    async with connected() as (client, peer):
        await client.disconnect()
        assert [message async for message in client.messages()] == []
        assert await peer.receive() == p.Disconnect()


async def test_a_broker_that_breaks_the_protocol() -> None:
    async with connected() as (client, peer):
        peer.writer.write(b"\x36\x00")  # PUBLISH with QoS 3
        with pytest.raises(MqttError, match="broke the MQTT protocol"):
            await take(client, 1)


async def test_a_refused_connect() -> None:
    async with scripted(5, p.Connack(False, 0x87)) as (options, _):
        with pytest.raises(MqttError, match="refused the connection: Not authorized") as refused:
            await MqttClient.connect(options)
        assert refused.value.reason_code == 0x87


def answer(reply: bytes) -> AbstractAsyncContextManager[int]:
    """The port of something that says one thing and hangs up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply)

    return serving(handle)


@pytest.mark.parametrize(
    ("reply", "fields", "sentence"),
    [
        (b"", {}, "before it answered"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", {}, "is that an MQTT port"),
        (b"\x20\x02\x00\x04", {"version": 4}, "user name or password are wrong"),
        (b"\xd0\x00", {}, "answered CONNECT with Pingresp"),
    ],
)
async def test_what_else_may_answer(reply: bytes, fields: dict[str, Any], sentence: str) -> None:
    async with answer(reply) as port:
        with pytest.raises(MqttError, match=sentence):
            await MqttClient.connect(Options(port=port, **fields))


def unused() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (lambda: Options(port=unused()), r"No broker answers at 127\.0\.0\.1:\d+ \(Connection refused\)"),
        (lambda: Options(host="nowhere.invalid"), "has no address"),
    ],
)
async def test_nobody_there(options: Callable[[], Options], sentence: str) -> None:
    with pytest.raises(MqttError, match=sentence):
        await MqttClient.connect(options())


async def test_no_tls_there() -> None:
    async with answer(b"no TLS, sorry\r\n") as port:
        with pytest.raises(MqttError, match="does not speak TLS as expected"):
            await MqttClient.connect(Options(port=port, tls=ssl.create_default_context()))


async def test_a_broker_that_never_answers() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent) as port:
        with pytest.raises(MqttError, match="did not answer within"):
            await MqttClient.connect(Options(port=port, timeout_s=0.05))


async def test_tls_that_ends_without_a_word_may_want_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("broker"))

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with serving(hang_up, context) as port:
        trusting = ssl.create_default_context(cafile=authority.file)
        with pytest.raises(MqttError, match="does it want a client certificate"):
            await MqttClient.connect(Options(port=port, tls=trusting))


async def test_a_ping_returns_once_the_broker_has_answered() -> None:
    async with connected() as (client, peer):
        await client.publish("a", b"x")
        pinging = asyncio.create_task(client.ping())
        assert isinstance(await peer.receive(), p.Publish)
        assert isinstance(await peer.receive(), p.Pingreq)
        assert not pinging.done()
        peer.send(p.Pingresp())
        await pinging


async def test_a_ping_tells_what_the_broker_ended_the_connection_for() -> None:
    async with connected() as (client, peer):
        await client.publish("a", b"x")
        pinging = asyncio.create_task(client.ping())
        await peer.receive()
        peer.send(p.Disconnect(0x90))
        with pytest.raises(MqttError) as ended:
            await pinging
        assert ended.value.reason_code == 0x90


async def test_keep_alive_pings_and_notices_silence() -> None:
    properties = Properties()
    properties.server_keep_alive_s = 1
    async with connected(connack=p.Connack(False, 0, properties)) as (client, peer):
        assert isinstance(await peer.receive(), p.Pingreq)
        peer.send(p.Pingresp())
        assert isinstance(await peer.receive(), p.Pingreq)
        with pytest.raises(MqttError, match="no longer answers"):
            await take(client, 1)


def test_a_packet_for_a_transport_that_uvloop_has_closed_says_that_the_connection_is_lost() -> None:
    async def scenario() -> None:
        async with scripted() as (options, _):
            client = await MqttClient.connect(options)
            client._writer.transport.abort()
            await asyncio.sleep(0)  # closed, and the reader has not heard of it yet
            with pytest.raises(MqttError, match="closed the connection"):
                await client.publish("a", b"", qos=1)
            await client.disconnect()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
