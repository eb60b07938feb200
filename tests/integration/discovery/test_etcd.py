"""`etcd` against a real etcd."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from callee import serving
from flockmq.discovery import registry
from flockmq.discovery.etcd import EtcdDiscovery
from flockmq.discovery.ports import Claim, DiscoveryError, Surroundings, claim
from flockmq.discovery.settings import EtcdSettings
from flockmq.errors import ConfigError
from flockmq.peering.contact import Contact
from flockmq.testing.ports import free_port
from integration.support.certificates import Authority
from integration.support.node import Run
from integration.support.programs import Server, etcd

A, B = Contact("a.example", 16_000), Contact("2001:db8::b", 17_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with etcd(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"/{request.node.name}"


MADE: list[EtcdDiscovery] = []


def make(node_id: int, **settings: Any) -> EtcdDiscovery:
    made = registry.make("etcd", EtcdSettings(**settings), Surroundings(node_id=node_id, node_name=f"n{node_id}@x"))
    assert isinstance(made, EtcdDiscovery)
    MADE.append(made)
    return made


def play(run: Run, scenario: Coroutine[Any, Any, None]) -> None:
    """Run it; whatever happens in there, connections are closed in the end, or the loop would wait for them."""

    async def whole() -> None:
        try:
            await scenario
        finally:
            for made in MADE:
                await made.stop()
            MADE.clear()

    run(whole())


def node(server: Server, prefix: str, node_id: int, **settings: Any) -> EtcdDiscovery:
    return make(node_id, endpoints=(f"http://127.0.0.1:{server.port}",), prefix=prefix, **settings)


async def call(server: Server, path: str, body: dict[str, Any]) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{server.port}/v3/{path}", json=body) as answer,
    ):
        found = await answer.json()
        assert answer.status == 200, found
        return found


def text(value: str) -> str:
    return b64encode(value.encode()).decode()


async def until_listed(by: EtcdDiscovery, *expected: Contact) -> None:
    while await by.find() != list(expected):  # noqa: ASYNC110  (etcd has no event for what it does not have)
        await asyncio.sleep(0.05)


async def crash(which: EtcdDiscovery) -> None:
    """End without a goodbye."""
    which._lease = 0
    await which.stop()


def test_nodes_find_each_other(run: Run, server: Server, prefix: str) -> None:
    async def scenario() -> None:
        first, second, other = node(server, prefix, 1), node(server, prefix, 2), node(server, f"{prefix}2", 3)
        assert await first.find() == []
        await first.start(A)
        await second.start(B)
        await other.start(Contact("elsewhere", 1))
        assert await first.find() == await second.find() == [A, B]
        await first.start(Contact("moved.example", 16_000))  # as after a restart with another address
        assert await second.find() == [Contact("moved.example", 16_000), B]
        await first.stop()
        assert await second.find() == [B]
        await second.stop()
        await other.stop()

    play(run, scenario())


def test_who_dies_is_gone_when_its_lease_is_and_who_lives_stays(run: Run, server: Server, prefix: str) -> None:
    async def scenario() -> None:
        living, dying = node(server, prefix, 1, ttl_s=1), node(server, prefix, 2, ttl_s=1)
        await living.start(A)
        for _ in range(2):  # longer than one lease, in all
            await dying.start(B)
            await until_listed(living, A, B)
            await crash(dying)
            await until_listed(living, A)
        await living.stop()

    play(run, scenario())


def test_a_lost_lease_is_replaced(run: Run, server: Server, prefix: str) -> None:
    async def scenario() -> None:
        first, second = node(server, prefix, 1, ttl_s=1), node(server, prefix, 2)
        await first.start(A)
        lost = first._lease
        await call(server, "lease/revoke", {"ID": str(lost)})
        while first._lease == lost:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await until_listed(second, A)
        await first.stop()
        assert await second.find() == []
        await second.stop()

    play(run, scenario())


def test_one_cluster_is_claimed_however_many_try(run: Run, server: Server, prefix: str) -> None:
    async def scenario() -> None:
        nodes = [node(server, prefix, node_id) for node_id in range(1, 9)]
        claims = await asyncio.gather(*(claim(one, 0xC0 + number) for number, one in enumerate(nodes)))
        assert len({found.cluster_id for found in claims}) == 1
        assert [found.mine for found in claims].count(True) == 1
        winner = [found.mine for found in claims].index(True)
        assert await nodes[winner].claim(0xFF) == Claim(claims[0].cluster_id, mine=True)  # after a crash
        for one in nodes:
            await one.stop()

    play(run, scenario())


def test_a_claim_that_is_none(run: Run, server: Server, prefix: str) -> None:
    async def scenario() -> None:
        one = node(server, prefix, 1)
        await call(server, "kv/put", {"key": text(f"{prefix}/cluster"), "value": text("hello")})
        with pytest.raises(DiscoveryError, match="holds no cluster id"):
            await one.claim(1)
        await one.stop()

    play(run, scenario())


@pytest.mark.parametrize(
    "value", ["", "x", "[]", '{"host": "a b", "port": 1}', '{"host": "a", "port": 0}', '{"host": 1, "port": 1}']
)
def test_keys_of_others_are_passed_over(run: Run, server: Server, prefix: str, value: str) -> None:
    prefix = f"/strange{abs(hash(value))}"

    async def scenario() -> None:
        one = node(server, prefix, 1)
        await one.start(A)
        await call(server, "kv/put", {"key": text(f"{prefix}/nodes/0000"), "value": text(value)})
        assert await one.find() == [A]
        await one.stop()

    play(run, scenario())


def test_dead_endpoints_are_passed_over(run: Run, server: Server, prefix: str) -> None:
    async def scenario() -> None:
        endpoints = (f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{server.port}")
        one = make(1, endpoints=endpoints, prefix=prefix)
        await one.start(A)
        assert await one.find() == [A]
        await one.stop()
        with pytest.raises(DiscoveryError, match="can't be asked"):
            await make(1, endpoints=endpoints[:1], prefix=prefix).find()

    play(run, scenario())


def test_an_etcd_that_comes_back(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        with etcd(tmp_path) as server:
            one = node(server, "/flockmq", 1, ttl_s=1)
            await one.start(A)
            server.stop()
            with pytest.raises(DiscoveryError, match=f"http://127.0.0.1:{server.port}/v3/kv/range can't be asked"):
                await one.find()
            while not one.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.to_thread(server.start)
            while one.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await until_listed(one, A)
            await one.stop()

    play(run, scenario())


def test_users_and_passwords(run: Run, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("secret\n")
    wrong.write_text("guess\n")

    async def scenario() -> None:
        with etcd(tmp_path) as server:
            grant = {"permType": "READWRITE", "key": text("/own/"), "range_end": text("/own0")}
            await call(server, "auth/user/add", {"name": "root", "password": "root"})
            await call(server, "auth/user/grant", {"user": "root", "role": "root"})
            await call(server, "auth/user/add", {"name": "flockmq", "password": "secret"})
            await call(server, "auth/role/add", {"name": "nodes"})
            await call(server, "auth/role/grant", {"name": "nodes", "perm": grant})
            await call(server, "auth/user/grant", {"user": "flockmq", "role": "nodes"})
            await call(server, "auth/enable", {})
            login = {"username": "flockmq", "password_file": str(right)}
            one = node(server, "/own", 1, **login)
            await one.start(A)
            assert await one.find() == [A]
            assert (await one.claim(7)).mine
            one._api._token = "run.out"
            assert await one.find() == [A]
            for refused, match in (
                (node(server, "/own", 2), "set discovery.etcd.username"),
                (
                    node(server, "/own", 2, username="flockmq", password_file=str(wrong)),
                    "check discovery.etcd.username",
                ),
                (node(server, "/others", 2, **login), "needs to read and write below discovery.etcd.prefix"),
            ):
                with pytest.raises(DiscoveryError, match=match):
                    await refused.find()
                await refused.stop()
            await one.stop()

    play(run, scenario())


def test_tls_with_certificates_on_both_sides(run: Run, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("etcd")
    node_cert, node_key = authority.issue("node")
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "somebody else")
    tls = ("--cert-file", str(cert), "--key-file", str(key), "--trusted-ca-file", str(authority.file))

    async def scenario() -> None:
        with etcd(tmp_path, *tls, "--client-cert-auth", scheme="https") as server:
            endpoints = (f"https://127.0.0.1:{server.port}",)
            own = {"cert_file": str(node_cert), "key_file": str(node_key)}
            one = make(1, endpoints=endpoints, ca_file=str(authority.file), **own)
            await one.start(A)
            assert await one.find() == [A]
            await one.stop()
            without_certificate = make(1, endpoints=endpoints, ca_file=str(authority.file))
            with_other_authority = make(1, endpoints=endpoints, ca_file=str(stranger.file), **own)
            for refused in (without_certificate, with_other_authority):
                with pytest.raises(DiscoveryError, match="can't be asked"):
                    await refused.find()
                await refused.stop()

    play(run, scenario())


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    with pytest.raises(ConfigError, match="not in PEM"):
        make(1, endpoints=("https://127.0.0.1:1",), ca_file=str(empty))
    with pytest.raises(ConfigError, match="can't be read"):
        make(1, username="u", password_file=str(tmp_path / "missing"))


def test_a_server_that_is_not_etcd(run: Run) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n<h1>Hello</h1>")
        await writer.drain()

    async def scenario() -> None:
        async with serving(greet) as port:
            one = make(1, endpoints=(f"http://127.0.0.1:{port}",))
            with pytest.raises(DiscoveryError, match=r"client port of an etcd"):
                await one.find()
            await one.stop()

    play(run, scenario())


def test_a_server_that_never_answers(run: Run) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:  # takes calls and has nobody who answers them
            port = server.getsockname()[1]
            one = make(1, endpoints=(f"http://127.0.0.1:{port}",), timeout_ms=100)
            with pytest.raises(DiscoveryError, match="did not answer in time"):
                await one.find()
            await one.stop()

    play(run, scenario())
