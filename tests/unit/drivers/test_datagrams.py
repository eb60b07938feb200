"""Datagrams between nodes over real sockets; what strangers send is counted and forgotten."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flockmq.drivers.datagrams import OPENED_PER_TURN_MAX, Datagrams, listen_on_one_port
from flockmq.drivers.links import LinkIdentity, Links
from flockmq.errors import FlockError
from flockmq.gossip.seal import BODY_BYTES_MAX, DATAGRAM_BYTES_MAX, Sealer
from link_ends import COOKIE, LOOPS, OTHER_COOKIE, Run, has_ipv6, runner, until


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return runner(request.param)


class Node:
    def __init__(self, node: int, cookie: bytes = COOKIE, boot: int = 1) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self.addresses: list[tuple[str, int]] = []
        self.datagrams = Datagrams(Sealer(cookie, node, boot), self._on_datagram)
        self.port = 0

    def _on_datagram(self, sender: int, body: bytes, address: tuple[str, int]) -> None:
        if body == b"nonsense":
            raise FlockError("This datagram can't be read.")
        self.heard.append((sender, body))
        self.addresses.append(address)


@asynccontextmanager
async def nodes(*made: Node, host: str = "127.0.0.1") -> AsyncIterator[None]:
    for node in made:
        node.port = await node.datagrams.listen(host, 0)
    try:
        yield
    finally:
        for node in made:
            node.datagrams.close()


def test_what_is_sent_arrives_with_who_sent_it(run: Run) -> None:
    async def scenario() -> None:
        one, two = Node(1), Node(2)
        async with nodes(one, two):
            assert one.datagrams.send(("127.0.0.1", two.port), b"hello")
            assert one.datagrams.send(("127.0.0.1", two.port), bytes(BODY_BYTES_MAX))
            await until(lambda: len(two.heard) == 2)
            assert sorted(two.heard) == [(1, bytes(BODY_BYTES_MAX)), (1, b"hello")]
            assert two.addresses[0] == ("127.0.0.1", one.port)
            assert two.datagrams.send(two.addresses[0], b"back")
            await until(lambda: one.heard == [(2, b"back")])
            assert (one.datagrams.sent, two.datagrams.received) == (2, 2)

    run(scenario())


def test_names_are_found_meanwhile(run: Run) -> None:
    async def scenario() -> None:
        one, two = Node(1), Node(2)
        async with nodes(one, two):
            assert not one.datagrams.send(("localhost", two.port), b"lost"), "nobody waits for a name"

            def sent() -> bool:
                return one.datagrams.send(("localhost", two.port), b"found")

            await until(sent)
            await until(lambda: two.heard == [(1, b"found")])
            assert not one.datagrams.send(("no.such.name.invalid", two.port), b"lost")

    run(scenario())


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("host", ["::1", ""])
def test_ipv6(run: Run, host: str) -> None:
    async def scenario() -> None:
        one, two = Node(1), Node(2)
        async with nodes(one, two, host=host):
            assert one.datagrams.send(("::1", two.port), b"six")
            await until(lambda: two.heard == [(1, b"six")])
            assert two.addresses == [("::1", one.port)]
            assert one.datagrams.send(("127.0.0.1", two.port), b"four") is (host == "")

    run(scenario())


def test_what_can_not_be_sent_is_dropped(run: Run) -> None:
    async def scenario() -> None:
        (one,) = made = (Node(1),)
        assert not one.datagrams.send(("127.0.0.1", 9), b"not open yet")
        async with nodes(*made):
            assert not one.datagrams.send(("127.0.0.1", one.port), bytes(BODY_BYTES_MAX + 1))
            assert not one.datagrams.send(("127.0.0.1", 70_000), b"no such port")
            one.datagrams.send(("127.0.0.1", 1), b"nobody there")  # and the answer of the kernel does no harm
            assert one.datagrams.dropped == 3
            assert one.datagrams.send(("127.0.0.1", one.port), b"to itself")
            await until(lambda: one.datagrams.refusals.counts == {"reflected": 1})
            assert one.heard == []
        assert not one.datagrams.send(("127.0.0.1", one.port), b"closed")

    run(scenario())


def test_strangers_are_counted_and_get_no_answer(run: Run) -> None:
    async def scenario() -> None:
        one, two, stranger = Node(1), Node(2), Node(3, OTHER_COOKIE)
        async with nodes(one, two, stranger):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
                raw.bind(("127.0.0.1", 0))
                raw.setblocking(False)
                to = ("127.0.0.1", two.port)
                sealer = Sealer(COOKIE, 9, 1)
                sealed = sealer.seal(b"once")
                raw.sendto(sealed, to)
                await until(lambda: two.heard == [(9, b"once")])
                forged = bytearray(sealer.seal(b"twice"))
                forged[-1] ^= 1
                long = bytes(DATAGRAM_BYTES_MAX + 1)
                for data in (b"", b"x", bytes(100), long, bytes(60_000), sealed, bytes(forged)):
                    raw.sendto(data, to)
                stranger.datagrams.send(to, b"with another cookie")
                counts = two.datagrams.refusals.counts
                await until(lambda: sum(counts.values()) >= 7)  # an empty one need not be passed on
                assert counts["too_long"] == 2
                one.datagrams.send(to, b"goes on")
                await until(lambda: (1, b"goes on") in two.heard)
                assert len(two.heard) == 2
                with pytest.raises(BlockingIOError):
                    raw.recv(2_000)
            (event,) = two.datagrams.events.take()
            assert event.kind == "datagram_refused"
            assert event.fields["address"] == "127.0.0.1"
            assert two.datagrams.sent == 0

    run(scenario())


def test_what_a_node_says_wrong_is_its_own_problem(run: Run) -> None:
    async def scenario() -> None:
        one, two = Node(1), Node(2)
        async with nodes(one, two):
            one.datagrams.send(("127.0.0.1", two.port), b"nonsense")
            one.datagrams.send(("127.0.0.1", two.port), b"sense")
            await until(lambda: two.heard == [(1, b"sense")])
            (event,) = two.datagrams.events.take()
            assert event.fields["peer"] == "0000000000000001"

    run(scenario())


def test_a_flood_costs_a_bounded_part_of_a_turn() -> None:
    async def scenario() -> None:
        node = Node(1)
        for _ in range(OPENED_PER_TURN_MAX + 5):
            node.datagrams.receive(b"garbage", ("192.0.2.1", 5))
        assert node.datagrams.refusals.counts == {"sealed_otherwise": OPENED_PER_TURN_MAX, "too_many": 5}

    runner("uvloop")(scenario())


def test_tcp_and_udp_share_a_port(run: Run) -> None:
    async def scenario() -> None:
        def ignore(*_: object) -> None:
            pass

        for host in ("127.0.0.1", ""):
            links = Links(
                LinkIdentity(node_id=1, boot=1, cookie=COOKIE), ignore, ignore, ignore, ignore, random.Random(1)
            )
            node, other = Node(1), Node(2)
            await other.datagrams.listen("127.0.0.1", 0)
            port = await listen_on_one_port(links, node.datagrams, host, 0)
            with socket.create_connection(("127.0.0.1", port)):
                assert other.datagrams.send(("127.0.0.1", port), b"here")
                await until(lambda node=node: node.heard == [(2, b"here")])  # type: ignore[misc]
            other.datagrams.close()
            node.datagrams.close()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
                taken.bind(("127.0.0.1", 0))
                with pytest.raises(FlockError, match="another program uses it"):
                    await listen_on_one_port(links, other.datagrams, "127.0.0.1", taken.getsockname()[1])
            await links.close()

    run(scenario())
