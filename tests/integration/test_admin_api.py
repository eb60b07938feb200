"""The admin API over real sockets, on a real broker whose clients and clock the test drives."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
import pytest

from flockmq.admin import model
from flockmq.admin.api import AdminApi
from flockmq.admin.desk import NodeInfo, Ports
from flockmq.admin.guard import AttemptThrottle
from flockmq.admin.operations import Operation
from flockmq.admin.routes import OPERATIONS
from flockmq.admin.web import WebLimits
from flockmq.client.admin import AdminClient, UnreachableError
from flockmq.drivers.clock import now_ms
from flockmq.errors import ApiError, ConfigError
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Disconnect
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness
from integration.support.http import Answer, ask, connected, exchange, parse
from integration.support.node import Client, Run, running, until

T = TypeVar("T")
NODE = NodeInfo(name="n1@127.0.0.1", version="1.2.3", build="pure")
LISTENERS = (model.Listener(name="tcp:default", protocol="tcp", host="127.0.0.1", port=1883, connections=0),)
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
NODE_REQUEST = b"GET /api/v1/node HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n\r\n"
STRANGE = ["a/b", "..", ".", "a/../b", "/", "//", "%2F", "é☃", "a b", "a+b", "?x=1", "#", "a;b", "\x7f", "-", "a\\b"]


class Site:
    """An API on a port of its own, and the broker behind it."""

    def __init__(self, api: AdminApi, harness: BrokerHarness, log: list[tuple[str, str, dict[str, object]]]) -> None:
        self.api = api
        self.harness = harness
        self.log = log

    async def ask(self, method: str, path: str, **request: object) -> Answer:
        return await ask(self.api.port, method, path, **request)  # type: ignore[arg-type]

    async def use(self, action: Callable[[AdminClient], T], token: str | None = "right") -> T:
        """Do something with the synchronous client, beside the loop that serves it."""
        client = AdminClient(f"http://127.0.0.1:{self.api.port}", token)
        return await asyncio.to_thread(action, client)


def ports_of(harness: BrokerHarness) -> Ports:
    return Ports(broker=lambda: harness.broker, clock=lambda: harness.now, flush=harness.flush)


@asynccontextmanager
async def serving(
    *,
    limits: WebLimits | None = None,
    throttle: AttemptThrottle | None = None,
    allowed_hosts: Sequence[str] = (),
    config: Callable[[], Mapping[str, object]] | None = None,
    reload: Callable[[], Awaitable[Sequence[str]]] | None = None,
) -> AsyncIterator[Site]:
    harness = BrokerHarness()
    log: list[tuple[str, str, dict[str, object]]] = []

    def note(level: str, event: str, **fields: object) -> None:
        log.append((level, event, fields))

    api = AdminApi(
        NODE,
        Ports(
            broker=lambda: harness.broker,
            clock=lambda: harness.now,
            flush=harness.flush,
            listeners=lambda: LISTENERS,
            config=config,
            reload=reload,
            log=note,
            wall_clock=lambda: WALL_MS + harness.now - START_MS,
        ),
        lambda token: token == "right",
        limits=limits,
        throttle=throttle,
        allowed_hosts=allowed_hosts,
    )
    await api.start("127.0.0.1", 0)
    api.mark_ready()
    try:
        yield Site(api, harness, log)
    finally:
        await api.stop()


# --- everything through the client ---


def test_the_client_reaches_every_operation(run: Run) -> None:
    async def reload() -> Sequence[str]:
        return ["passwords", "acl"]

    def tour(client: AdminClient) -> None:
        assert client.is_live()
        assert client.is_ready()
        assert client.node().listeners == list(LISTENERS)
        assert client.stats().gauges["clients"] == 2
        assert client.config() == {"mqtt": {"sessions_max": 7}}
        assert client.reload().reloaded == ["passwords", "acl"]
        assert client.openapi()["info"]["version"] == "1.2.3"
        assert "flockmq_clients 2.0" in client.metrics()
        assert [one.client_id for one in client.connections()] == ["c1", "c2"]
        assert [one.client_id for one in client.connections(client_id_prefix="c2", username="u", peer="192.0.2.1")] == [
            "c2"
        ]
        assert client.connection("c1").protocol_version == "5.0"
        assert [one.client_id for one in client.sessions(connected=True)] == ["c1", "c2"]
        assert client.session("c2").subscriptions == 1
        assert [one.filter for one in client.session_subscriptions("c2")] == ["a/+"]
        assert [one.client_id for one in client.subscriptions(match="a/b")] == ["c2"]
        assert [one.client_id for one in client.subscriptions(topic_filter="a/+")] == ["c2"]
        assert client.publish("a/b", "hello", qos=1, retain=True) == model.PublishResult(matched=1, retained=True)
        assert [one.topic for one in client.retained(topic_filter="a/#")] == ["a/b"]
        assert client.retained_message("a/b").payload == "hello"
        client.delete_retained("a/b")
        assert list(client.retained()) == []
        client.kick("c1")
        client.delete_session("c2")
        assert list(client.connections()) == []
        assert client.ban("client", "c1", duration_s=60, reason="noise").kicked == 0
        assert [(one.kind, one.value) for one in client.bans(kind="client")] == [("client", "c1")]
        client.unban("client", "c1")
        assert list(client.bans()) == []

    async def scenario() -> None:
        async with serving(reload=reload, config=lambda: {"mqtt": {"sessions_max": 7}}) as site:
            first = site.harness.client("c1")
            site.harness.client("c2", username="u", peer="192.0.2.1").subscribe(b"a/+", qos=1)
            await site.use(tour)
            assert first.expect(Disconnect).reason == reasons.ADMINISTRATIVE_ACTION
            assert [fields["operation"] for _, event, fields in site.log if event == "admin_action"] == [
                "reload", "publish", "deleteRetained", "kickConnection", "deleteSession", "addBan", "removeBan",
            ]  # fmt: skip

    run(scenario())


def test_any_name_goes_through_the_path(run: Run) -> None:
    def visit(client: AdminClient) -> None:
        for name in STRANGE:
            assert client.session(name).client_id == name
            assert [one.filter for one in client.session_subscriptions(name)] == ["t"]
            topic = name.replace("#", "x").replace("+", "y")
            client.publish(topic, name, retain=True)
            assert client.retained_message(topic).payload == name
            client.delete_retained(topic)
            client.ban("username", name)
            client.unban("username", name)
            client.delete_session(name)

    async def scenario() -> None:
        async with serving() as site:
            for name in STRANGE:
                site.harness.client(name).subscribe(b"t")
            await site.use(visit)
            assert site.harness.broker.sessions == {}

    run(scenario())


def test_a_long_listing_comes_whole_and_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            for number in range(2_300):
                site.harness.client(f"c{number}")
            found = await site.use(lambda client: [one.client_id for one in client.sessions()])
            assert found == [f"c{number}" for number in range(2_300)]

    run(scenario())


def test_clients_that_come_and_go_during_a_listing_do_no_harm(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            clients = [site.harness.client(f"c{number}") for number in range(1_500)]
            first = (await site.ask("GET", "/api/v1/connections?limit=1000")).json
            for client in clients[900:1_200]:
                client.disconnect()
            site.harness.client("late")
            second = (await site.ask("GET", f"/api/v1/connections?limit=1000&after={first['next']}")).json
            listed = [one["client_id"] for one in first["items"] + second["items"]]
            assert listed == [f"c{number}" for number in [*range(1_000), *range(1_200, 1_500)]]
            assert second["next"] is None

    run(scenario())


def test_the_client_says_what_is_wrong(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            with pytest.raises(ApiError) as missing:
                await site.use(lambda client: client.kick("nobody"))
            assert (missing.value.status, missing.value.code) == (404, "not_found")
            for token in ("wrong", None):
                with pytest.raises(ApiError) as refused:
                    await site.use(lambda client: client.node(), token)
                assert refused.value.code == "unauthorized"
                assert "flockmq login" in str(refused.value)
            port = site.api.port
        with pytest.raises(UnreachableError, match=f"No broker answers at http://127.0.0.1:{port}"):
            await asyncio.to_thread(AdminClient(f"http://127.0.0.1:{port}").node)

    run(scenario())


# --- who may ask ---


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: str(operation.name))
def test_only_what_is_described_as_open_answers_without_a_token(run: Run, operation: Operation) -> None:
    async def scenario() -> None:
        path = operation.path.replace("{", "").replace("}", "")
        async with serving() as site:
            for token in (None, "wrong"):
                answer = await site.ask(operation.method, path, token=token)
                is_checked = operation.secured or (operation.token_tells_more and token is not None)
                assert (answer.status == 401) == is_checked
            if operation.secured:
                assert answer.code == "unauthorized"
                assert answer.headers["www-authenticate"].startswith("Bearer")

    run(scenario())


def test_guessing_is_slowed_down_and_logged(run: Run) -> None:
    async def scenario() -> None:
        async with serving(throttle=AttemptThrottle(burst=2, refill_ms=5_000)) as site:
            for _ in range(2):
                assert (await site.ask("GET", "/api/v1/node", token="wrong")).status == 401
            answer = await site.ask("GET", "/api/v1/node", token="wrong")
            assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "too_many_attempts", "5")
            assert (await site.ask("GET", "/health/live", token=None)).status == 200
            assert (await site.ask("GET", "/api/v1/node")).status == 200, "the right token is always served"
            site.harness.advance(5_000)
            assert (await site.ask("GET", "/api/v1/node", token="wrong")).status == 401
            assert [event for _, event, _ in site.log] == ["admin_wrong_token"] * 3
            assert "flockmq_admin_token_failures_total 4.0" in (await site.ask("GET", "/metrics")).body.decode()

    run(scenario())


@pytest.mark.parametrize("path", ["/api/v1/node", "/api/v1/openapi.json", "/metrics", "/health/live", "/nothing"])
def test_a_foreign_host_is_refused_everywhere(run: Run, path: str) -> None:
    async def scenario() -> None:
        async with serving() as site:
            answer = await site.ask("GET", path, headers={"Host": "evil.example"})
            assert (answer.status, answer.code) == (421, "wrong_host")
            without = f"GET {path} HTTP/1.0\r\nAuthorization: Bearer right\r\n\r\n"
            assert parse(await exchange(site.api.port, without.encode())).status in {400, 421}
            assert (await site.ask("GET", "/health/live", headers={"Host": "localhost"})).status == 200

    run(scenario())


def test_an_allowed_host_is_let_through(run: Run) -> None:
    async def scenario() -> None:
        async with serving(allowed_hosts=["Mqtt.example"]) as site:
            assert (await site.ask("GET", "/health/live", headers={"Host": "mqtt.example:443"})).status == 200

    run(scenario())


def test_no_other_origin_is_invited(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "DELETE"}
            answers = [
                await site.ask("GET", "/api/v1/node", headers=asked),
                await site.ask("OPTIONS", "/api/v1/sessions/c", headers=asked),
                await site.ask("GET", "/api/v1/docs", token=None, headers=asked),
            ]
            assert [answer.status for answer in answers] == [200, 405, 200]
            for answer in answers:
                assert not any(name.startswith("access-control") for name in answer.headers)

    run(scenario())


@pytest.mark.parametrize("path", ["/api/v1/node", "/api/v1/docs", "/metrics", "/nothing", "/api/v1/sessions/x"])
def test_every_answer_carries_the_security_headers(run: Run, path: str) -> None:
    async def scenario() -> None:
        async with serving() as site:
            headers = (await site.ask("GET", path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["cache-control"] == "no-store"
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert headers["server"] == "flockmq"

    run(scenario())


# --- one error shape ---


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/", None, 404, "no_such_path"),
        ("GET", "/api/v1/nothing", None, 404, "no_such_path"),
        ("PATCH", "/api/v1/node", None, 405, "method_not_allowed"),
        ("GET", "/api/v1/sessions?limit=0", None, 400, "invalid_parameter"),
        ("GET", "/api/v1/sessions?limits=5", None, 400, "invalid_parameter"),
        ("GET", "/api/v1/node?x=1", None, 400, "invalid_parameter"),
        ("GET", "/api/v1/sessions?after=x.1", None, 410, "cursor_expired"),
        ("GET", "/api/v1/sessions/%ff", None, 400, "bad_request"),
        ("GET", "/api/v1/subscriptions?match=a/%23", None, 400, "invalid_parameter"),
        ("GET", "/api/v1/connections/nobody", None, 404, "not_found"),
        ("POST", "/api/v1/publish", {}, 400, "invalid_body"),
        ("POST", "/api/v1/publish", b"{", 400, "invalid_body"),
        ("POST", "/api/v1/publish", None, 415, "unsupported_media_type"),
        ("POST", "/api/v1/publish", {"topic": "a/#"}, 422, "refused"),
        ("POST", "/api/v1/publish", b"x" * 5_000, 413, "body_too_large"),
        ("POST", "/api/v1/nothing", b"x" * 5_000, 404, "no_such_path"),
        ("POST", "/api/v1/bans", {"kind": "address", "value": "x"}, 400, "invalid_body"),
        ("POST", "/api/v1/reload", None, 503, "unavailable"),
        ("GET", "/api/v1/config", None, 503, "unavailable"),
    ],
)
def test_refusals_have_their_status_and_the_one_shape(
    run: Run, method: str, path: str, body: object, status: int, code: str
) -> None:
    async def scenario() -> None:
        async with serving(limits=WebLimits(body_bytes_max=4_000)) as site:
            answer = await site.ask(method, path, body=body)
            assert (answer.status, answer.code) == (status, code)

    run(scenario())


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET /api/v1/node HTTP/9.9\r\n\r\n",
        b"GET /api/v1/node HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET /api/v1/node HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET http://127.0.0.1/api/v1/node HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"GET /api/v1/node HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil\r\nConnection: close\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: a\r\n" % number for number in range(500)) + b"\r\n",
    ],
)
def test_what_is_not_http_is_told_so_in_the_same_shape(run: Run, request_: bytes) -> None:
    async def scenario() -> None:
        async with serving() as site:
            answer = parse(await exchange(site.api.port, request_))
            assert (answer.status, answer.code) == (400, "bad_request")

    run(scenario())


def test_a_mistake_of_ours_is_500_logged_and_told_without_details(run: Run) -> None:
    def config() -> Mapping[str, object]:
        raise RuntimeError("secret detail")

    async def scenario() -> None:
        async with serving(config=config) as site:
            answer = await site.ask("GET", "/api/v1/config")
            assert (answer.status, answer.code) == (500, "internal")
            assert b"secret" not in answer.body
            [(level, event, fields)] = site.log
            assert (level, event, fields["error"]) == ("error", "admin_error", "RuntimeError('secret detail')")
            assert (await site.ask("GET", "/api/v1/node")).status == 200

    run(scenario())


def test_an_operation_that_hangs_is_given_up(run: Run) -> None:
    async def reload() -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async def scenario() -> None:
        async with serving(reload=reload, limits=WebLimits(request_timeout_s=0.05)) as site:
            answer = await site.ask("POST", "/api/v1/reload")
            assert (answer.status, answer.code) == (504, "took_too_long")

    run(scenario())


# --- bounds ---


def chunked(parts: Iterator[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_a_body_without_announced_length_is_bounded_too(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=WebLimits(body_bytes_max=10_000)) as site:
            head = (
                f"POST /api/v1/publish HTTP/1.1\r\nHost: 127.0.0.1:{site.api.port}\r\nAuthorization: Bearer right\r\n"
                "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            ).encode()
            answer = parse(await exchange(site.api.port, head + chunked(b"x" * 1_000 for _ in range(50))))
            assert (answer.status, answer.code) == (413, "body_too_large")

    run(scenario())


def test_an_announced_body_beyond_the_limit_is_refused_before_it_comes(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            headers = {"Content-Type": "application/json", "Content-Length": str(10**15)}
            answer = await site.ask("POST", "/api/v1/publish", headers=headers)
            assert (answer.status, answer.code) == (413, "body_too_large")

    run(scenario())


def test_a_body_that_does_not_come_is_not_waited_for(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=WebLimits(body_timeout_s=0.05)) as site:
            headers = {"Content-Type": "application/json", "Content-Length": "100"}
            answer = await site.ask("POST", "/api/v1/publish", headers=headers)
            assert (answer.status, answer.code) == (408, "timeout")

    run(scenario())


@pytest.mark.parametrize("begun", [b"", b"GET /health/live HT", b"GET /health/live HTTP/1.1\r\nHost: loc"])
def test_headers_that_do_not_come_are_not_waited_for(run: Run, begun: bytes) -> None:
    async def scenario() -> None:
        async with serving(limits=WebLimits(headers_timeout_s=0.05)) as site:
            with contextlib.suppress(ConnectionResetError):
                assert await exchange(site.api.port, begun) == b""
            await until(lambda: site.api.open_connections == 0)

    run(scenario())


def test_a_connection_that_says_no_more_is_closed(run: Run) -> None:
    async def scenario() -> None:
        limits = WebLimits(idle_timeout_s=0.05)
        async with serving(limits=limits) as site, connected(site.api.port) as (reader, writer):
            writer.write(LIVE + LIVE[:20])
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
            await reader.read()

    run(scenario())


async def is_served(caller: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> bool:
    """Whether a connection gets an answer; False when it was closed."""
    reader, writer = caller
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True


@pytest.mark.parametrize("limits", [{"connections_max": 2}, {"strangers_per_address_max": 2}])
def test_the_oldest_stranger_gives_way_to_a_newcomer(run: Run, limits: dict[str, int]) -> None:
    async def scenario() -> None:
        async with serving(limits=WebLimits(**limits)) as site:
            port = site.api.port
            async with connected(port) as first, connected(port) as second:
                assert await is_served(first, LIVE)
                assert await is_served(second, LIVE)
                async with connected(port) as third:
                    assert await is_served(third, LIVE)
                    assert not await is_served(first, LIVE)
                    assert await is_served(second, LIVE)
            await until(lambda: site.api.open_connections == 0)

    run(scenario())


def test_callers_with_a_token_do_not_give_way(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=WebLimits(connections_max=2)) as site:
            port = site.api.port
            async with connected(port) as first, connected(port) as second:
                assert await is_served(first, NODE_REQUEST)
                assert await is_served(second, NODE_REQUEST)
                async with connected(port) as third:
                    assert not await is_served(third, NODE_REQUEST)
                assert await is_served(first, LIVE)
            await until(lambda: site.api.open_connections == 0)
            assert (await site.ask("GET", "/health/live")).status == 200

    run(scenario())


def test_a_caller_who_does_not_read_is_cut_off(run: Run) -> None:
    async def scenario() -> None:
        async with serving(limits=WebLimits(answer_timeout_s=0.1)) as site:
            for number in range(1_000):
                site.harness.client(f"{number}-{'x' * 8_000}")
            loop = asyncio.get_running_loop()
            head = "GET /api/v1/sessions?limit=1000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n\r\n"
            with closing(socket.socket()) as plain:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                plain.setblocking(False)
                await loop.sock_connect(plain, ("127.0.0.1", site.api.port))
                await loop.sock_sendall(plain, head.encode())
                assert await loop.sock_recv(plain, 12) == b"HTTP/1.1 200"
                await until(lambda: site.api.open_connections == 0)

    run(scenario())


def test_a_caller_who_waits_for_continue_is_told_to(run: Run) -> None:
    async def scenario() -> None:
        body = b'{"topic": "a"}'
        async with serving() as site, connected(site.api.port) as (reader, writer):
            writer.write(
                f"POST /api/v1/publish HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert parse(await reader.read()).json == {
                "matched": 0,
                "retained": False,
                "durable_topic": None,
                "shard": None,
                "offset": None,
            }

    run(scenario())


def test_a_compressed_body_is_refused_unopened(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            answer = await site.ask("POST", "/api/v1/publish", body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
            assert (answer.status, answer.code) == (415, "unsupported_media_type")

    run(scenario())


def test_json_must_be_called_json(run: Run) -> None:
    """What a form of a foreign page can send without asking is not taken."""

    async def scenario() -> None:
        async with serving() as site:
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                answer = await site.ask("POST", "/api/v1/publish", body={"topic": "a"}, headers={"Content-Type": kind})
                assert (answer.status, answer.code) == (415, "unsupported_media_type")

    run(scenario())


# --- life and description ---


def test_readiness_and_changes_follow_the_life_of_the_node(run: Run) -> None:
    async def scenario() -> None:
        harness = BrokerHarness()
        api = AdminApi(NODE, ports_of(harness), lambda token: token == "right")
        await api.start("127.0.0.1", 0)
        states = []
        for change in (list, api.mark_ready, api.mark_stopping, api.mark_ready):
            change()
            ready = await ask(api.port, "GET", "/health/ready", token=None)
            live = await ask(api.port, "GET", "/health/live", token=None)
            published = await ask(api.port, "POST", "/api/v1/publish", body={"topic": "a"})
            listed = await ask(api.port, "GET", "/api/v1/sessions")
            states.append((api.state, ready.status, live.status, published.status, listed.status))
        assert states == [
            ("starting", 503, 200, 200, 200),
            ("ready", 200, 200, 200, 200),
            ("stopping", 503, 200, 503, 200),
            ("stopping", 503, 200, 503, 200),
        ]
        port = api.port
        await api.stop()
        await api.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    run(scenario())


def test_stopping_does_not_wait_for_idle_callers(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site, connected(site.api.port) as (reader, writer):
            writer.write(f"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1:{site.api.port}\r\n\r\n".encode())
            await reader.readuntil(b"}")
            await site.api.stop()
            assert await reader.read() == b""

    run(scenario())


def test_a_port_that_is_taken_is_told(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            harness = BrokerHarness()
            other = AdminApi(NODE, ports_of(harness), lambda token: False)
            with pytest.raises(ConfigError, match="--api-port"):
                await other.start("127.0.0.1", site.api.port)

    run(scenario())


def test_one_api_on_several_addresses(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            await site.api.start("127.0.0.1", 0)
            assert len({port for _, port in site.api.addresses}) == 2
            for _, port in site.api.addresses:
                assert (await ask(port, "GET", "/api/v1/node")).status == 200

    run(scenario())


def test_head_has_no_body(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            answer = await site.ask("HEAD", "/health/live")
            assert (answer.status, answer.body) == (200, b"")

    run(scenario())


def test_the_description_is_served_as_json_and_as_a_page(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as site:
            described = await site.ask("GET", "/api/v1/openapi.json", token=None)
            assert len(described.json["paths"]) == len({operation.path for operation in OPERATIONS})
            page = await site.ask("GET", "/api/v1/docs", token=None)
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert "style-src 'sha256-" in page.headers["content-security-policy"]
            assert b"listConnections" in page.body

    run(scenario())


def test_answers_are_what_the_model_says(run: Run) -> None:
    """Every field that the description promises is there, and none besides."""

    async def scenario() -> None:
        async with serving() as site:
            site.harness.client("c").subscribe(b"a")
            site.harness.broker.bans.add("username", "u", 0, "", 0)
            site.harness.client("p").publish(b"a", b"x", retain=True)
            paths: dict[str, Any] = {
                "connections": model.NodesPage[model.Connection],
                "sessions": model.NodesPage[model.Session],
                "subscriptions": model.NodesPage[model.Subscription],
                "retained": model.Page[model.Retained],
                "bans": model.Page[model.Ban],
                "connections/c": model.Connection,
                "sessions/c": model.Session,
                "retained/a": model.RetainedMessage,
                "node": model.Node,
                "stats": model.Stats,
            }
            for path, shape in paths.items():
                answer = await site.ask("GET", f"/api/v1/{path}")
                decoded = msgspec.json.decode(answer.body, type=shape)
                assert msgspec.json.decode(msgspec.json.encode(decoded)) == answer.json

    run(scenario())


# --- with real listeners ---


def test_a_client_on_a_socket_is_kicked_and_reached_by_a_publish(run: Run) -> None:
    async def scenario() -> None:
        async with running() as node:
            listener = await node.listen()
            api = AdminApi(
                NODE,
                Ports(broker=lambda: node.broker, clock=now_ms, flush=node.runner.flush_soon),
                lambda token: token == "right",
            )
            await api.start("127.0.0.1", 0)
            client = await Client.open(listener)
            await client.connect("c", version=5)
            answer = await ask(api.port, "GET", "/api/v1/connections/c")
            assert answer.json["protocol_version"] == "5.0"
            assert (await ask(api.port, "DELETE", "/api/v1/connections/" + quote("c"))).status == 204
            rest = await client.reader.read()
            assert rest[0] == 0xE0
            assert rest[2] == reasons.ADMINISTRATIVE_ACTION
            client.writer.close()
            await api.stop()

    run(scenario())
