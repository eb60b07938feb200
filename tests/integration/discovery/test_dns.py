"""`dns` against a real DNS server."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flockmq.discovery import registry
from flockmq.discovery.ports import Discovery, DiscoveryError, Surroundings
from flockmq.discovery.settings import DnsSettings
from flockmq.peering.contact import Contact
from flockmq.testing.ports import free_port
from integration.support.node import Run
from integration.support.programs import Server, dnsmasq

MANY = 200
"""So many addresses don't fit into a datagram."""


class Zone:
    """A DNS server and the file it answers from."""

    def __init__(self, server: Server, hosts: Path) -> None:
        self.server = server
        self.hosts = hosts

    def discovery(self, name: str, record: str = "A", **settings: Any) -> Discovery:
        nameservers = (f"127.0.0.1:{self.server.port}",)
        made = DnsSettings(name=name, record=record, nameservers=nameservers, **settings)
        return registry.make("dns", made, Surroundings(node_id=1))


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zone]:
    folder = tmp_path_factory.mktemp("dns")
    hosts = folder / "hosts"
    lines = ["10.0.0.1 nodes.test", "10.0.0.2 nodes.test", "fd00::1 nodes.test", "10.0.0.9 only4.test"]
    lines += ["10.0.0.3 a.test", "fd00::2 b.test", "10.0.0.4 c.test", "10.0.0.5 c.test"]
    lines += [f"10.1.0.{number} many.test" for number in range(1, MANY + 1)]
    hosts.write_text("\n".join([*lines, ""]))
    records = (
        "--srv-host=_flockmq._tcp.test,a.test,16000,0,0",
        "--srv-host=_flockmq._tcp.test,b.test,17000,0,0",
        "--srv-host=_more._tcp.test,c.test,16000,0,0",
        "--srv-host=_more._tcp.test,lost.test,16000,0,0",
        "--srv-host=_none._tcp.test",
        "--cname=alias.test,nodes.test",
    )
    with dnsmasq(folder, hosts, *records) as server:
        yield Zone(server, hosts)


def contacts(*hosts: str, port: int = 16_000) -> set[Contact]:
    return {Contact(host, port) for host in hosts}


def test_addresses(run: Run, zone: Zone) -> None:
    async def scenario() -> None:
        assert set(await zone.discovery("nodes.test").find()) == contacts("10.0.0.1", "10.0.0.2")
        assert set(await zone.discovery("alias.test", port=1).find()) == contacts("10.0.0.1", "10.0.0.2", port=1)
        assert set(await zone.discovery("nodes.test.", "AAAA").find()) == contacts("fd00::1")

    run(scenario())


def test_services_bring_host_and_port(run: Run, zone: Zone) -> None:
    async def scenario() -> None:
        discovery = zone.discovery("_flockmq._tcp.test", "SRV")
        await discovery.start(Contact("me", 1))
        # The servers that are set are asked for the targets, too: those of the system may know none of these names.
        assert set(await discovery.find()) == {Contact("10.0.0.3", 16_000), Contact("fd00::2", 17_000)}
        await discovery.stop()
        # A node with several addresses is listed once; a target without an address stays in sight by its name.
        assert set(await zone.discovery("_more._tcp.test", "SRV").find()) == contacts("10.0.0.4", "lost.test")
        assert await zone.discovery("_none._tcp.test", "SRV").find() == []  # DNS says that there is decidedly none

    run(scenario())


def test_answers_that_need_a_connection(run: Run, zone: Zone) -> None:
    async def scenario() -> None:
        found = await zone.discovery("many.test").find()
        assert set(found) == contacts(*(f"10.1.0.{number}" for number in range(1, MANY + 1)))

    run(scenario())


def test_what_is_not_there_is_no_empty_list(run: Run, zone: Zone) -> None:
    async def scenario() -> None:
        with pytest.raises(DiscoveryError, match=r"knows no name 'typo.test'.*discovery\.dns\.name"):
            await zone.discovery("typo.test").find()
        with pytest.raises(DiscoveryError, match=r"has no AAAA records.*discovery\.dns\.record"):
            await zone.discovery("only4.test", "AAAA").find()

    run(scenario())


def test_records_of_the_moment_count(run: Run, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.1 nodes.test\n")

    async def scenario() -> None:
        with dnsmasq(tmp_path, hosts) as server:
            discovery = Zone(server, hosts).discovery("nodes.test")
            assert set(await discovery.find()) == contacts("10.0.0.1")
            hosts.write_text("10.0.0.1 nodes.test\n10.0.0.2 nodes.test\n")
            assert server.process is not None
            server.process.send_signal(signal.SIGHUP)
            while set(await discovery.find()) != contacts("10.0.0.1", "10.0.0.2"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    run(scenario())


def test_servers_that_do_not_answer(run: Run, zone: Zone) -> None:
    async def scenario() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            deaf = f"127.0.0.1:{silent.getsockname()[1]}"
            settings = DnsSettings(name="nodes.test", nameservers=(deaf,), timeout_ms=200)
            with pytest.raises(DiscoveryError, match=r"in time.*discovery\.dns\.nameservers"):
                await registry.make("dns", settings, Surroundings(node_id=1)).find()
        dead, living = f"127.0.0.1:{free_port()}", f"127.0.0.1:{zone.server.port}"
        settings = DnsSettings(name="nodes.test", nameservers=(dead, living))
        found = await registry.make("dns", settings, Surroundings(node_id=1)).find()
        assert set(found) == contacts("10.0.0.1", "10.0.0.2")

    run(scenario())


def test_the_servers_of_the_system(run: Run) -> None:
    async def scenario() -> None:
        discovery = registry.make("dns", DnsSettings(name="flockmq.invalid", timeout_ms=300), Surroundings(node_id=1))
        with pytest.raises(DiscoveryError, match=r"flockmq\.invalid|names no DNS servers"):
            await discovery.find()  # a name that exists nowhere, whatever this machine's servers say to it

    run(scenario())
