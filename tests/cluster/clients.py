"""What tests of real clusters do again and again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from typing import Any

from flockmq.client.mqtt import Message, MqttClient, MqttError, Options
from flockmq.testing.nodes import HOST, NodeProcess


class Clients:
    """Clients that are all gone when a test ends, however it ends."""

    def __init__(self) -> None:
        self._all: list[MqttClient] = []

    async def connect(self, node: NodeProcess, client_id: str, **options: Any) -> MqttClient:
        """A client at this node."""
        options = {"host": HOST, **options}
        client = await MqttClient.connect(Options(port=node.mqtt_port, client_id=client_id, **options))
        self._all.append(client)
        return client

    async def close(self) -> None:
        for client in self._all:
            with contextlib.suppress(MqttError):
                await client.disconnect()


async def next_message(client: MqttClient) -> Message:
    """The next message, which has to come."""
    return await asyncio.wait_for(anext(client.messages()), 20)


def command(node: NodeProcess, *words: str, code: int = 0) -> str:
    """What a command prints when it asks this node."""
    environment = {"PATH": "", "FLOCKMQ_CREDENTIALS": str(node.folder / "credentials.toml")}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "flockmq", *words, f"--server=http://{HOST}:{node.api_port}"],
        capture_output=True,
        check=False,
        env=environment,
        text=True,
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout if code == 0 else done.stdout + done.stderr
