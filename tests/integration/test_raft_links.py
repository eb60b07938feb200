"""Links between nodes over real sockets: frames arrive whole and in order, or not at all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flockmq.drivers.raft_links import GREETING, MAGIC, VERSION, LinkSettings, RaftLinks
from flockmq.errors import ConfigError, FlockError
from flockmq.wire.frames import frame_head
from integration.support.node import Run, until


class End:
    """One node's end of its links, with all that it heard."""

    def __init__(self, node: int, settings: LinkSettings | None = None) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self.writable: list[tuple[int, bool]] = []
        self.links = RaftLinks(node, self._on_frame, self._on_writable, random.Random(node), settings)
        self.port = 0

    def _on_frame(self, peer: int, frame: bytes) -> None:
        if frame == b"nonsense":
            raise FlockError("This frame can't be read.")
        self.heard.append((peer, frame))

    def _on_writable(self, peer: int, is_writable: bool) -> None:
        self.writable.append((peer, is_writable))

    def meet(self, other: End) -> None:
        self.links.set_peer(other.links.node, "127.0.0.1", other.port)


@asynccontextmanager
async def ends(*nodes: int, settings: LinkSettings | None = None) -> AsyncIterator[list[End]]:
    made = [End(node, settings) for node in nodes]
    for end in made:
        end.port = await end.links.listen()
    try:
        yield made
    finally:
        for end in made:
            await end.links.close()


async def heard_after(sender: End, receiver: End, frame: bytes) -> list[bytes]:
    """Send a frame until it arrives; what else arrived from this sender."""
    node = sender.links.node

    def arrived() -> bool:
        sender.links.send(receiver.links.node, frame)
        return (node, frame) in receiver.heard

    await until(arrived)
    return [one for peer, one in receiver.heard if peer == node and one != frame]


def test_both_directions(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            one.meet(two)
            two.meet(one)
            await until(lambda: one.links.connected() == [2] and two.links.connected() == [1])
            frames = [bytes([number]) * number * 1_000 for number in range(200)]
            for frame in frames:
                assert one.links.send(2, frame)
            assert two.links.send(1, b"back")
            await until(lambda: len(two.heard) == 200 and len(one.heard) == 1)
            assert two.heard == [(1, frame) for frame in frames]
            assert one.heard == [(2, b"back")]

    run(scenario())


def test_nothing_is_kept_for_a_peer_that_is_not_there(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            assert not one.links.send(2, b"nobody knows where 2 is")
            one.meet(two)
            assert not one.links.send(2, b"not connected yet")
            await until(lambda: one.links.connected() == [2])
            assert await heard_after(one, two, b"now") == []
            assert one.links.dropped >= 2

    run(scenario())


def test_a_peer_that_comes_back_is_found_again(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2) as (one, two):
            one.meet(two)
            assert await heard_after(one, two, b"first life") == []
            await two.links.close()
            await until(lambda: one.links.connected() == [])
            assert one.writable == [(2, True), (2, False)]
            again = End(2)
            again.port = await again.links.listen(port=two.port)
            try:
                assert await heard_after(one, again, b"second life") == []
                assert one.writable == [(2, True), (2, False), (2, True)]
            finally:
                await again.links.close()

    run(scenario())


def test_a_call_from_a_peer_ends_the_wait_for_it(run: Run) -> None:
    async def scenario() -> None:
        patient = LinkSettings(retry_ms_min=3_600_000, retry_ms_max=3_600_000)
        async with ends(1, 2, settings=patient) as (one, two):
            one.meet(two)
            await until(lambda: one.links.connected() == [2])
            await two.links.close()
            await until(lambda: one.links.connected() == [])
            again = End(2)
            again.port = await again.links.listen(port=two.port)
            try:
                again.meet(one)
                await until(lambda: one.links.connected() == [2])  # an hour too early, but for the call
            finally:
                await again.links.close()

    run(scenario())


def test_a_slow_peer_loses_whole_frames_and_costs_bounded_memory(run: Run) -> None:
    async def scenario() -> None:
        settings = LinkSettings(unsent_bytes_max=300_000, unsent_bytes_high=200_000)
        async with ends(1, 2, settings=settings) as (one, two):
            one.meet(two)
            await heard_after(one, two, b"here")
            two.links.set_reading(False)
            accepted: list[bytes] = []
            one.writable.clear()
            while one.links.send(2, frame := bytes([len(accepted)]) * 100_000):
                accepted.append(frame)
            assert one.writable == [(2, False)]
            two.links.set_reading(True)
            await heard_after(one, two, b"goes on")
            assert [frame for _, frame in two.heard if len(frame) == 100_000] == accepted
            assert one.writable == [(2, False), (2, True)]

    run(scenario())


def test_a_frame_longer_than_the_bound_passes_when_nothing_waits(run: Run) -> None:
    async def scenario() -> None:
        async with ends(1, 2, settings=LinkSettings(unsent_bytes_max=10)) as (one, two):
            one.meet(two)
            await until(lambda: one.links.connected() == [2])
            await heard_after(one, two, bytes(1_000_000))

    run(scenario())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "does not speak this version"),
        (GREETING.pack(MAGIC, VERSION + 1, 1, 2), "does not speak this version"),
        (GREETING.pack(MAGIC, VERSION, 1, 3), "looks for node 3 here, which is 2"),
        (GREETING.pack(MAGIC, VERSION, 1, 2) + frame_head(1 << 31), "the limit is"),
        (GREETING.pack(MAGIC, VERSION, 1, 2) + frame_head(8) + b"nonsense", "can't be read"),
    ],
)
def test_who_does_not_speak_the_protocol_is_cut_off(run: Run, sent: bytes, reason: str) -> None:
    async def scenario() -> None:
        async with ends(2) as (two,):
            reader, writer = await asyncio.open_connection("127.0.0.1", two.port)
            writer.write(sent)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()
            assert two.heard == []
            (event,) = two.links.events.take()
            assert reason in str(event.fields["reason"])

    run(scenario())


def test_a_caller_that_says_nothing_is_not_waited_for(run: Run) -> None:
    async def scenario() -> None:
        async with ends(2, settings=LinkSettings(connect_ms=20)) as (two,):
            reader, writer = await asyncio.open_connection("127.0.0.1", two.port)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()

    run(scenario())


def test_too_many_callers_are_closed_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with ends(2, settings=LinkSettings(connections_max=1)) as (two,):
            _, first = await asyncio.open_connection("127.0.0.1", two.port)
            first.write(GREETING.pack(MAGIC, VERSION, 1, 2) + frame_head(2) + b"hi")
            await until(lambda: two.heard == [(1, b"hi")])
            reader, second = await asyncio.open_connection("127.0.0.1", two.port)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            second.close()
            first.write(frame_head(3) + b"yes")
            await until(lambda: two.heard[1:] == [(1, b"yes")])
            first.close()

    run(scenario())


def test_only_loopback(run: Run) -> None:
    async def scenario() -> None:
        end = End(1)
        for host in ("0.0.0.0", "192.0.2.1", "example.org"):
            with pytest.raises(ConfigError, match="only loopback"):
                await end.links.listen(host)
            with pytest.raises(ConfigError, match="only loopback"):
                end.links.set_peer(2, host, 1)

    run(scenario())
