"""The clients people use, against a real broker process: paho-mqtt, aiomqtt, gmqtt, mosquitto_pub/sub, MQTT.js."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from integration.support.process import FREE_PORTS, BrokerProcess
from integration.support.programs import need

HOST = "127.0.0.1"
MQTT_JS = "mqtt@5.10.4"
WAIT_S = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), "--allow-anonymous", "--json", *FREE_PORTS) as process:
        yield process
        assert process.stop() == 0


def properties_of(packet: int) -> Any:
    """paho's properties have no types of their own."""
    return Properties(packet)  # type: ignore[no-untyped-call]


class Paho:
    """A paho client whose callbacks fill queues."""

    def __init__(
        self,
        broker: BrokerProcess,
        client_id: str,
        version: int,
        transport: Literal["tcp", "websockets"] = "tcp",
        **connect: Any,
    ) -> None:
        protocol = paho.MQTTv5 if version == 5 else paho.MQTTv311
        extra = {} if version == 5 else {"clean_session": connect.pop("clean_session", True)}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=protocol, transport=transport, **extra
        )
        self.messages: queue.Queue[Any] = queue.Queue()
        self.connected: queue.Queue[Any] = queue.Queue()
        self.subscribed: queue.Queue[Any] = queue.Queue()
        self.gone: queue.Queue[Any] = queue.Queue()
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)
        self.client.on_connect = lambda _c, _u, flags, reason, _p: self.connected.put((flags, reason))
        self.client.on_subscribe = lambda _c, _u, _m, reasons, _p: self.subscribed.put(reasons)
        self.client.on_disconnect = lambda _c, _u, _f, reason, _p: self.gone.put(reason)
        if transport == "websockets":
            self.client.ws_set_options(path="/mqtt")
        self.port = broker.port("ws:default" if transport == "websockets" else "tcp:default")
        self.connect = connect

    def __enter__(self) -> Paho:
        self.client.connect(HOST, self.port, **self.connect)
        self.client.loop_start()
        self.flags, self.reason = self.connected.get(timeout=WAIT_S)
        assert self.reason == 0
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, *arguments: Any, **options: Any) -> Any:
        self.client.subscribe(*arguments, **options)
        return self.subscribed.get(timeout=WAIT_S)


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
@pytest.mark.parametrize("version", [4, 5])
def test_paho_all_qos(broker: BrokerProcess, version: int, transport: Literal["tcp", "websockets"]) -> None:
    topic = f"paho/{version}/{transport}"
    with (
        Paho(broker, f"paho-sub-{version}-{transport}", version, transport) as subscriber,
        Paho(broker, f"paho-pub-{version}-{transport}", version, transport) as publisher,
    ):
        subscriber.subscribe(topic + "/#", qos=2)
        for qos in (0, 1, 2):
            publisher.client.publish(f"{topic}/{qos}", f"message {qos}", qos).wait_for_publish(WAIT_S)
        got = {}
        for _ in range(3):
            message = subscriber.messages.get(timeout=WAIT_S)
            got[message.topic] = (message.qos, message.payload)
        assert got == {f"{topic}/{qos}": (qos, f"message {qos}".encode()) for qos in (0, 1, 2)}


def test_paho_session_resumes_with_what_was_missed(broker: BrokerProcess) -> None:
    def client() -> Paho:
        properties = properties_of(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 300
        return Paho(broker, "paho-resume", 5, clean_start=False, properties=properties)

    with client() as subscriber:
        assert not subscriber.flags.session_present
        subscriber.subscribe("resume/#", qos=1)
    with Paho(broker, "paho-resume-pub", 5) as publisher:
        for number in range(20):
            publisher.client.publish("resume/x", str(number), 1).wait_for_publish(WAIT_S)
    with client() as subscriber:
        assert subscriber.flags.session_present
        got = [int(subscriber.messages.get(timeout=WAIT_S).payload) for _ in range(20)]
    assert got == list(range(20))


def test_paho_will_retained_and_options(broker: BrokerProcess) -> None:
    with Paho(broker, "paho-options", 5) as client:
        properties = properties_of(PacketTypes.PUBLISH)
        properties.UserProperty = [("a", "1"), ("a", "2")]
        properties.ResponseTopic = "answers"
        properties.CorrelationData = b"\x00\x01"
        properties.ContentType = "text/plain"
        client.client.publish("options/kept", "kept", 1, retain=True, properties=properties).wait_for_publish(WAIT_S)
        subscribe_properties = properties_of(PacketTypes.SUBSCRIBE)
        subscribe_properties.SubscriptionIdentifier = 7
        options = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)
        client.subscribe("options/#", options=options, properties=subscribe_properties)
        message = client.messages.get(timeout=WAIT_S)
        assert (message.retain, message.payload) == (True, b"kept")
        assert message.properties.UserProperty == [("a", "1"), ("a", "2")]
        assert message.properties.ResponseTopic == "answers"
        assert message.properties.SubscriptionIdentifier == [7]
        watcher = Paho(broker, "paho-watcher", 4)
        with watcher:
            watcher.subscribe("options/will", 1)
            doomed = Paho(broker, "paho-doomed", 5)
            doomed.client.will_set("options/will", "gone", 1)
            with doomed:
                doomed.client.disconnect(ReasonCode(PacketTypes.DISCONNECT, identifier=4))
                doomed.gone.get(timeout=WAIT_S)
            assert watcher.messages.get(timeout=WAIT_S).payload == b"gone"


def test_paho_takeover(broker: BrokerProcess) -> None:
    first = Paho(broker, "paho-twice", 5)
    with first:
        first.client.reconnect_delay_set(600, 600)
        with Paho(broker, "paho-twice", 5):
            assert first.gone.get(timeout=WAIT_S).value == 0x8E


@pytest.mark.parametrize("version", [4, 5])
async def test_aiomqtt(broker: BrokerProcess, version: int) -> None:
    protocol = aiomqtt.ProtocolVersion.V5 if version == 5 else aiomqtt.ProtocolVersion.V311
    async with (
        aiomqtt.Client(HOST, broker.port(), identifier=f"aio-sub-{version}", protocol=protocol) as subscriber,
        aiomqtt.Client(HOST, broker.port(), identifier=f"aio-pub-{version}", protocol=protocol) as publisher,
    ):
        await subscriber.subscribe(f"aio/{version}/+", qos=1)
        for number in range(100):
            await publisher.publish(f"aio/{version}/n", str(number), qos=number % 3)
        got: dict[int, list[int]] = {0: [], 1: []}
        async with asyncio.timeout(WAIT_S):
            async for message in subscriber.messages:
                assert isinstance(message.payload, bytes)
                got[message.qos].append(int(message.payload))
                if sum(map(len, got.values())) == 100:
                    break
        assert got == {0: list(range(0, 100, 3)), 1: [n for n in range(100) if n % 3]}


async def test_gmqtt(broker: BrokerProcess) -> None:
    got: asyncio.Queue[tuple[str, bytes, int]] = asyncio.Queue()
    subscribed = asyncio.Event()
    client = gmqtt.Client("gmqtt-client", clean_session=True)

    async def on_message(_client: Any, topic: str, payload: bytes, qos: int, _properties: Any) -> int:
        got.put_nowait((topic, payload, qos))
        return 0

    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    await client.connect(HOST, broker.port(), version=gmqtt.constants.MQTTv50)
    client.subscribe("gmqtt/+", qos=2)
    async with asyncio.timeout(WAIT_S):
        await subscribed.wait()
        for qos in (0, 1, 2):
            client.publish("gmqtt/x", f"{qos}", qos=qos, user_property=("k", "v"))
        received = sorted([await got.get() for _ in range(3)], key=lambda row: row[2])
    await client.disconnect()
    assert received == [("gmqtt/x", b"0", 0), ("gmqtt/x", b"1", 1), ("gmqtt/x", b"2", 2)]


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_clients(broker: BrokerProcess, version: str) -> None:
    common = ["-h", HOST, "-p", str(broker.port()), "-V", version]
    publish = [need("mosquitto_pub"), *common, "-q", "2", "-t", f"mosquitto/{version}/kept"]
    subprocess.run([*publish, "-r", "-m", "kept"], check=True, timeout=WAIT_S)
    listener = subprocess.Popen(
        [need("mosquitto_sub"), *common, "-q", "2", "-t", f"mosquitto/{version}/#", "-C", "4", "-F", "%t %q %r %p"],
        stdout=subprocess.PIPE,
    )
    assert listener.stdout is not None
    first = listener.stdout.readline()  # the retained message: it is subscribed now
    lines = "\n".join(["one", "two", "three"])
    subprocess.run(
        [need("mosquitto_pub"), *common, "-q", "1", "-t", f"mosquitto/{version}/live", "-l"],
        input=lines.encode(),
        check=True,
        timeout=WAIT_S,
    )
    rest, _ = listener.communicate(timeout=WAIT_S)
    subprocess.run([*publish, "-r", "-n"], check=True, timeout=WAIT_S)
    assert first.decode().split() == [f"mosquitto/{version}/kept", "2", "1", "kept"]
    assert [line.split()[1:] for line in rest.decode().splitlines()] == [
        ["1", "0", "one"],
        ["1", "0", "two"],
        ["1", "0", "three"],
    ]


@pytest.fixture(scope="session")
def mqtt_js(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MQTT.js, installed once a run."""
    node = need("npm")
    folder = tmp_path_factory.mktemp("mqtt-js")
    command = [node, "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--prefix", str(folder)]
    done = subprocess.run([*command, MQTT_JS], capture_output=True, text=True, check=False)
    if done.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"npm could not install {MQTT_JS}: {done.stderr}")
        pytest.skip(f"npm could not install {MQTT_JS}")
    return folder / "node_modules" / "mqtt" / "build" / "index.js"


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("transport", ["ws", "mqtt"])
def test_mqtt_js(broker: BrokerProcess, mqtt_js: Path, version: str, transport: str) -> None:
    port = broker.port("ws:default" if transport == "ws" else "tcp:default")
    url = f"{transport}://{HOST}:{port}" + ("/mqtt" if transport == "ws" else "")
    script = Path(__file__).parent / "js" / "client.mjs"
    done = subprocess.run(
        [need("node"), str(script), str(mqtt_js), url, version], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["granted"] == 2
    origin = "js" if version == "5" else None
    assert [(row["topic"], row["payload"], row["qos"], row["retain"], row["user"]) for row in result["seen"]] == [
        ("js/kept", "retained", 1, True, None),
        ("js/qos0", "message 0", 0, False, origin),
        ("js/qos1", "message 1", 1, False, origin),
        ("js/qos2", "message 2", 2, False, origin),
    ]
