"""A stranger at the port between nodes: nothing changes, nothing breaks, and nobody hears more than it said."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from callee import serving
from flockmq.drivers.datagrams import Datagrams
from flockmq.drivers.links import HelloError, LinkSettings
from flockmq.drivers.refusals import PER_PERIOD_MAX
from flockmq.gossip.seal import DATAGRAM_BYTES_MAX, Sealer
from flockmq.security.cookie import derive_key
from flockmq.security.link_tls import LinkTlsSettings
from flockmq.wire import hello
from flockmq.wire.frames import frame_head
from link_ends import COOKIE, OTHER_COOKIE, End, Relay, Run, heard_after, listening, until

TLS_ON = LinkTlsSettings(link_tls="on")
KEY = derive_key(COOKIE, "proofs of links")
PATIENT = LinkSettings(retry_ms_min=3_600_000, retry_ms_max=3_600_000)


@asynccontextmanager
async def two_nodes(
    settings: LinkSettings = PATIENT, tls: LinkTlsSettings | None = None
) -> AsyncIterator[tuple[End, End, Relay]]:
    """Nodes 1 and 2 with a link, and somebody in between who has heard every byte of it."""
    one, two = End(1, settings, tls=tls), End(2, settings, tls=tls)
    async with listening(one, two), Relay(two.port) as relay:
        one.links.set_peer(2, "127.0.0.1", relay.port)
        await until(lambda: one.sees(2) and two.sees(1))
        yield one, two, relay
        # Whatever happened: the link is the one that was there, and it works.
        assert one.told == [("up", 2), ("writable", 2)]
        assert two.told == [("up", 1), ("writable", 1)]
        assert await heard_after(one, two, b"still there") == []
        assert await heard_after(two, one, b"still there") == []
        await until(lambda: two.links.unproven == 0)


async def said_to(port: int, *pieces: bytes) -> bytes:
    """Say this to a node; all that it answers until it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        answer = await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    return answer


def client_hello() -> bytes:
    """The first words of TLS."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


GARBAGE = {
    "http": b"GET /api/v1/nodes HTTP/1.1\r\nHost: here\r\n\r\n",
    "pickle": pickle.dumps({"cookie": "guess", "port": 16000}, protocol=5),
    "mqtt": b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
    "tls": client_hello(),
    "erlang": b"\x00\x15N\x00\x06\x00\x05\x00\x00\x00\x00node@host",
    "zeros": bytes(100_000),
    "ones": b"\xff" * 100_000,
    "random": random.Random(1).randbytes(1_000_000),
    "huge frame": frame_head(0x7FFF_FFFF) + bytes(10_000),
    "magic and noise": hello.MAGIC + random.Random(2).randbytes(100_000),
    "hello of another cookie": hello.Caller(
        derive_key(OTHER_COOKIE, "proofs of links"), hello.PeerInfo(1, 1, 0), 0, False, bytes(32)
    ).hello(),
    "the cookie itself": COOKIE * 100,
}


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_meets_silence(run: Run, said: bytes) -> None:
    async def scenario() -> None:
        async with two_nodes() as (_, two, _):
            assert await said_to(two.port, said) == b""
            assert sum(two.links.refusals.counts.values()) == 1

    run(scenario())


def test_who_sends_little_and_waits_is_not_waited_for(run: Run) -> None:
    async def scenario() -> None:
        async with two_nodes() as (_, two, _):
            two.links.settings = LinkSettings(connect_ms=150)
            sayings = [b"", b"F", hello.MAGIC, hello.MAGIC + bytes(1_000)]
            assert await asyncio.gather(*(said_to(two.port, said) for said in sayings)) == [b""] * 4
            assert two.links.refusals.counts == {"timeout": 4}

    run(scenario())


def test_a_byte_at_a_time_buys_no_time(run: Run) -> None:
    async def scenario() -> None:
        async with two_nodes() as (_, two, _):
            two.links.settings = LinkSettings(connect_ms=150)
            reader, writer = await asyncio.open_connection("127.0.0.1", two.port)
            said = hello.MAGIC + bytes(hello.HELLO_BYTES)

            async def drip() -> None:
                for at in range(len(said)):
                    writer.write(said[at : at + 1])
                    await asyncio.sleep(0.001)

            dripping = asyncio.create_task(drip())
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            dripping.cancel()
            writer.transport.abort()
            assert two.links.refusals.counts.get("timeout", 0) + two.links.refusals.counts.get("cookie", 0) == 1

    run(scenario())


def test_a_crowd_is_bounded_and_does_not_keep_nodes_out(run: Run) -> None:
    async def scenario() -> None:
        settings = LinkSettings(unproven_max=20, retry_ms_min=3_600_000, retry_ms_max=3_600_000)
        async with two_nodes(settings) as (_, two, _):
            crowd = []
            for number in range(60):
                crowd.append(await asyncio.open_connection("127.0.0.1", two.port))
                crowd[-1][1].write(hello.MAGIC if number % 2 else b"")
            await until(lambda: two.links.refusals.counts.get("too_many", 0) >= 40)
            assert two.links.unproven <= 20
            three = End(3)
            async with listening(three):
                assert (await three.links.call("127.0.0.1", two.port)).node_id == 2
            for _, writer in crowd:
                writer.transport.abort()
            await until(lambda: two.sees(1))
            two.told = two.told[:2]  # node 3 came and went

    run(scenario())


def test_a_thousand_refusals_are_a_few_lines(run: Run) -> None:
    async def scenario() -> None:
        async with two_nodes() as (_, two, _):
            for _ in range(20):
                await asyncio.gather(*(said_to(two.port, b"garbage") for _ in range(50)))
            assert two.links.refusals.counts == {"not_ours": 1_000}
            assert len(two.links.events.take()) <= 1 + PER_PERIOD_MAX

    run(scenario())


@pytest.mark.parametrize("tls", [None, TLS_ON], ids=["plain", "tls"])
def test_a_recorded_handshake_said_again(run: Run, tls: LinkTlsSettings | None) -> None:
    async def scenario() -> None:
        async with two_nodes(tls=tls) as (_, two, relay):
            two.links.settings = LinkSettings(connect_ms=300)
            (recorded,) = relay.by_caller
            hello_only = recorded[: hello.HELLO_BYTES]
            for said in (recorded, hello_only, hello_only + bytes(2_000), hello_only + recorded[-200:]):
                assert await said_to(two.port, said) == b""
            assert two.links.refusals.counts == {"repeat": 4}

    run(scenario())


@pytest.mark.parametrize("wants_tls", [False, True])
def test_a_hello_that_was_meant_for_another_node(run: Run, wants_tls: bool) -> None:
    """It is right, and new here: it earns a WELCOME or the first words of TLS, never more bytes than it has."""

    async def scenario() -> None:
        async with two_nodes() as (_, two, _):
            two.links.settings = LinkSettings(connect_ms=300)
            heard = hello.Caller(KEY, hello.PeerInfo(1, 7, 0), 3, wants_tls, bytes(32)).hello()
            said = heard + (client_hello() if wants_tls else bytes(34))
            answer = await said_to(two.port, said)
            assert 0 < len(answer) <= len(heard)

    run(scenario())


def test_recorded_words_of_a_node_that_was_called(run: Run) -> None:
    """Somebody takes the place of node 2 and says what node 2 has said to node 1 before."""

    async def scenario() -> None:
        async with two_nodes() as (_, _, relay):
            (recorded,) = relay.by_callee

            async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read(10_000)
                writer.write(recorded[: hello.WELCOME_BYTES])
                await reader.read()

            three = End(1, boot=2)
            async with serving(pretend) as port, listening(three):
                with pytest.raises(HelloError) as found:
                    await three.links.call("127.0.0.1", port)
                assert found.value.kind == hello.COOKIE
                assert three.told == []

    run(scenario())


def test_a_node_s_own_words_thrown_back(run: Run) -> None:
    async def scenario() -> None:
        async with two_nodes() as (one, _, _):

            async def mirror(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                while data := await reader.read(10_000):
                    writer.write(data)

            async with serving(mirror) as port:
                with pytest.raises(HelloError):
                    await one.links.call("127.0.0.1", port)
            # The same through its own door: it meets itself.
            async with Relay(one.port) as mirror_door:
                with pytest.raises(HelloError) as found:
                    await one.links.call("127.0.0.1", mirror_door.port)
                assert found.value.kind == hello.SELF

    run(scenario())


def test_who_knows_the_cookie_and_then_talks_nonsense_loses_its_own_link(run: Run) -> None:
    async def scenario() -> None:
        async with two_nodes() as (_, two, _):
            for frames in (frame_head(0x7FFF_FFFF), frame_head(0xFFFF_FFFF), frame_head(8) + b"nonsense"):
                reader, writer = await asyncio.open_connection("127.0.0.1", two.port)
                caller = hello.Caller(KEY, hello.PeerInfo(9, 1, 0), 0, False, os.urandom(32))
                writer.write(caller.hello())
                caller.feed(await reader.readexactly(hello.WELCOME_BYTES))
                writer.write(caller.proof())
                while caller.stage != hello.DONE:
                    caller.feed(await reader.read(1))
                writer.write(frames)
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
                writer.transport.abort()
                await until(lambda: two.sees(1))
            assert two.links.refusals.counts == {"not_ours": 3}
            assert two.heard == []
            two.told = two.told[:2]  # node 9 came and went

    run(scenario())


def test_a_frame_with_the_proof_is_too_early(run: Run) -> None:
    async def scenario() -> None:
        async with two_nodes() as (_, two, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", two.port)
            caller = hello.Caller(KEY, hello.PeerInfo(9, 1, 0), 0, False, bytes(32))
            writer.write(caller.hello())
            caller.feed(await reader.readexactly(hello.WELCOME_BYTES))
            writer.write(caller.proof() + frame_head(2) + b"hi")
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.transport.abort()
            assert two.heard == []

    run(scenario())


def test_datagrams_of_strangers(run: Run) -> None:
    async def scenario() -> None:
        heard: list[bytes] = []
        node = Datagrams(Sealer(COOKIE, 2, 5), lambda _sender, body, _address: heard.append(body))
        port = await node.listen("127.0.0.1", 0)
        before, now, other = Sealer(COOKIE, 1, 4), Sealer(COOKIE, 1, 5), Sealer(OTHER_COOKIE, 1, 9)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.setblocking(False)

            def send(data: bytes) -> None:
                stranger.sendto(data, ("127.0.0.1", port))

            old = before.seal(b"an earlier life")
            first = now.seal(b"first")
            send(first)
            await until(lambda: heard == [b"first"])
            own = Sealer(COOKIE, 2, 5).seal(b"of this node itself")
            noise = random.Random(3)
            hostile = [
                b"x",
                noise.randbytes(41),
                noise.randbytes(DATAGRAM_BYTES_MAX),
                noise.randbytes(DATAGRAM_BYTES_MAX + 1),
                noise.randbytes(65_000),
                pickle.dumps({"a": 1}),
                first,  # again
                old,
                other.seal(b"with another cookie"),
                own,
                *(first[:at] + bytes([first[at] ^ 1]) + first[at + 1 :] for at in range(len(first))),
            ]
            for data in hostile:
                send(data)
                if len(heard) % 8 == 0:
                    await asyncio.sleep(0)
            await until(lambda: sum(node.refusals.counts.values()) == len(hostile))
            send(now.seal(b"second"))
            await until(lambda: len(heard) == 2)
            assert heard == [b"first", b"second"]
            assert node.sent == 0
            with pytest.raises(BlockingIOError):
                stranger.recv(10)
        assert len(node.events.take()) == 1
        node.close()

    run(scenario())
