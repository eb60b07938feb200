"""An API whose logs are in memory, and commands for it."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from flockmq.admin.api import AdminApi
from flockmq.admin.desk import NodeInfo, Ports
from flockmq.cli.main import run
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness
from unit.admin.durable_desks import MemoryDurable


class Site:
    """An API in a thread of its own, and commands for it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.port = MemoryDurable()
        self.capsys = capsys
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        harness = BrokerHarness()
        api = AdminApi(
            NodeInfo(name="n1@host", version="1", build="pure"),
            Ports(
                broker=lambda: harness.broker,
                clock=lambda: harness.now,
                flush=harness.flush,
                wall_clock=lambda: WALL_MS + harness.now - START_MS,
                find_durable=lambda: self.port,
            ),
            lambda token: token == "right",
        )
        await api.start("127.0.0.1", 0)
        api.mark_ready()
        self.url = f"http://127.0.0.1:{api.port}"
        self._ready.set()
        await self._stop.wait()
        await api.stop()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def text(self, *arguments: str) -> str:
        """What a command prints."""
        assert run(list(arguments)) == 0, self.capsys.readouterr().err
        return self.capsys.readouterr().out

    def json(self, *arguments: str) -> Any:
        """What a command prints for programs."""
        return json.loads(self.text(*arguments, "--json"))

    def fails(self, *arguments: str, code: int = 1) -> str:
        """The sentence that a command fails with."""
        assert run(list(arguments)) == code
        printed = self.capsys.readouterr()
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1
        return printed.err
