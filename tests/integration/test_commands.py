"""Every command against one running broker, as people and programs use it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flockmq.cli.main import run
from flockmq.client.mqtt import MqttClient, MqttError, Options
from flockmq.mqtt.packets import SubscribeEntry
from integration.support.process import FREE_PORTS, BrokerProcess, environment


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), "--allow-anonymous", *FREE_PORTS) as process:
        process.until("ready")
        yield process


class Commands:
    """Runs commands in this process, as the user who started the broker."""

    def __init__(self, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self.port = str(broker.port())
        self._capsys = capsys

    def text(self, *arguments: str) -> str:
        """What a command prints."""
        assert run(list(arguments)) == 0, self._capsys.readouterr().err
        return self._capsys.readouterr().out

    def json(self, *arguments: str) -> Any:
        """What a command prints for programs."""
        return json.loads(self.text(*arguments, "--json"))

    def fails(self, *arguments: str) -> str:
        """The sentence that a command fails with."""
        assert run(list(arguments)) == 1
        printed = self._capsys.readouterr()
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1
        return printed.err


@pytest.fixture
def command(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    for name, value in environment(broker.folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FLOCKMQ_SERVER", broker.server)
    monkeypatch.delenv("FLOCKMQ_CREDENTIALS", raising=False)
    monkeypatch.delenv("FLOCKMQ_TOKEN", raising=False)
    return Commands(broker, capsys)


@asynccontextmanager
async def connected(broker: BrokerProcess, client_id: str, *filters: str) -> AsyncIterator[MqttClient]:
    async with await MqttClient.connect(Options(port=broker.port(), client_id=client_id)) as client:
        if filters:
            await client.subscribe(*[SubscribeEntry(one.encode(), 1) for one in filters])
        yield client


def test_status(command: Commands) -> None:
    found = command.json("status")
    assert (found["node"]["state"], found["node"]["name"]) == ("ready", "flockmq-0@127.0.0.1")
    assert {"tcp:default", "ws:default"} == {one["name"] for one in found["node"]["listeners"]}
    assert "listener tcp:default  " in command.text("status")


async def test_clients(broker: BrokerProcess, command: Commands) -> None:
    async with connected(broker, "commands-client", "c/#") as client:
        listed = await asyncio.to_thread(command.json, "client", "list", "--prefix", "commands-")
        assert [one["client_id"] for one in listed] == ["commands-client"]
        assert "commands-client" in await asyncio.to_thread(command.text, "client", "list")
        shown = await asyncio.to_thread(command.json, "client", "show", "commands-client")
        assert (shown["protocol_version"], shown["subscriptions"]) == ("5.0", 1)
        assert "5.0" in await asyncio.to_thread(command.text, "client", "show", "commands-client")
        await asyncio.to_thread(command.json, "client", "kick", "commands-client")
        with pytest.raises(MqttError) as ended:
            await anext(client.messages())
        assert ended.value.reason_code == 0x98
    assert "commands-client" in command.fails("client", "show", "commands-client")
    assert "commands-client" in command.fails("client", "kick", "commands-client")


async def test_bans(broker: BrokerProcess, command: Commands) -> None:
    banned = command.json("client", "ban", "bad-client", "--for", "1h", "--reason", "noise")
    assert (banned["ban"]["reason"], banned["kicked"]) == ("noise", 0)
    with pytest.raises(MqttError) as refused:
        await MqttClient.connect(Options(port=broker.port(), client_id="bad-client"))
    assert refused.value.reason_code == 0x8A
    assert [(one["kind"], one["value"]) for one in command.json("client", "bans")] == [("client", "bad-client")]
    assert "noise" in command.text("client", "bans")
    assert "may connect again" in command.text("client", "unban", "bad-client")
    assert "bad-client" in command.fails("client", "unban", "bad-client")
    assert "There are no bans" in command.text("client", "bans")
    async with connected(broker, "bad-client"):
        pass


async def test_sessions_and_routes(broker: BrokerProcess, command: Commands) -> None:
    async with connected(broker, "route-client", "routes/+/x", "$share/g/routes/#"):
        sessions = await asyncio.to_thread(command.json, "session", "list", "--prefix", "route-", "--connected")
        assert [one["client_id"] for one in sessions] == ["route-client"]
        gone = await asyncio.to_thread(command.json, "session", "list", "--prefix", "route-", "--disconnected")
        assert gone == []
        shown = await asyncio.to_thread(command.json, "session", "show", "route-client")
        assert {one["filter"] for one in shown["subscriptions"]} == {"routes/+/x", "$share/g/routes/#"}
        assert "routes/+/x" in await asyncio.to_thread(command.text, "session", "show", "route-client")
        routes = {one["filter"]: one for one in await asyncio.to_thread(command.json, "route", "list")}
        node = "flockmq-0@127.0.0.1"
        assert routes["routes/+/x"] == {"filter": "routes/+/x", "share_group": None, "nodes": [node]}
        assert routes["routes/#"] == {"filter": "routes/#", "share_group": "g", "nodes": [node]}
        trace = await asyncio.to_thread(command.text, "explain", "routes/a/x", "--from", "me")
        assert trace.splitlines()[0] == f"me->{node}: Publish[routes/a/x]"
        assert f"{node}-->route-client: Deliver[routes/+/x]" in trace
        reached = await asyncio.to_thread(command.json, "route", "show", "routes/a/x")
        assert {one["filter"] for one in reached} == {"routes/+/x", "$share/g/routes/#"}
        nobody = await asyncio.to_thread(command.text, "route", "show", "elsewhere")
        assert nobody == "A message to that topic would reach no client.\n"
        listed = await asyncio.to_thread(command.json, "subscription", "list", "--filter", "routes/+/x")
        assert [one["client_id"] for one in listed] == ["route-client"]
        assert "routes/+/x" in await asyncio.to_thread(command.text, "route", "list")
        await asyncio.to_thread(command.json, "session", "delete", "route-client")
    assert "route-client" in command.fails("session", "show", "route-client")


def test_retained(command: Commands) -> None:
    assert command.json("pub", "keep/a b", "hello", "--retain", "--qos", "1", "--port", command.port)["published"] == 1
    assert [one["topic"] for one in command.json("retained", "list", "--filter", "keep/#")] == ["keep/a b"]
    assert "keep/a b" in command.text("retained", "list")
    assert command.json("retained", "show", "keep/a b")["payload"] == "hello"
    assert "no retained message" in command.text("retained", "delete", "keep/a b")
    assert "keep/a b" in command.fails("retained", "delete", "keep/a b")


def flockmq_process(broker: BrokerProcess, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "flockmq", *arguments],
        env=environment(broker.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def until_subscribed(command: Commands, topic: str) -> None:
    while not command.json("route", "show", topic):
        pass


def test_pub_and_sub(broker: BrokerProcess, command: Commands, tmp_path: Path) -> None:
    listening = flockmq_process(broker, "sub", "ps/#", "--port", command.port, "--qos", "2", "--count", "5", "--json")
    until_subscribed(command, "ps/x")
    properties = ("-U", "k=1", "-U", "k=2", "--content-type", "text/plain", "--expiry", "1m", "--text")
    command.text("pub", "ps/a", "one", "--qos", "2", "--port", command.port, *properties)
    command.text("pub", "ps/b", "two", "--mqtt", "3.1.1", "--port", command.port)
    (tmp_path / "blob").write_bytes(b"\xff\x00")
    command.text("pub", "ps/c", "--file", str(tmp_path / "blob"), "--port", command.port)
    lines = flockmq_process(broker, "pub", "ps/d", "--lines", "--port", command.port, stdin=subprocess.PIPE)
    assert lines.communicate(b"four\nfive\n", timeout=60)[1] == b""
    printed, problems = listening.communicate(timeout=60)
    assert (problems, listening.returncode, lines.returncode) == (b"", 0, 0)
    one, two, three, four, five = [json.loads(line) for line in printed.splitlines()]
    assert (one["payload"], one["qos"], one["properties"]["user"]) == ("one", 2, [["k", "1"], ["k", "2"]])
    assert (one["properties"]["content_type"], one["properties"]["payload_format"]) == ("text/plain", 1)
    assert (two["payload"], two["qos"]) == ("two", 0)
    assert three["payload_base64"] == "/wA="
    assert (four["payload"], five["payload"]) == ("four", "five")


@pytest.mark.parametrize(
    ("output", "printed"),
    [("line", b"f/t a\\x1bb\xc3\xa9\n"), ("payload", b"a\x1bb\xc3\xa9\n"), ("hex", b"f/t 61 1b 62 c3 a9\n")],
)
def test_formats(broker: BrokerProcess, command: Commands, output: str, printed: bytes) -> None:
    command.text("pub", "f/t", "a\x1bbé", "--retain", "--qos", "1", "--port", command.port)
    listening = flockmq_process(broker, "sub", "f/t", "--count", "1", "--format", output, "--port", command.port)
    assert listening.communicate(timeout=60) == (printed, b"")
    command.text("retained", "delete", "f/t")


def test_sub_that_waits_in_vain_fails(command: Commands) -> None:
    flags = ("--count", "1", "--timeout", "0.1", "--port", command.port)
    assert command.fails("sub", "never/#", *flags) == "flockmq: Only 0 of 1 messages came within 0.1 s.\n"


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_refused_qos_0_message_is_told(command: Commands, version: str) -> None:
    too_deep = "a/" * 200
    said = command.fails("pub", too_deep, "x", "--mqtt", version, "--port", command.port)
    assert ("more than 128 levels" if version == "5" else "closed the connection") in said


def test_a_refused_subscription_is_told(command: Commands) -> None:
    assert "Topic Filter invalid" in command.fails("sub", "a/#/b", "--port", command.port)


def test_a_session_is_kept_for_the_next_time(broker: BrokerProcess, command: Commands) -> None:
    keep = ("sub", "ks/t", "--client-id", "keeper", "--session-expiry", "1h", "--qos", "1", "--port", command.port)
    command.text(*keep, "--timeout", "0.1")
    command.text("pub", "ks/t", "for later", "--qos", "1", "--port", command.port)
    assert json.loads(command.text(*keep, "--count", "1", "--json"))["payload"] == "for later"
    command.text("session", "delete", "keeper")


def test_a_message_that_nobody_wants_is_told_and_counted(command: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.json("pub", "nobody/here", "x", "-q", "1", "--port", command.port)["without_subscribers"] == 1


def test_a_stranger_needs_a_token_and_login_brings_it(
    broker: BrokerProcess, command: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from flockmq.security import credentials

    token = credentials.load(broker.server)
    assert token is not None
    monkeypatch.setenv("FLOCKMQ_CREDENTIALS", str(tmp_path / "own.toml"))
    assert "flockmq login" in command.fails("status")
    asking = [sys.executable, "-m", "flockmq", "login", "--server", broker.server]
    own = environment(broker.folder, FLOCKMQ_CREDENTIALS=str(tmp_path / "own.toml"))
    wrong = subprocess.run(asking, input=b"wrong-token\n", env=own, capture_output=True, timeout=60, check=False)
    assert wrong.returncode == 1
    assert not (tmp_path / "own.toml").exists()
    right = subprocess.run(asking, input=f"{token}\n".encode(), env=own, capture_output=True, timeout=60, check=False)
    assert (right.returncode, right.stderr) == (0, b"")
    assert token not in right.stdout.decode()
    assert command.json("status")["node"]["state"] == "ready"


def test_ctrl_c_ends_a_subscriber_without_a_traceback(broker: BrokerProcess, command: Commands) -> None:
    import signal

    listening = flockmq_process(broker, "sub", "cc/#", "--port", command.port)
    until_subscribed(command, "cc/x")
    listening.send_signal(signal.SIGINT)
    assert listening.communicate(timeout=60) == (b"", b"")
    assert listening.returncode == 130


def test_a_reader_that_goes_away_is_no_traceback(broker: BrokerProcess, command: Commands) -> None:
    listening = flockmq_process(broker, "sub", "bp/#", "--port", command.port)
    until_subscribed(command, "bp/x")
    assert listening.stdout is not None
    listening.stdout.close()
    for _ in range(3):
        command.text("pub", "bp/x", "y", "--port", command.port)
    assert listening.stderr is not None
    assert listening.wait(60) == 1
    assert listening.stderr.read() == b""
    listening.stderr.close()
