from __future__ import annotations

import io
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flockmq.client.mqtt import MqttClient, Options
from flockmq.config.bind import Address
from flockmq.config.load import Flags, load
from flockmq.config.sections import Config
from flockmq.errors import FlockError
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.server.app import Server
from flockmq.server.log import Log, json_line

HERE = (Address("127.0.0.1", 0),)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("FLOCKMQ_CREDENTIALS", str(tmp_path / "credentials.toml"))
    environ = {
        "FLOCKMQ_SECURITY__ALLOW_ANONYMOUS": "true",
        "FLOCKMQ_NODE__DATA_DIR": str(tmp_path / "data"),
        "FLOCKMQ_CLUSTER__PORT": "0",  # other tests have nodes on the usual one
    }
    return load(None, environ, Flags(host="127.0.0.1", ports={"tcp": 0, "ws": 0, "admin": 0})).config


class Lines:
    """A log whose lines can be asked for."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.log = Log(self._stream, json_line, level="debug")

    def events(self) -> list[dict[str, Any]]:
        self.log.start()
        self.log.stop()
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


def taken(config: Config, *, asked_for: bool, address: Address) -> Config:
    tcp, ws = config.listeners
    return replace(config, listeners=(tcp, replace(ws, addresses=(address,), asked_for=asked_for)))


async def test_what_nobody_asked_for_gives_way(config: Config) -> None:
    lines = Lines()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = Address("127.0.0.1", holder.getsockname()[1])
        config = taken(config, asked_for=False, address=address)
        assert config.admin is not None
        config = replace(config, admin=replace(config.admin, addresses=(address,), asked_for=False))
        server = Server(config, lines.log)
        await server.start()
    assert [one.name for one in server.listeners] == ["tcp:default"]
    assert server.admin is None
    await server.stop()
    left_out = [line["event"] for line in lines.events() if line["level"] == "warning"]
    assert left_out == ["listener_left_out", "admin_left_out"]


@pytest.mark.parametrize("which", ["listener", "admin"])
async def test_what_was_asked_for_must_be_had_and_else_nothing_is_left_behind(config: Config, which: str) -> None:
    assert config.admin is not None
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = Address("127.0.0.1", holder.getsockname()[1])
        if which == "listener":
            broken = taken(config, asked_for=True, address=address)
        else:
            broken = replace(config, admin=replace(config.admin, addresses=(address,), asked_for=True))
        server = Server(broken, Lines().log)
        with pytest.raises(FlockError, match=f"{address.port}"):
            await server.start()
        assert [one.addresses for one in server.listeners if one.addresses] == []
    good = Server(config, Lines().log)  # the folder is free again
    await good.start()
    await good.stop()


async def test_the_token_of_a_file_is_the_only_one(config: Config, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("0123456789abcdef\n")
    assert config.admin is not None
    server = Server(replace(config, admin=replace(config.admin, token_file=str(token_file))), Lines().log)
    await server.start()
    assert not (tmp_path / "credentials.toml").exists()
    await server.stop()
    token_file.write_text("short\n")
    with pytest.raises(FlockError, match="less than 16 characters"):
        await server.start()


async def test_ports_that_were_free_are_the_same_on_both_addresses(config: Config) -> None:
    pair = (Address("127.0.0.1", 0), Address("::1", 0, optional=True))
    tcp, ws = config.listeners
    assert config.admin is not None
    config = replace(config, listeners=(replace(tcp, addresses=pair), ws), admin=replace(config.admin, addresses=pair))
    server = Server(config, Lines().log)
    await server.start()
    ports = server.ports()
    listeners, admin = ports["listeners"], ports["admin"]
    assert isinstance(listeners, list)
    assert isinstance(admin, list)
    assert len({one["port"] for one in listeners if one["name"] == "tcp:default"}) == 1
    assert len({one["port"] for one in admin}) == 1
    assert server.admin_url == f"http://127.0.0.1:{admin[0]['port']}"
    models = [one for one in server.listener_models() if one.name == "tcp:default"]
    assert sum(one.connections or 0 for one in models) == 0
    await server.stop()


async def test_a_cluster_port_that_is_taken_leaves_a_node_that_serves_alone(config: Config) -> None:
    lines = Lines()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        cluster = replace(config.cluster, enabled=True, host="127.0.0.1", port=port)
        server = Server(replace(config, cluster=cluster, cluster_asked_for=False), lines.log)
        await server.start()
    assert server.cluster is None
    host, port = server.listeners[0].addresses[0]
    options = Options(host=host, port=port, client_id="c")
    async with await MqttClient.connect(options) as client:
        assert await client.subscribe(SubscribeEntry(b"a/#", 1)) == [1]
        assert await client.publish("a/1", b"x", qos=1) == 0
    await server.stop()
    assert "cluster_left_out" in [line["event"] for line in lines.events()]


async def test_a_node_that_joins_begins_a_new_life_on_the_same_ports(config: Config, tmp_path: Path) -> None:
    first = Server(config, Lines().log)
    lines = Lines()
    name = replace(config.broker, node_name="n2@127.0.0.1")
    second = Server(replace(config, data_dir=str(tmp_path / "second"), broker=name), lines.log)
    await first.start()
    await second.start()
    assert first.cluster is not None
    assert second.cluster is not None
    before, ports = second.life, second.ports()
    joined = await second.cluster.moves.join(f"127.0.0.1:{first.cluster.port}", discard_data=False)
    assert joined.changed
    assert second.life is not before
    assert second.ports() == ports
    assert second.cluster.id_text() == first.cluster.id_text() == joined.id
    assert {one.name for one in second.cluster.node.swim.alive()} == {"n2@127.0.0.1", config.broker.node_name}
    left = await second.cluster.moves.leave(discard_data=False)
    assert left.changed
    assert second.ports() == ports
    assert len(second.cluster.node.swim.alive()) == 1
    await second.stop()
    await first.stop()
    assert "node_failed" not in [line["event"] for line in lines.events()]
