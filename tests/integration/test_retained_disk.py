"""Retained messages and the disk, with real processes: after a kill, a stop, damage, and with a disk that fails."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from flockmq.client.mqtt import MqttClient, Options
from flockmq.mqtt.packets import SubscribeEntry, Will
from integration.support.http import ask
from integration.support.node import until
from integration.support.process import FREE_PORTS, BrokerProcess

ALONE = {"FLOCKMQ_CLUSTER__ENABLED": "false"}
"""The same must hold for a node that talks to others and for one that does not."""
AMONG_OTHERS = {"FLOCKMQ_CLUSTER__PORT": "0", "FLOCKMQ_CLUSTER__HOST": "127.0.0.1"}


def start(folder: Path, **variables: str) -> BrokerProcess:
    data_dir = str(folder / "data")
    return BrokerProcess(folder, "--allow-anonymous", *FREE_PORTS, "--data-dir", data_dir, **(variables or ALONE))


async def connect(broker: BrokerProcess, client_id: str = "c", will: Will | None = None) -> MqttClient:
    return await MqttClient.connect(Options(port=broker.port(), client_id=client_id, will=will))


async def retained(broker: BrokerProcess, count: int) -> dict[str, bytes]:
    """The next so many messages that a new subscriber to everything gets."""
    async with await connect(broker, "reader") as reader:
        await reader.subscribe(SubscribeEntry(b"#", 2))
        messages = reader.messages()
        return {message.topic: message.payload for message in [await anext(messages) for _ in range(count)]}


@pytest.mark.parametrize("variables", [ALONE, AMONG_OTHERS])
async def test_what_was_acknowledged_and_written_survives_kill_9(tmp_path: Path, variables: dict[str, str]) -> None:
    log = tmp_path / "data" / "retained.db-wal"
    with start(tmp_path, **variables) as broker:
        async with await connect(broker) as writer:
            for number in range(100):
                await writer.publish(f"t/{number}", b"value-%d" % number, qos=1, retain=True)
            await writer.publish("t/0", b"", qos=1, retain=True)
            await writer.publish("last", b"the very last", qos=1, retain=True)
            await until(lambda: log.exists() and b"the very last" in log.read_bytes())
        assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
    with start(tmp_path, **variables) as broker:
        async with asyncio.timeout(30):
            found = await retained(broker, 100)
        assert found == {"last": b"the very last"} | {f"t/{one}": b"value-%d" % one for one in range(1, 100)}


async def test_a_stop_in_order_writes_everything_also_the_wills(tmp_path: Path) -> None:
    with start(tmp_path) as broker:
        async with await connect(broker) as writer:
            will = Will(b"status/w", b"gone", qos=1, retain=True)
            async with await connect(broker, "w", will):
                await writer.publish("a", b"1", qos=1, retain=True)
                assert await asyncio.to_thread(broker.stop) == 0
        assert not (tmp_path / "data" / "retained.db-wal").exists()
    with start(tmp_path) as broker:
        async with asyncio.timeout(30):
            assert await retained(broker, 2) == {"a": b"1", "status/w": b"gone"}


async def test_a_damaged_file_is_set_aside_and_the_broker_starts(tmp_path: Path) -> None:
    file = tmp_path / "data" / "retained.db"
    file.parent.mkdir()
    file.write_bytes(b"this is no database " * 500)
    with start(tmp_path) as broker:
        damaged = broker.until("retained_damaged")
        assert damaged["level"] == "error"
        assert damaged["file"] == f"{file}.damaged-1"
        assert file.with_name("retained.db.damaged-1").read_bytes().startswith(b"this is no database")
        async with await connect(broker) as writer:
            await writer.publish("a", b"1", qos=1, retain=True)
        assert broker.stop() == 0
    with start(tmp_path) as broker:
        async with asyncio.timeout(30):
            assert await retained(broker, 1) == {"a": b"1"}


async def test_a_disk_that_fails_is_told_and_serves_from_memory(tmp_path: Path) -> None:
    file = tmp_path / "data" / "retained.db"
    file.mkdir(parents=True)
    with start(tmp_path) as broker:
        assert "in memory only" in broker.until("retained_not_saved")["message"]
        admin = broker.ports()["admin"][0]["port"]
        async with await connect(broker) as writer:
            await writer.publish("a", b"1", qos=1, retain=True)
        async with asyncio.timeout(30):
            assert await retained(broker, 1) == {"a": b"1"}
        ready = await ask(admin, "GET", "/health/ready", token=None)
        assert (ready.status, ready.json["status"]) == (200, "ready")
        assert ready.json["problems"] == ["retained_not_saved"]
        file.rmdir()
        await asyncio.to_thread(broker.until, "retained_saved_again")
        ready = await ask(admin, "GET", "/health/ready", token=None)
        assert (ready.json["status"], ready.json["problems"]) == ("ready", [])
        assert broker.stop() == 0
    with start(tmp_path) as broker:
        async with asyncio.timeout(30):
            assert await retained(broker, 1) == {"a": b"1"}


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    with start(tmp_path, **ALONE, FLOCKMQ_RETAINED__PERSIST="false") as broker:
        async with await connect(broker) as writer:
            await writer.publish("a", b"1", qos=1, retain=True)
        assert broker.stop() == 0
    assert not (tmp_path / "data" / "retained.db").exists()
