"""A broker as a process: how it starts, from what settings, how it ends, and what it says when it can't start."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flockmq.client.mqtt import Message, MqttClient, MqttError, Options
from flockmq.mqtt.packets import SubscribeEntry, Will
from flockmq.mqtt.reasons import BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED, SERVER_SHUTTING_DOWN
from integration.support.certificates import Authority
from integration.support.process import FREE_PORTS, BrokerProcess, flockmq

OPEN = ("--allow-anonymous", *FREE_PORTS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, *OPEN) as process:
        process.until("ready")
        yield process


def options(broker: BrokerProcess, **fields: object) -> Options:
    return Options(port=broker.port(), **fields)  # type: ignore[arg-type]


async def next_message(client: MqttClient) -> Message:
    return await anext(client.messages())


# --- starting ---


def test_anonymous_clients_are_served_on_loopback_only_and_the_log_says_where(broker: BrokerProcess) -> None:
    port = broker.port()
    listening = broker.until("listening", lambda line: line["listener"] == "tcp:default")
    assert listening["addresses"][0] == f"127.0.0.1:{port}"
    assert set(listening["addresses"]) <= {f"127.0.0.1:{port}", f"[::1]:{port}"}
    ports = broker.ports()
    assert ports["pid"] == broker.process.pid
    assert {one["host"] for one in [*ports["listeners"], *ports["admin"]]} <= {"127.0.0.1", "::1"}


async def test_messages_pass(broker: BrokerProcess) -> None:
    async with (
        await MqttClient.connect(options(broker, client_id="reader")) as reader,
        await MqttClient.connect(options(broker, client_id="writer", version=4)) as writer,
    ):
        assert await reader.subscribe(SubscribeEntry(b"a/+", 2)) == [2]
        for qos in (0, 1, 2):
            await writer.publish("a/b", b"%d" % qos, qos=qos)
        got = [await next_message(reader) for _ in range(3)]
    assert [(message.topic, message.payload, message.qos) for message in got] == [
        ("a/b", b"0", 0),
        ("a/b", b"1", 1),
        ("a/b", b"2", 2),
    ]


def test_a_whole_broker_from_the_environment(tmp_path: Path) -> None:
    variables = {
        "FLOCKMQ_NODE__NAME": "n7@127.0.0.1",
        "FLOCKMQ_NODE__DATA_DIR": str(tmp_path / "own"),
        "FLOCKMQ_SECURITY__ALLOW_ANONYMOUS": "true",
        "FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND": "127.0.0.1:0",
        "FLOCKMQ_LISTENERS__TCP__SMALL__BIND": "127.0.0.1:0",
        "FLOCKMQ_LISTENERS__TCP__SMALL__LIMITS__PACKET_BYTES_MAX": "100B",
        "FLOCKMQ_LISTENERS__WS__DEFAULT__ENABLED": "false",
        "FLOCKMQ_ADMIN__BIND": "127.0.0.1:0",
        "FLOCKMQ_LOG__FORMAT": "json",
        "FLOCKMQ_LIMITS__PACKET_BYTES_MAX": "2KiB",
    }
    with BrokerProcess(tmp_path, **variables) as broker:
        assert broker.until("ready")["node"] == "n7@127.0.0.1"
        assert [one["name"] for one in broker.ports()["listeners"]] == ["tcp:default", "tcp:small"]
        assert (tmp_path / "own" / "ports.json").exists()

        async def maximum(port: int) -> int | None:
            async with await MqttClient.connect(Options(port=port)) as client:
                return client.connack.properties.maximum_packet_size

        assert asyncio.run(maximum(broker.port())) == 2048
        assert asyncio.run(maximum(broker.port("tcp:small"))) == 100


def test_a_file_below_the_environment_below_flags(tmp_path: Path) -> None:
    file = tmp_path / "flockmq.toml"
    file.write_text('[node]\nname = "file@h"\ndata_dir = "here"\n[log]\nlevel = "debug"\n')
    with BrokerProcess(
        tmp_path,
        *OPEN,
        "--config",
        str(file),
        "--name",
        "flag@h",
        FLOCKMQ_NODE__NAME="env@h",
        FLOCKMQ_LOG__LEVEL="info",
    ) as broker:
        ready = broker.until("ready")
        assert (ready["node"], ready["data_dir"]) == ("flag@h", str(tmp_path / "here"))
        effective = json.loads(broker.ask("status", "--json").stdout)
        assert effective["node"]["name"] == "flag@h"


def test_without_a_way_to_log_in_the_broker_says_so_and_refuses(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *FREE_PORTS, "--host", "127.0.0.1") as broker:
        assert "every client will be refused" in broker.until("nobody_can_log_in")["message"]
        with pytest.raises(MqttError) as refused:
            asyncio.run(MqttClient.connect(options(broker)))
        assert refused.value.reason_code == NOT_AUTHORIZED


def test_anonymous_clients_from_everywhere_are_worth_a_warning(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *OPEN, "--host", "0.0.0.0") as broker:
        assert "every client that reaches these" in broker.until("anonymous_from_everywhere")["message"]


def test_a_certificate_brings_tls_and_websockets_over_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert_file, key_file = authority.issue("broker")
    flags = ("--tls-cert", str(cert_file), "--tls-key", str(key_file), "--mqtts-port", "0", "--wss-port", "0")
    with BrokerProcess(tmp_path, *OPEN, *flags) as broker:

        async def talk() -> None:
            target = Options(port=broker.port("tls:default"), tls=authority.client_context())
            async with await MqttClient.connect(target) as client:
                await client.publish("a", b"b", qos=1)

        asyncio.run(talk())
        assert broker.port("wss:default") > 0


def test_a_client_certificate_names_its_user_and_one_with_two_names_names_nobody(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert_file, key_file = authority.issue("broker")
    flags = ("--tls-cert", str(cert_file), "--tls-key", str(key_file), "--mqtts-port", "0", *FREE_PORTS)
    ask = (f"--set=tls.ca_file={authority.file}", "--set=tls.client_certificates=required")

    async def connect(port: int, *names: str) -> None:
        context = authority.client_context()
        context.load_cert_chain(*authority.issue(*names))
        async with await MqttClient.connect(Options(port=port, tls=context)):
            pass

    with BrokerProcess(tmp_path, *flags, *ask) as broker:
        port = broker.port("tls:default")
        asyncio.run(connect(port, "alice"))
        with pytest.raises(MqttError) as refused:
            asyncio.run(connect(port, "alice", "admin"))
        assert refused.value.reason_code == NOT_AUTHORIZED
        gc.collect()  # a transport that the refused client left open is an error of this test, not of a later one
        assert "one common name" in broker.until("connect_refused")["reason"]


def test_many_listeners_and_each_that_was_asked_for_must_get_its_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--allow-anonymous", "--mqtt-port", "0", "--ws-port", str(port), "--api-port", "0")
        ended = flockmq(tmp_path, "start", *flags)
    assert ended.returncode == 1
    assert f"'ws:default' can't listen on 127.0.0.1 port {port}: another program uses it" in ended.stderr


# --- stopping ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_wills_and_a_reason(tmp_path: Path, number: int) -> None:
    async def scenario(broker: BrokerProcess) -> None:
        will = Will(b"wills/sensor", b"gone")
        sensor = await MqttClient.connect(options(broker, client_id="sensor", will=will))
        broker.process.send_signal(number)
        with pytest.raises(MqttError) as ended:
            await next_message(sensor)
        assert ended.value.reason_code == SERVER_SHUTTING_DOWN
        await sensor.disconnect()

    with BrokerProcess(tmp_path, *OPEN, "--log-level", "debug") as broker:
        broker.until("ready")
        asyncio.run(scenario(broker))
        assert broker.wait() == 0
        assert broker.until("will_published")["topic"] == "wills/sensor"
        assert [line["event"] for line in broker.log[-1:]] == ["stopped"]
        assert broker.other_lines == []
        data_dir = broker.until("ready")["data_dir"]
        assert not Path(data_dir, "ports.json").exists()


def test_a_client_that_does_not_read_its_goodbye_does_not_keep_the_broker(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port())) as client:
        client.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a")
        assert client.recv(4) == b"\x20\x02\x00\x00"
        assert broker.stop() == 0


# --- the data folder ---


def test_two_brokers_in_one_folder_are_refused_and_the_first_goes_on(broker: BrokerProcess) -> None:
    folder = broker.until("ready")["data_dir"]
    second = flockmq(broker.folder, "start", *OPEN, "--data-dir", folder)
    assert second.returncode == 1
    assert second.stderr == (
        f"flockmq: The data folder {folder} is in use by process {broker.process.pid}; "
        "stop that broker, or give this one its own --data-dir.\n"
    )
    assert broker.ask("status").returncode == 0


def test_a_node_keeps_its_id_over_a_restart_and_after_a_kill(tmp_path: Path) -> None:
    found = set()
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        with BrokerProcess(tmp_path, *OPEN) as broker:
            found.add(broker.until("ready")["node_id"])
            assert broker.ask("status").returncode == 0  # the token, too, is good for the next start and its new port
            broker.stop(number)
    assert len(found) == 1


# --- reloading ---


def test_sighup_reads_the_passwords_again(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    assert flockmq(tmp_path, "passwd", str(passwords), "ann", stdin=b"first\n").returncode == 0

    async def log_in(broker: BrokerProcess, password: bytes) -> None:
        async with await MqttClient.connect(options(broker, username="ann", password=password, timeout_s=60)):
            pass

    with BrokerProcess(tmp_path, *FREE_PORTS, "--host", "127.0.0.1", "--password-file", str(passwords)) as broker:
        asyncio.run(log_in(broker, b"first"))
        assert flockmq(tmp_path, "passwd", str(passwords), "ann", stdin=b"second\n").returncode == 0
        broker.process.send_signal(signal.SIGHUP)
        assert broker.until("reloaded")["files"] == ["passwords"]
        asyncio.run(log_in(broker, b"second"))
        with pytest.raises(MqttError) as refused:
            asyncio.run(log_in(broker, b"first"))
        assert refused.value.reason_code == BAD_USER_NAME_OR_PASSWORD
        passwords.write_text("not a password file\n")
        broker.process.send_signal(signal.SIGHUP)
        assert "Everything stays as it was" in broker.until("reload_refused")["message"]
        asyncio.run(log_in(broker, b"second"))
        assert not any("second" in json.dumps(line) for line in broker.log)


# --- what is in the way of a start ---


@pytest.mark.parametrize(
    ("file", "arguments", "code", "sentence"),
    [
        ("[limits]\npacket_byte_max = 1\n", (), 1, "did you mean limits.packet_bytes_max?"),
        ("[limits]\npacket_bytes_max = 'big'\n", (), 1, "flockmq.toml:2) can't be 'big': expected a number of bytes"),
        ("[limits]\nqueue_bytes_max = 100\n", (), 1, "is less than packet_bytes_max"),
        ("[log\n", (), 1, "is not valid TOML"),
        ("", ("--config", "/nowhere.toml"), 1, "/nowhere.toml can't be read"),
        ("", ("--set", "node.nmae=x"), 1, "did you mean node.name?"),
        ("", ("--name", "n1"), 1, "write it as name@host"),
        ("", ("--password-file", "/nowhere"), 1, "security.password_file names /nowhere, which can't be read"),
        ("", ("--tls-cert", "/etc/hostname"), 1, "has a cert_file and no key_file"),
        ("", ("--host", "192.0.2.1", *FREE_PORTS), 1, "this machine has no such address"),
        ("", ("--data-dir", "/dev/null/x"), 1, "can't be used"),
        ("", ("--mqtt-port", "65536"), 2, "see `flockmq start --help`"),
        ("", ("--mqtt-prot", "1"), 2, "see `flockmq start --help`"),
        ("", ("--set", "x"), 2, "is not KEY=VALUE"),
        ("", ("--log-level", "loud"), 2, "see `flockmq start --help`"),
    ],
)
def test_one_sentence_and_the_right_exit_code(
    tmp_path: Path, file: str, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    path = tmp_path / "flockmq.toml"
    path.write_text(file)
    ended = flockmq(tmp_path, "start", "--config", str(path), *arguments)
    problems = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert ended.returncode == code
    assert len(problems) == 1
    assert sentence in problems[0]
    assert "Traceback" not in ended.stderr


def test_an_empty_password_file_is_no_way_to_let_everybody_in(tmp_path: Path) -> None:
    (tmp_path / "passwords").touch()
    ended = flockmq(tmp_path, "start", *OPEN, "--password-file", str(tmp_path / "passwords"))
    assert ended.returncode == 1
    assert "has no users; add one with: flockmq passwd" in ended.stderr


def test_a_port_that_is_taken_is_named(broker: BrokerProcess, tmp_path: Path) -> None:
    port = broker.port()
    ended = flockmq(
        tmp_path, "start", "--allow-anonymous", "--mqtt-port", str(port), "--ws-port", "0", "--api-port", "0"
    )
    assert ended.returncode == 1
    assert f"can't listen on 127.0.0.1 port {port}: another program uses it; stop that one or" in ended.stderr
