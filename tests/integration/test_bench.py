"""The load generator against the real broker on real sockets: every message it sent is counted at the other end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flockmq.cli import bench
from flockmq.client.load.hold import Crowd, connect_rate, hold
from flockmq.client.load.plan import Load, Target
from flockmq.client.load.run import Setting, run
from flockmq.errors import FlockError
from flockmq.node.ports import AuthRequest, OpenGate, Refuse, Verdict
from flockmq.testing.ports import free_port
from integration.support.certificates import Authority
from integration.support.node import Node, running, until

LOAD = Load(messages=300, publishers=2, subscribers=3, topics=2, idle_s=30)
KINDS = ("tcp", "tls", "ws", "wss")


class PasswordGate(OpenGate):
    """Lets in who says the password."""

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        if request.username is not None and request.password != b"open sesame":
            return Refuse(0x86, "wrong")
        return super().authenticate(request)


class Site:
    """A broker in a thread of its own, with a listener of each kind: the generator may block this one."""

    def __init__(self, folder: Path) -> None:
        self._authority = Authority(folder)
        self._ready: Future[None] = Future()
        self._ports: dict[str, int] = {}
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._ready.result(30)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        try:
            async with running(PasswordGate()) as node:
                self.node = node
                for kind in KINDS:
                    tls = self._authority.server_context() if kind in {"tls", "wss"} else None
                    listener = await node.listen(name=kind, kind=kind, tls=tls)
                    self._ports[kind] = listener.addresses[0][1]
                self._ready.set_result(None)
                await self._over.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    def target(self, kind: str = "tcp", **more: str) -> Target:
        return Target(port=self._ports[kind], transport=kind, ca_file=str(self._authority.file), **more)  # type: ignore[arg-type]

    def wait(self, condition: Callable[[Node], bool]) -> None:
        """Come back when the condition holds in the broker's thread."""
        asyncio.run_coroutine_threadsafe(until(lambda: condition(self.node)), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_nothing_is_lost_over_any_transport(site: Site, kind: str, qos: int) -> None:
    outcome = run(site.target(kind), replace(LOAD, qos=qos, prefix=f"{kind}{qos}"))
    assert outcome.sent == 600
    assert outcome.received == outcome.expected == 900
    assert (outcome.lost, outcome.refused) == (0, 0)


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("five", replace(LOAD, version=5, user_properties=2)),
        ("aliases", replace(LOAD, version=5, qos=1, topic_alias=True, topics=6)),
        ("mixed", replace(LOAD, version=5, user_properties=2, subscriber_version=4, qos=1)),
        ("upwards", replace(LOAD, version=4, subscriber_version=5, qos=1)),
        ("wild", replace(LOAD, filter="wild")),
        ("share", replace(LOAD, filter="share", qos=1)),
        ("fresh", replace(LOAD, filter="plus", fresh_names=True, subscriptions=50)),
        ("retained", replace(LOAD, retain=True)),
        ("many", replace(LOAD, topics=40, qos=2, window=7)),
    ],
)
def test_nothing_is_lost_whatever_the_messages_are_like(site: Site, name: str, load: Load) -> None:
    outcome = run(site.target(), replace(load, prefix=name))
    assert outcome.received == outcome.expected > 0


def test_publishing_by_time_ends_and_all_of_it_arrives(site: Site) -> None:
    outcome = run(site.target(), Load(seconds=0.2, qos=1))
    assert outcome.sent > 0
    assert outcome.received == outcome.sent


def test_a_steady_rate_measures_every_message(site: Site) -> None:
    outcome = run(site.target("ws"), Load(messages=50, rate=2_000, qos=1, version=5))
    assert outcome.received == 50
    assert outcome.latency_us_p50 is not None
    assert outcome.latency_us_max is not None
    assert 0 < outcome.latency_us_p50 <= outcome.latency_us_max


def test_several_processes_share_the_work(site: Site) -> None:
    outcome = run(site.target(), replace(LOAD, publishers=4, prefix="shared-out"), Setting(processes=2))
    assert outcome.sent == 1_200
    assert outcome.received == outcome.expected


def test_a_worker_that_can_not_connect_says_so() -> None:
    with pytest.raises(FlockError, match="no program listens"):
        run(Target(port=free_port()), LOAD, Setting(processes=2))


def test_connections_are_held_and_let_go(site: Site) -> None:
    outcome = hold(site.target(), Crowd(connections=150, seconds=0, subscribe=True, version=5))
    assert (outcome.connections, outcome.dropped) == (150, 0)
    site.wait(lambda node: not node.broker.connections)


def test_connecting_and_leaving(site: Site) -> None:
    outcome = connect_rate(site.target("wss"), Crowd(connections=120))
    assert outcome.connections == 120
    site.wait(lambda node: not node.broker.connections)


def test_nobody_at_home_is_one_sentence() -> None:
    with pytest.raises(FlockError, match="no program listens"):
        run(Target(port=free_port()), LOAD)
    with pytest.raises(FlockError, match="No connection"):
        run(Target(port=free_port(), transport="tls"), LOAD)


def test_a_certificate_nobody_vouches_for_is_refused(site: Site) -> None:
    with pytest.raises(FlockError, match="--ca-file"):
        run(replace(site.target("tls"), ca_file=""), LOAD)
    assert run(replace(site.target("tls"), ca_file="", insecure=True), LOAD).lost == 0


def test_a_wrong_password_is_told(site: Site) -> None:
    with pytest.raises(FlockError, match="Bad User Name"):
        run(site.target(username="me", password="guess"), replace(LOAD, version=5))
    assert run(site.target(username="me", password="open sesame"), LOAD).lost == 0


def test_a_port_that_speaks_no_websocket_is_told(site: Site) -> None:
    wrong = replace(site.target("ws"), path="/elsewhere")
    with pytest.raises(FlockError, match="404"):
        run(wrong, LOAD)


def test_the_command_prints_json_with_the_figures(site: Site) -> None:
    app = typer.Typer()
    bench.register(app)
    port = str(site.target().port)
    result = CliRunner().invoke(app, ["bench", "roundtrip", "--port", port, "-n", "100", "-q", "1", "--json"])
    assert result.exit_code == 0
    figures = json.loads(result.output)
    assert (figures["sent"], figures["received"], figures["lost"]) == (100, 100, 0)
    held = CliRunner().invoke(app, ["bench", "hold", "--port", port, "-n", "10", "-d", "0"])
    assert held.exit_code == 0
    assert "connect rate" in held.output
