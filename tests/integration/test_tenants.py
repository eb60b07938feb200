"""Namespaces, clients and rights on a running broker, through real sockets; cluster state is told what to be."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from flockmq.cluster.commands import CreateNamespace, DeleteClient, DeleteNamespace, PutAcl, PutClient
from flockmq.cluster.model import AclRule
from flockmq.config.load import Flags, load
from flockmq.mqtt import reasons
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
)
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.varint import frame_length
from flockmq.security.passwords import HashCost, make_secret, set_password
from flockmq.server.app import Server
from flockmq.server.log import Log, json_line
from flockmq.session.session import Session
from integration.support.node import until
from scram_client import ScramClient
from state_cases import Machine

CHEAP = HashCost(iterations=1, memory_kib=8, lanes=1)
AnyPacket = TypeVar("AnyPacket", bound=Packet)


class Client:
    """An MQTT 5 client, packet by packet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.buffer = b""

    def send(self, packet: Packet) -> None:
        self.writer.write(encode_packet(packet, 5))

    async def expect(self, kind: type[AnyPacket]) -> AnyPacket:
        while True:
            header, total = frame_length(self.buffer, 0, len(self.buffer), 5)
            if total and total <= len(self.buffer):
                packet = decode_packet(5, self.buffer[0], self.buffer[header:total])
                self.buffer = self.buffer[total:]
                assert isinstance(packet, kind), packet
                return packet
            data = await self.reader.read(65_536)
            assert data, "the broker has closed the connection"
            self.buffer += data

    async def connect(self, client_id: str, username: str | None = None, password: bytes | None = None) -> int:
        self.send(Connect(5, client_id, username=username, password=password))
        return (await self.expect(Connack)).reason

    async def subscribe(self, topic_filter: bytes) -> int:
        self.send(Subscribe(1, [SubscribeEntry(topic_filter, 1)]))
        return (await self.expect(Suback)).reasons[0]

    async def publish(self, topic: bytes, payload: bytes) -> int:
        self.send(Publish(topic, payload, 1, packet_id=1))
        return (await self.expect(Ack)).reason


class Tenancy:
    """A running broker and the cluster state that it follows."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clients: list[Client] = []
        self.machine = Machine()
        self.machine.done(CreateNamespace("acme"))
        self.machine.done(CreateNamespace("umbrella"))
        self.follow()

    def follow(self) -> None:
        assert self.server.life is not None
        self.server.life.tenants.follow(self.machine.state)

    def put(
        self,
        namespace: str,
        name: str,
        password: bytes | None = None,
        publish: tuple[str, ...] | None = None,
        subscribe: tuple[str, ...] | None = None,
    ) -> None:
        secret = make_secret(name, password, cost=CHEAP) if password is not None else None
        self.machine.done(PutClient(namespace, name, secret, publish, subscribe))
        self.follow()

    @property
    def sessions(self) -> dict[str, Session]:
        return self.server.broker.sessions

    async def open(self, listener: str = "tcp:default") -> Client:
        (found,) = [one for one in self.server.listeners if one.name == listener]
        client = Client(*await asyncio.open_connection(*found.addresses[0]))
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self.clients:
            client.writer.close()
            with suppress(OSError):
                await client.writer.wait_closed()
        await self.server.stop()

    async def client(self, client_id: str, username: str | None = None, password: bytes | None = None) -> Client:
        client = await self.open()
        assert await client.connect(client_id, username, password) == 0
        return client

    async def refusal(self, username: str | None, password: bytes | None = None) -> int:
        client = await self.open()
        return await client.connect("refused", username, password)


async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **environ: str) -> Server:
    monkeypatch.setenv("FLOCKMQ_CREDENTIALS", str(tmp_path / "credentials.toml"))
    settings = {
        "FLOCKMQ_NODE__DATA_DIR": str(tmp_path / "data"),
        "FLOCKMQ_CLUSTER__ENABLED": "false",
        "FLOCKMQ_ADMIN__ENABLED": "false",
        "FLOCKMQ_LISTENERS__TCP__TENANT__BIND": "127.0.0.1:0",
        "FLOCKMQ_LISTENERS__TCP__TENANT__NAMESPACE": "umbrella",
        **environ,
    }
    config = load(None, settings, Flags(host="127.0.0.1", ports={"tcp": 0, "ws": 0})).config
    server = Server(replace(config, broker=replace(config.broker, sys_interval_ms=0)), Log(io.StringIO(), json_line))
    await server.start()
    return server


@pytest.fixture
async def tenancy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenancy]:
    """A broker that asks for credentials and has none but those of the cluster."""
    tenancy = Tenancy(await start(tmp_path, monkeypatch))
    yield tenancy
    await tenancy.stop()


@pytest.fixture
async def open_tenancy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenancy]:
    """A broker that lets everybody in."""
    tenancy = Tenancy(await start(tmp_path, monkeypatch, FLOCKMQ_SECURITY__ALLOW_ANONYMOUS="true"))
    yield tenancy
    await tenancy.stop()


async def test_the_same_names_in_two_namespaces(tenancy: Tenancy) -> None:
    for namespace in ("acme", "umbrella"):
        tenancy.put(namespace, "bob", namespace.encode())
    acme = await tenancy.client("sensor", "acme/bob", b"acme")
    umbrella = await tenancy.client("sensor", "umbrella/bob", b"umbrella")
    for client in (acme, umbrella):
        assert await client.subscribe(b"#") == 1
    acme.send(Publish(b"plant/1", b"21", 0))
    message = await acme.expect(Publish)
    assert (message.topic, message.payload) == (b"plant/1", b"21")
    umbrella.send(Publish(b"plant/1", b"22", 0))
    message = await umbrella.expect(Publish)
    assert (message.topic, message.payload) == (b"plant/1", b"22"), "and the 21 never came"
    assert await tenancy.refusal("acme/bob", b"umbrella") == reasons.BAD_USER_NAME_OR_PASSWORD


async def test_a_listener_of_a_tenant(tenancy: Tenancy) -> None:
    tenancy.put("umbrella", "bob", b"secret")
    client = await tenancy.open("tcp:tenant")
    assert await client.connect("c", "bob", b"secret") == 0
    assert list(tenancy.sessions) == ["$ns/umbrella/c"]


async def test_scram_with_keys_of_the_cluster(tenancy: Tenancy) -> None:
    tenancy.put("acme", "bob", b"builder")
    scram = ScramClient("bob", "builder", "nonce")
    properties = Properties()
    properties.authentication_method = "SCRAM-SHA-256"
    properties.authentication_data = scram.first()
    client = await tenancy.open()
    client.send(Connect(5, "c", properties=properties, username="acme/bob"))
    challenge = (await client.expect(Auth)).properties.authentication_data
    answer = Properties()
    answer.authentication_method = "SCRAM-SHA-256"
    answer.authentication_data = scram.respond(challenge or b"")
    client.send(Auth(reasons.CONTINUE_AUTHENTICATION, answer))
    welcome = await client.expect(Connack)
    assert welcome.reason == 0
    scram.verify(welcome.properties.authentication_data or b"")


async def test_a_client_that_is_removed_is_out_at_once(tenancy: Tenancy) -> None:
    tenancy.put("acme", "bob", b"builder")
    tenancy.put("acme", "eve", b"dropper")
    bob, eve = await tenancy.client("1", "acme/bob", b"builder"), await tenancy.client("2", "acme/eve", b"dropper")
    tenancy.machine.done(DeleteClient("acme", "bob"))
    tenancy.follow()
    assert (await bob.expect(Disconnect)).reason == reasons.ADMINISTRATIVE_ACTION
    assert await tenancy.refusal("acme/bob", b"builder") == reasons.BAD_USER_NAME_OR_PASSWORD
    assert await eve.publish(b"a", b"still here") < 0x80


async def test_a_new_password_counts_at_once(tenancy: Tenancy) -> None:
    tenancy.put("acme", "bob", b"old")
    bob = await tenancy.client("1", "acme/bob", b"old")
    tenancy.put("acme", "bob", b"new")
    assert (await bob.expect(Disconnect)).reason == reasons.NOT_AUTHORIZED
    assert await tenancy.refusal("acme/bob", b"old") == reasons.BAD_USER_NAME_OR_PASSWORD
    await tenancy.client("1", "acme/bob", b"new")


async def test_rights_that_change_hold_for_who_is_connected(tenancy: Tenancy) -> None:
    tenancy.put("acme", "bob", b"builder", publish=("out/#",), subscribe=("in/#",))
    bob = await tenancy.client("1", "acme/bob", b"builder")
    assert await bob.publish(b"out/1", b"x") < 0x80
    assert await bob.publish(b"in/1", b"x") == reasons.NOT_AUTHORIZED
    assert await bob.subscribe(b"in/1") == 1
    assert await bob.subscribe(b"#") == reasons.NOT_AUTHORIZED
    tenancy.put("acme", "bob", publish=("in/#",), subscribe=("other",))
    assert await bob.publish(b"out/1", b"x") == reasons.NOT_AUTHORIZED
    assert await bob.publish(b"in/1", b"x") == reasons.NO_MATCHING_SUBSCRIBERS, "its own subscription was revoked"


async def test_rules_of_a_namespace_hold_for_who_is_connected(tenancy: Tenancy) -> None:
    tenancy.put("acme", "bob", b"builder")
    bob = await tenancy.client("1", "acme/bob", b"builder")
    assert await bob.subscribe(b"secret/1") == 1
    tenancy.machine.done(PutAcl("acme", True, (AclRule(False, ("all",), "subscribe", ("secret/#",)),)))
    tenancy.follow()
    await until(lambda: not tenancy.sessions["$ns/acme/1"].subscriptions)
    assert await bob.publish(b"secret/1", b"x") == reasons.NO_MATCHING_SUBSCRIBERS


async def test_a_namespace_that_is_deleted(tenancy: Tenancy) -> None:
    tenancy.put("acme", "bob", b"builder")
    bob = await tenancy.client("1", "acme/bob", b"builder")
    tenancy.machine.done(DeleteClient("acme", "bob"))
    tenancy.machine.done(DeleteNamespace("acme"))
    tenancy.follow()
    assert (await bob.expect(Disconnect)).reason == reasons.ADMINISTRATIVE_ACTION


async def test_the_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = tmp_path / "passwords"
    set_password(passwords, "bob", b"of the file", cost=CHEAP)
    set_password(passwords, "acme/eve", b"of the file", cost=CHEAP)
    tenancy = Tenancy(await start(tmp_path, monkeypatch, FLOCKMQ_SECURITY__PASSWORD_FILE=str(passwords)))
    tenancy.put("default", "bob", b"of the cluster")
    tenancy.put("acme", "eve", b"of the cluster")
    tenancy.put("acme", "bob", b"of the cluster")
    for name in ("bob", "acme/eve"):
        assert await tenancy.refusal(name, b"of the cluster") == reasons.BAD_USER_NAME_OR_PASSWORD
        client = await tenancy.client(name, name, b"of the file")
    await tenancy.client("3", "acme/bob", b"of the cluster")
    tenancy.machine.done(DeleteClient("acme", "eve"))
    tenancy.follow()
    assert await client.publish(b"a", b"x") < 0x80, "the file still has her"
    await tenancy.stop()


async def test_an_open_broker_asks_once_somebody_is_registered(open_tenancy: Tenancy) -> None:
    somebody = await open_tenancy.client("1", "whoever")
    stranger = await open_tenancy.client("2", "acme/whoever")
    open_tenancy.put("acme", "bob", b"builder")
    assert (await stranger.expect(Disconnect)).reason == reasons.NOT_AUTHORIZED
    assert await somebody.publish(b"a", b"x") < 0x80
    assert await open_tenancy.refusal("acme/whoever") == reasons.BAD_USER_NAME_OR_PASSWORD
    await open_tenancy.client("2", "acme/bob", b"builder")
    await open_tenancy.client("3", "whoever")


async def test_an_open_broker_has_rules_once_the_cluster_has_some(open_tenancy: Tenancy) -> None:
    somebody = await open_tenancy.client("1", "whoever")
    assert await somebody.subscribe(b"secret/1") == 1
    rules = (AclRule(False, ("ip:127.0.0.0/8",), "all", ("secret/#",)),)
    open_tenancy.machine.done(PutAcl("default", True, rules))
    open_tenancy.follow()
    assert await somebody.publish(b"secret/1", b"x") == reasons.NOT_AUTHORIZED
    await until(lambda: not open_tenancy.sessions["1"].subscriptions)
    assert await somebody.publish(b"a", b"x") < 0x80
    later = await open_tenancy.client("2")
    assert await later.publish(b"secret/1", b"x") == reasons.NOT_AUTHORIZED
