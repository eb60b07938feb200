"""`mcast` on loopback, and between network namespaces that a switch connects."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from flockmq.discovery import registry
from flockmq.discovery.announcement import HERE, Announcement, announcement_key, encode
from flockmq.discovery.mcast import McastDiscovery
from flockmq.discovery.mcast_sockets import Station, refresh
from flockmq.discovery.ports import DiscoveryError, Surroundings
from flockmq.discovery.settings import McastSettings
from flockmq.errors import ConfigError
from flockmq.peering.contact import Contact
from flockmq.testing.ports import free_port
from integration.support.node import Run, until
from integration.support.programs import network, plug, python_in

COOKIE = b"a cookie of more than 128 bits"
GROUPS = {"IPv4": "239.255.160.9", "IPv6": "ff12::f10c:9"}
LOOPBACK = GROUPS["IPv4"]
"""The loopback interface has no route for IPv6 multicast; between namespaces both are tested."""
TESTS = Path(__file__).parents[2]
WAIT_S = 40
IP_RECVTTL = 12
"""Linux; not in Python's socket module."""


def make(node_id: int, group: str, port: int, cookie: bytes = COOKIE, **settings: Any) -> McastDiscovery:
    given: dict[str, Any] = {"groups": (group,), "port": port, "interfaces": ("lo",), "interval_ms": 20}
    given |= {"expiry_ms": 400} | settings
    made = registry.make("mcast", McastSettings(**given), Surroundings(node_id=node_id, cookie=cookie))
    assert isinstance(made, McastDiscovery)
    return made


async def until_listed(by: McastDiscovery, *hosts: str) -> None:
    while sorted(contact.host for contact in await by.find()) != sorted(hosts):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def stray_socket() -> socket.socket:
    """A stranger on this machine."""
    stray = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    request = bytes(8) + struct.pack("@i", socket.if_nametoindex("lo"))
    stray.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
    return stray


def test_nodes_on_one_machine(run: Run) -> None:
    async def scenario() -> None:
        port = free_port()
        nodes = [make(number, LOOPBACK, port) for number in (1, 2, 3)]
        for number, node in enumerate(nodes):
            await node.start(Contact(f"n{number}", 16_000))
            await node.start(Contact(f"n{number}", 16_000))  # a second time is no harm
        await until_listed(nodes[0], "n1", "n2")
        await until_listed(nodes[1], "n0", "n2")
        await nodes[2].stop()
        assert nodes[0].directory.refused == {}
        await until_listed(nodes[0], "n1")
        for node in nodes:
            await node.stop()

    run(scenario())


def test_strangers_change_nothing(run: Run) -> None:
    async def scenario() -> None:
        port = free_port()
        one, other = make(1, LOOPBACK, port), make(2, LOOPBACK, port, b"another cookie entirely, of another cluster")
        await one.start(Contact("one", 1))
        await other.start(Contact("other", 1))
        now = time_ns() // 1_000_000
        old = encode(announcement_key(COOKIE), Announcement(HERE, 7, now - 3_600_000, Contact("old", 1)))
        forged = encode(announcement_key(b"guess"), Announcement(HERE, 8, now, Contact("forged", 1)))
        with stray_socket() as stray:
            for datagram in (old, forged, b"", b"x" * 1_400, os.urandom(60_000), old[:-1], b"GET / HTTP/1.1\r\n\r\n"):
                stray.sendto(datagram, (LOOPBACK, port))
        await until(lambda: one.directory.refused["clock"] == 1 and one.directory.refused["stranger"] >= 6)
        assert await one.find() == await other.find() == []
        await one.stop()
        await other.stop()

    run(scenario())


def test_who_falls_silent_is_not_listed_for_long(run: Run) -> None:
    async def scenario() -> None:
        port = free_port()
        one, other = make(1, LOOPBACK, port), make(2, LOOPBACK, port)
        await one.start(Contact("one", 1))
        await other.start(Contact("other", 1))
        await until_listed(one, "other")
        assert other._announcer is not None
        other._announcer.cancel()
        await until_listed(one)
        await one.stop()
        await other.stop()

    run(scenario())


def test_announcements_stay_in_the_local_network() -> None:
    """A datagram's time to live as it arrives is 1: no router passes it on."""
    station = Station(LOOPBACK, free_port(), socket.if_nametoindex("lo"))
    try:
        station.hearing.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        station.hearing.settimeout(WAIT_S)
        assert station.send(b"hello")
        data, ancillary, _, _ = station.hearing.recvmsg(100, socket.CMSG_SPACE(4))
        assert data == b"hello"
        assert [(kind, struct.unpack("@i", value)[0]) for _, kind, value in ancillary] == [(socket.IP_TTL, 1)]
    finally:
        station.close()
    station = Station(GROUPS["IPv6"], free_port(), socket.if_nametoindex("lo"))
    try:
        assert station.speaking.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS) == 1
    finally:
        station.close()


def test_interfaces_come_and_go() -> None:
    port = free_port()
    first, gone = refresh({}, (LOOPBACK,), port, ("lo",))
    assert (list(first), gone) == ([(LOOPBACK, socket.if_nametoindex("lo"))], {})
    others, gone = refresh(first, (LOOPBACK,), port, ())
    assert gone == {}
    assert first.keys().isdisjoint(others)
    new, gone = refresh(first | others, (LOOPBACK,), port, ("lo",))
    assert (new, gone) == ({}, others)
    for station in (first | others).values():
        station.close()


def test_what_cannot_work_is_said(run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match="needs a cookie"):
            make(1, GROUPS["IPv4"], 1, b"")
        unknown = make(1, GROUPS["IPv4"], free_port(), interfaces=("nosuch0",))
        with pytest.raises(DiscoveryError, match="'nosuch0'"):
            await unknown.start(Contact("one", 1))
        with pytest.raises(DiscoveryError, match="not been started"):
            await unknown.find()
        await unknown.stop()

    run(scenario())


class Announcer:
    """A node in a network namespace; its listings come as it prints them."""

    def __init__(self, namespace: str, node_id: int, group: str, cookie: bytes = COOKIE) -> None:
        settings = {"groups": [group], "port": 16_001, "interval_ms": 50, "expiry_ms": 2_000}
        given = {"node_id": node_id, "cookie": cookie.decode(), "host": f"n{node_id}", "settings": settings}
        path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
        self.process = subprocess.Popen(
            python_in(namespace, "-m", "integration.support.announcer", json.dumps(given)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def until_listed(self, *hosts: str) -> None:
        """Wait for this listing."""
        while json.loads(self._lines.get(timeout=WAIT_S)) != list(hosts):
            pass

    def listings(self) -> list[list[str]]:
        """All that was not waited for."""
        return [json.loads(self._lines.get()) for _ in range(self._lines.qsize())]

    def close(self) -> None:
        """End it properly: it says goodbye."""
        if self.process.returncode is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            assert self.process.wait(WAIT_S) == 0
            self._reader.join()
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[str]]:
    with network(3) as names:
        yield names


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_nodes_on_several_machines(hosts: list[str], group: str) -> None:
    with ExitStack() as stack:

        def start(host: int, node_id: int, cookie: bytes = COOKIE) -> Announcer:
            announcer = Announcer(hosts[host], node_id, group, cookie)
            stack.callback(announcer.close)
            return announcer

        one, two, also_two = start(0, 1), start(1, 2), start(1, 3)
        stranger = start(2, 4, b"another cookie entirely, of another cluster")
        one.until_listed("n2", "n3")
        two.until_listed("n1", "n3")
        also_two.until_listed("n1", "n2")
        plug(hosts, 0, into=False)
        one.until_listed()
        two.until_listed("n3")  # still together on their machine
        plug(hosts, 0, into=True)
        one.until_listed("n2", "n3")
        two.until_listed("n1", "n3")
        also_two.close()
        one.until_listed("n2")
        stranger.close()
        assert stranger.listings() == [[]]
