"""Listeners with real sockets and the real broker, on uvloop and on asyncio."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from pathlib import Path

import pytest

from flockmq.drivers.admission import Admission
from flockmq.drivers.listeners import Bind, Listener
from flockmq.drivers.tcp import WRITE_BYTES_HIGH, MqttProtocol
from flockmq.errors import FlockError
from flockmq.node.ports import AuthRequest, Identity, OpenGate, Verdict
from flockmq.node.settings import Limits
from flockmq.session.connection import Connection
from flockmq.wire.websocket import encode_client_frame
from integration.support.certificates import Authority
from integration.support.node import (
    CONNACK,
    Client,
    Node,
    Run,
    WebSocketClient,
    connect_packet,
    publish_packet,
    running,
    subscribe_packet,
    until,
)

SUBACK = b"\x90\x03\x00\x01\x00"
KEY = b"\x01\x02\x03\x04"
HEAR_ME = encode_client_frame(b"?", KEY, 0x89)
NO_IPV6 = "this machine has no IPv6"


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason=NO_IPV6)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def only_connection(node: Node) -> Connection:
    (connection,) = node.broker.connections.values()
    return connection


def transport_of(connection: Connection) -> asyncio.Transport:
    assert isinstance(connection.handle, MqttProtocol)
    assert connection.handle.transport is not None
    return connection.handle.transport


async def open_client(
    kind: str, listener: Listener, authority: Authority, before: bytes = b"", name: str | None = None
) -> Client:
    tls = authority.client_context(name) if kind in ("tls", "wss") else None
    if kind in ("tcp", "tls"):
        return await Client.open(listener, tls, before)
    client = await WebSocketClient.open(listener, tls, before)
    assert isinstance(client, WebSocketClient)
    await client.upgrade()
    return client


def server_tls(kind: str, authority: Authority, ask_clients: bool = False) -> ssl.SSLContext | None:
    return authority.server_context(ask_clients=ask_clients) if kind in ("tls", "wss") else None


KINDS = pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "wss"])


# --- every kind of listener ---


@KINDS
def test_a_message_goes_round(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority))
            client = await open_client(kind, listener, authority)
            await client.connect()
            client.send(subscribe_packet(b"a/#"))
            await client.receive(SUBACK)
            message = publish_packet(b"a/b", b"x" * 300_000)  # more than one read and more than one TLS record
            client.send(message)
            await client.receive(message)
            connection = only_connection(node)
            assert (connection.peer, connection.listener) == ("127.0.0.1", "test")
            client.send(b"\xe0\x00")
            assert await client.closed() == b""
            await client.close()
            await until(lambda: listener.admission.live == 0)
            assert not node.broker.connections

    run(scenario())


@KINDS
def test_a_silent_connection_is_closed(run: Run, authority: Authority, kind: str) -> None:
    """Before TLS or WebSocket began, nobody but the listener knows of it."""

    async def scenario() -> None:
        async with running() as node:
            limits = Limits(connect_timeout_ms=200)
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority), limits=limits)
            silent = await Client.open(listener)
            await silent.closed()
            await silent.close()
            await until(lambda: listener.admission.live == 0)

    run(scenario())


TRICKLES = {
    "tcp": connect_packet("c" * 100),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "ws": b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 100,
    "proxy": b"PROXY TCP6 " + b"0" * 100,
}


@pytest.mark.parametrize("kind", TRICKLES)
def test_a_beginning_that_trickles_in_is_closed(run: Run, authority: Authority, kind: str) -> None:
    """Its time runs from the first byte to the last, not from byte to byte."""

    async def scenario() -> None:
        async with running() as node:
            limits = Limits(connect_timeout_ms=200)
            proxy = "any" if kind == "proxy" else "off"
            kind_of_listener = "tcp" if kind == "proxy" else kind
            tls = server_tls(kind_of_listener, authority)
            listener = await node.listen(kind=kind_of_listener, tls=tls, limits=limits, proxy_protocol=proxy)
            client = await Client.open(listener)

            async def trickle() -> None:
                for byte in TRICKLES[kind]:
                    client.send(bytes((byte,)))
                    await asyncio.sleep(0.02)

            trickling = asyncio.create_task(trickle())
            await client.closed()
            assert not trickling.done()
            trickling.cancel()
            await client.close()
            await until(lambda: listener.admission.live == 0)

    run(scenario())


@KINDS
def test_a_silent_client_after_the_handshake_is_closed(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            limits = Limits(connect_timeout_ms=2_000)
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority), limits=limits)
            client = await open_client(kind, listener, authority)
            await client.closed()
            await client.close()
            await until(lambda: listener.admission.live == 0)

    run(scenario())


@KINDS
def test_an_abrupt_reset_ends_the_session(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority))
            clients = [await open_client(kind, listener, authority) for _ in range(5)]
            for number, client in enumerate(clients):
                await client.connect(f"c{number}")
            for client in clients[1:]:
                client.reset()
            await until(lambda: len(node.broker.connections) == 1)
            assert listener.admission.live == 1
            await clients[0].ping()
            await clients[0].close()

    run(scenario())


@pytest.mark.parametrize("kind", ["tcp", "ws"])
def test_who_was_accepted_while_the_listener_stopped_is_not_kept_waiting(run: Run, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind=kind)
            await listener.stop()
            ours, theirs = socket.socketpair()
            with theirs:
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(listener.protocol, ours)
                theirs.setblocking(False)
                assert await loop.sock_recv(theirs, 1) == b""
            await until(lambda: listener.admission.live == 0)

    run(scenario())


@KINDS
def test_stopping_says_goodbye_to_all(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority))
            client = await open_client(kind, listener, authority)
            await client.connect("c", version=5)
            silent = await Client.open(listener)
            stopping = asyncio.create_task(node.runner.stop())
            goodbye = await client.closed()
            assert (goodbye[0], goodbye[2]) == (0xE0, 0x8B)
            await silent.closed()
            await client.close()
            await silent.close()
            await stopping
            assert listener.admission.live == 0
            with pytest.raises(FlockError, match="not listening"):
                _ = listener.port

    run(scenario())


# --- addresses ---


def test_sockets_are_set_up_for_small_packets_and_vanished_peers(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen()
            client = await Client.open(listener)
            await client.connect()
            server_side = transport_of(only_connection(node)).get_extra_info("socket")
            assert server_side.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert server_side.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            await client.close()

    run(scenario())


@needs_ipv6
def test_ipv6(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(binds=(Bind("::1", 0),))
            client = await Client.open(listener)
            await client.connect()
            assert only_connection(node).peer == "::1"
            await client.close()

    run(scenario())


@needs_ipv6
def test_one_socket_for_both_address_families(run: Run) -> None:
    """An IPv4 client is known by its IPv4 address there too: a ban by address must find it."""

    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(binds=(Bind("::", 0),))
            client = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
            await client.connect()
            assert only_connection(node).peer == "127.0.0.1"
            await client.close()

    run(scenario())


@needs_ipv6
@pytest.mark.parametrize("hosts", [("127.0.0.1", "::1"), ("0.0.0.0", "::")])
def test_several_addresses_share_a_free_port(run: Run, hosts: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(binds=tuple(Bind(host, 0, optional=True) for host in hosts))
            assert listener.addresses == [(host, listener.port) for host in hosts]
            for address in ("127.0.0.1", "::1"):
                client = Client(*await asyncio.open_connection(address, listener.port))
                await client.connect(address)
                await client.close()

    run(scenario())


def test_a_taken_port_is_explained_and_nothing_stays_open(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen()
            free = Bind("127.0.0.1", 0)
            with pytest.raises(FlockError, match=f"port {listener.port}: another program uses it"):
                await node.listen(binds=(free, Bind("127.0.0.1", listener.port)))
            with pytest.raises(FlockError, match="this machine has no such address"):
                await node.listen(binds=(Bind("192.0.2.1", 0),))
            with pytest.raises(FlockError, match="no address that exists"):
                await node.listen(binds=(Bind("192.0.2.1", 0, optional=True),))
            with pytest.raises(FlockError, match="use an address of this machine"):
                await node.listen(binds=(Bind("no.such.host.invalid", 0),))

    run(scenario())


# --- client certificates and PROXY ---


@pytest.mark.parametrize("kind", ["tls", "wss"])
def test_the_name_in_a_client_certificate(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority, ask_clients=True))
            client = await open_client(kind, listener, authority, name="device-7")
            await client.connect()
            assert only_connection(node).certificate_name == "device-7"
            await client.close()

    run(scenario())


async def try_to_connect(listener: Listener, context: ssl.SSLContext) -> None:
    client = await Client.open(listener, context)
    try:
        await client.connect()
    finally:
        await client.close()


def test_strangers_do_not_get_past_tls(run: Run, authority: Authority, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind="tls", tls=server_tls("tls", authority, ask_clients=True))
            stranger = authority.client_context()
            stranger.load_cert_chain(*Authority(tmp_path, "another").issue("device-7"))
            for context in (authority.client_context(), stranger):
                with pytest.raises((OSError, asyncio.IncompleteReadError)):  # TLS 1.3 tells the client late
                    await try_to_connect(listener, context)
            await until(lambda: sum(event.kind == "tls_handshake_failed" for event in node.events) == 2)
            await until(lambda: listener.admission.live == 0)
            assert node.broker.stats.connections_opened == 0

    run(scenario())


def proxy_v2(address: str, name: str | None = None) -> bytes:
    body = socket.inet_aton(address) + socket.inet_aton("127.0.0.1") + b"\xdc\x04\x07\x5b"
    if name is not None:
        inner = b"\x03" + bytes(4) + b"\x22" + len(name).to_bytes(2, "big") + name.encode()
        body += b"\x20" + len(inner).to_bytes(2, "big") + inner
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + len(body).to_bytes(2, "big") + body


PROXY_V1 = b"PROXY TCP4 203.0.113.9 127.0.0.1 50000 1883\r\n"


@KINDS
@pytest.mark.parametrize(
    ("version", "header"),
    [("v1", PROXY_V1), ("v2", proxy_v2("203.0.113.9")), ("any", PROXY_V1)],
    ids=["v1", "v2", "any"],
)
def test_the_peer_is_who_the_balancer_says(
    run: Run, authority: Authority, kind: str, version: str, header: bytes
) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority), proxy_protocol=version)
            client = await open_client(kind, listener, authority, before=header)
            await client.connect()
            assert only_connection(node).peer == "203.0.113.9"
            await client.ping()
            await client.close()
            await until(lambda: listener.admission.live == 0)

    run(scenario())


def test_a_proxy_header_in_any_pieces(run: Run) -> None:
    """Together with the first bytes of MQTT, and byte by byte."""

    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(proxy_protocol="any")
            header = proxy_v2("203.0.113.9", "device-7")
            whole = await Client.open(listener)
            whole.send(header + connect_packet("whole") + b"\xc0\x00")
            await whole.receive(CONNACK + b"\xd0\x00")
            assert only_connection(node).certificate_name == "device-7"
            await whole.close()
            await until(lambda: not node.broker.connections)
            slow = await Client.open(listener)
            for byte in header + connect_packet("slow"):
                slow.send(bytes((byte,)))
                await slow.writer.drain()
                await asyncio.sleep(0)
            await slow.receive(CONNACK)
            assert only_connection(node).peer == "203.0.113.9"
            await slow.close()

    run(scenario())


def test_a_health_check_without_an_address_keeps_the_real_peer(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(proxy_protocol="v1")
            client = await Client.open(listener, before=b"PROXY UNKNOWN\r\n")
            await client.connect()
            assert only_connection(node).peer == "127.0.0.1"
            await client.close()
            silent = await Client.open(listener)
            await silent.close()
            await until(lambda: listener.admission.live == 0)
            assert not [event for event in node.events if event.kind == "proxy_header_refused"]

    run(scenario())


@pytest.mark.parametrize(
    "wrong",
    [connect_packet("direct"), proxy_v2("203.0.113.9"), b"PROXY TCP4 nonsense\r\n"],
    ids=["none", "other version", "nonsense"],
)
def test_a_bad_proxy_header_closes_the_connection(run: Run, wrong: bytes) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(proxy_protocol="v1")
            client = await Client.open(listener)
            client.send(wrong)
            assert await client.closed() == b""
            event = await node.event("proxy_header_refused")
            assert (event.fields["listener"], event.fields["peer"]) == ("test", "127.0.0.1")
            await client.close()
            assert node.broker.stats.connections_opened == 0
            assert listener.admission.live == 0

    run(scenario())


def test_a_proxy_header_that_does_not_come(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(proxy_protocol="any", limits=Limits(connect_timeout_ms=200))
            client = await Client.open(listener)
            client.send(PROXY_V1[:20])
            assert await client.closed() == b""
            await client.close()
            assert listener.admission.live == 0

    run(scenario())


# --- WebSocket ---


async def web_socket(node: Node, **settings: object) -> WebSocketClient:
    listener = await node.listen(kind="ws", **settings)
    client = await WebSocketClient.open(listener)
    assert isinstance(client, WebSocketClient)
    return client


def test_frames_may_cut_packets_anywhere(run: Run) -> None:
    """[MQTT-6.0.0-2]: packets span frames and share them; fragments and pings come between."""

    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node)
            packet = connect_packet("c")
            first_frame = encode_client_frame(packet[:3], KEY, 0x02)  # sent with the request, before its answer
            await client.upgrade(follows=first_frame)
            client.send(b"are you there", first=0x89)
            client.send(packet[3:7], first=0x00)
            client.send(packet[7:] + b"\xc0", first=0x80)
            client.send(b"\x00\xc0\x00")
            await client.receive(CONNACK + b"\xd0\x00\xd0\x00")
            await client.close()

    run(scenario())


def test_a_ping_frame_is_answered(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node)
            await client.upgrade()
            client.send(b"are you there", first=0x89)
            assert await client.reader.readexactly(15) == b"\x8a\x0dare you there"
            await client.close()

    run(scenario())


def test_all_bytes_of_a_loop_turn_are_one_frame(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node)
            await client.upgrade()
            await client.connect()
            client.send(b"\xc0\x00" * 10)
            assert await client.reader.readexactly(22) == b"\x82\x14" + b"\xd0\x00" * 10
            await client.close()

    run(scenario())


def test_a_text_frame_closes_the_connection(run: Run) -> None:
    """[MQTT-6.0.0-1]; what came before it still counts."""

    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node)
            await client.upgrade()
            await client.connect()
            client.send_raw(encode_client_frame(b"\xc0\x00", KEY) + encode_client_frame(b"text", KEY, 0x81))
            assert await client.closed() == b"\xd0\x00"
            assert client.decoder.close_code == 1003
            assert "binary" in str((await node.event("websocket_error")).fields["reason"])
            await client.close()
            await until(lambda: not node.broker.connections)

    run(scenario())


def test_a_ping_behind_what_ended_the_connection_is_not_answered(run: Run) -> None:
    """So much in one read is flushed at once: the goodbye is said before the ping is looked at."""

    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node)
            await client.upgrade()
            await client.connect()
            handle = only_connection(node).handle
            assert isinstance(handle, MqttProtocol)
            handle.data_received(encode_client_frame(b"\xe0\x00" + bytes(5_000_000), KEY) + HEAR_ME)
            assert await client.closed() == b""
            assert client.decoder.close_code == 1000
            await client.close()
            assert not [event for event in node.events if event.kind == "internal_error"]

    run(scenario())


def test_a_close_frame_is_answered_and_closes(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node)
            await client.upgrade()
            await client.connect()
            client.send_raw(encode_client_frame(b"\xe0\x00", KEY) + encode_client_frame(b"\x03\xe9", KEY, 0x88))
            assert await client.closed() == b""
            assert client.decoder.close_code == 1001
            await client.close()
            await until(lambda: not node.broker.connections)

    run(scenario())


def test_the_brokers_goodbye_ends_with_a_close_frame(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node)
            await client.upgrade()
            await client.connect()
            client.send(b"\xe0\x00")
            assert await client.closed() == b""
            assert client.decoder.close_code == 1000
            await client.close()

    run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", b"426"),
        (connect_packet("lost"), b"400"),
        (b"GET /mqtt HTTP/1.1\r\nX: " + b"x" * 100_000, b"431"),
    ],
)
def test_a_refused_request_is_told_why(run: Run, request_bytes: bytes, status: bytes) -> None:
    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node)
            client.send_raw(request_bytes)
            answer = await client.reader.read()
            assert answer.startswith(b"HTTP/1.1 " + status)
            await node.event("websocket_refused")
            await client.close()
            await until(lambda: not node.runner.listeners[0].admission.live)

    run(scenario())


def test_path_and_origins_are_settings(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            client = await web_socket(node, path="/broker", origins=("https://shop.example",))
            await client.upgrade("/broker")
            await client.connect()
            await client.close()

    run(scenario())


# --- limits ---


async def refused_with(client: Client, client_id: str) -> int:
    client.send(connect_packet(client_id, version=5))
    answer = await client.closed()
    await client.close()
    assert answer[0] == 0x20
    return answer[3]


@KINDS
def test_more_connections_than_allowed_are_told_so(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            limits = Limits(connections_max=2)
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority), limits=limits)
            clients = [await open_client(kind, listener, authority) for _ in range(2)]
            for number, client in enumerate(clients):
                await client.connect(f"c{number}")
            assert await refused_with(await open_client(kind, listener, authority), "c2") == 0x97
            await clients[0].close()
            await until(lambda: listener.admission.live == 1)
            again = await open_client(kind, listener, authority)
            await again.connect("c3")
            await again.close()
            await clients[1].close()

    run(scenario())


def test_connections_faster_than_allowed_are_told_so(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(limits=Limits(connections_per_s_max=1))
            codes = []
            while 0x9F not in codes:  # a stalled machine may be slow enough for some to be let in
                client = await Client.open(listener)
                client.send(connect_packet("c", version=5))
                codes.append((await client.reader.readexactly(4))[3])
                await client.close()
            assert codes[0] == 0

    run(scenario())


def all_counted(admission: Admission, count: int) -> bool:
    return admission.live + admission.dropped >= count


def test_a_flood_beyond_politeness_is_dropped_and_counted(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(limits=Limits(connections_max=1))
            keeper = await Client.open(listener)
            await keeper.connect()
            held: list[socket.socket] = []
            admission = listener.admission
            while not admission.dropped:
                held += [socket.create_connection(listener.addresses[0]) for _ in range(200)]  # in one loop turn
                await until(partial(all_counted, admission, len(held) + 1))
            event = await node.event("connections_dropped")
            assert event.fields["listener"] == "test"
            await keeper.ping()
            for one in held:
                one.close()
            await keeper.close()

    run(scenario())


@pytest.mark.parametrize("options", [{"proxy_protocol": "any"}, {"kind": "tls"}], ids=["proxy", "tls"])
def test_hanging_handshakes_do_not_keep_others_out(run: Run, authority: Authority, options: dict[str, str]) -> None:
    """The oldest go first, and honest clients are faster than that."""

    async def scenario() -> None:
        async with running() as node:
            kind = options.get("kind", "tcp")
            listener = await node.listen(**options, tls=server_tls(kind, authority), handshakes_max=20)
            hanging = [socket.create_connection(listener.addresses[0]) for _ in range(70)]
            await until(lambda: listener.admission.dropped >= 50)
            before = PROXY_V1 if kind == "tcp" else b""
            client = await open_client(kind, listener, authority, before=before)
            await client.connect()
            assert hanging[0].recv(1) == b""
            for one in hanging:
                one.close()
            await client.close()
            await until(lambda: listener.admission.live == 0)

    run(scenario())


# --- slow and rude peers ---


def publish_flood(node: Node, count: int, payload: bytes = b"x" * 10_000) -> None:
    """Publish in the broker's name, one loop turn's worth."""
    for _ in range(count):
        node.broker.publish(b"flood", payload, 0, False, 0)
    node.runner.flush_soon()


@KINDS
def test_a_subscriber_that_does_not_read_costs_a_bounded_amount(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            limits = Limits(write_bytes_max=1_000_000)
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority), limits=limits)
            client = await open_client(kind, listener, authority)
            await client.connect("slow")
            client.send(subscribe_packet(b"flood"))
            await client.receive(SUBACK)
            client.stop_reading()
            slow = only_connection(node)
            transport = transport_of(slow)
            while not slow.dropped:
                publish_flood(node, 20)
                await asyncio.sleep(0)
                assert slow.out_bytes <= limits.write_bytes_max
                assert transport.get_write_buffer_size() <= WRITE_BYTES_HIGH + limits.write_bytes_max
            await until(lambda: slow.blocked)
            other = await open_client(kind, listener, authority)
            await other.connect("other")
            await other.ping()
            # It reads again: everything that was kept comes, whole, then it is served as before.
            client.start_reading()
            message = publish_packet(b"flood", b"x" * 10_000)
            for _ in range(slow.messages_out):
                await client.receive(message)
            await until(lambda: not slow.blocked)
            await client.ping()
            await client.close()
            await other.close()

    run(scenario())


@KINDS
def test_a_subscriber_that_never_reads_can_be_ended(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority))
            client = await open_client(kind, listener, authority)
            await client.connect("slow")
            client.send(subscribe_packet(b"flood"))
            await client.receive(SUBACK)
            client.stop_reading()
            slow = only_connection(node)
            while not slow.blocked:
                publish_flood(node, 20)
                await asyncio.sleep(0)
            assert node.broker.kick("slow", 0)
            node.runner.flush_soon()
            await until(lambda: listener.admission.live == 0)
            client.reset()

    run(scenario())


@KINDS
def test_the_reason_reaches_a_client_that_keeps_sending(run: Run, authority: Authority, kind: str) -> None:
    """A close with unread bytes would reset the connection and the DISCONNECT could be lost."""

    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority))
            client = await open_client(kind, listener, authority)
            await client.connect("rude", version=5)
            client.send(b"\xc1\x00")  # reserved flag
            client.send(bytes(2_000_000))
            goodbye = await client.closed()
            assert (goodbye[0], goodbye[2]) == (0xE0, 0x81)
            await client.close()
            await until(lambda: listener.admission.live == 0)

    run(scenario())


def test_a_client_that_shuts_its_side_gets_its_answers(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen()
            client = await Client.open(listener)
            client.send(connect_packet("c") + b"\xc0\x00")
            client.writer.write_eof()
            assert await client.closed() == CONNACK + b"\xd0\x00"
            await client.close()
            await until(lambda: not node.broker.connections)

    run(scenario())


class ThinkingGate(OpenGate):
    """Has no verdict at once."""

    def __init__(self) -> None:
        self.request: AuthRequest | None = None

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        self.request = request
        return None


@KINDS
def test_nothing_is_read_while_the_broker_asks_for_a_pause(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        gate = ThinkingGate()
        async with running(gate) as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority))
            client = await open_client(kind, listener, authority)
            client.send(connect_packet("c") + b"\xc0\x00")  # it does not wait for its CONNACK
            await until(lambda: gate.request is not None)
            assert gate.request is not None
            connection = only_connection(node)
            await until(lambda: connection.reading_paused and not node.broker.dirty)
            read = connection.bytes_in
            client.send(b"\xc0\x00" * 50_000)
            await client.writer.drain()
            bystander = await open_client(kind, listener, authority)  # turns of the loop go by
            await bystander.close()
            assert connection.bytes_in == read
            verdict = OpenGate().authenticate(gate.request)
            assert verdict is not None
            node.broker.auth_result(gate.request, verdict, 0)
            node.runner.flush_soon()
            await client.receive(CONNACK + b"\xd0\x00" * 50_001)
            await client.close()

    run(scenario())


class BrokenGate:
    """Has a bug that one topic finds."""

    version = 0

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        return OpenGate().authenticate(request)

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
        return OpenGate().resume(request, data)

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        return True

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        if topic == b"bug":
            raise ZeroDivisionError("a bug in the gate")
        return True


@KINDS
def test_a_bug_costs_one_connection_and_is_seen(run: Run, authority: Authority, kind: str) -> None:
    async def scenario() -> None:
        async with running(BrokenGate()) as node:
            listener = await node.listen(kind=kind, tls=server_tls(kind, authority))
            unlucky, other = [await open_client(kind, listener, authority) for _ in range(2)]
            await unlucky.connect("unlucky")
            await other.connect("other")
            unlucky.send(publish_packet(b"bug", b""))
            assert await unlucky.closed() == b""
            event = await node.event("internal_error")
            assert event.fields["doing"] == "receive"
            assert event.fields["peer"] == "127.0.0.1"
            assert "a bug in the gate" in str(event.fields["traceback"])
            await other.ping()
            assert list(node.broker.sessions) == ["other"]
            await unlucky.close()
            await other.close()
            await until(lambda: listener.admission.live == 0)

    run(scenario())
