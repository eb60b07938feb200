"""`flockmq log read` on several nodes: a node that goes away, shards that come later. The logs are in memory."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from contextlib import redirect_stdout

import pytest

from flockmq.admin import durable_model as model
from flockmq.cli import log_read
from flockmq.cli.main import run as run_command
from integration.support.node import Run
from integration.test_log_client import create, flock
from unit.admin.durable_desks import MemoryLog

NOBODY = "http://127.0.0.1:1"


class Screen(io.StringIO):
    """What is printed; Ctrl-C comes once so many lines are there."""

    def __init__(self, lines_max: int) -> None:
        super().__init__()
        self._lines_max = lines_max
        self._changed = threading.Condition()

    def write(self, text: str) -> int:
        with self._changed:
            written = super().write(text)
            self._changed.notify_all()
        if self._has(self._lines_max):
            raise KeyboardInterrupt
        return written

    def _has(self, lines: int) -> bool:
        return self.getvalue().count("\n") >= lines

    async def shows(self, lines: int) -> None:
        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: self._has(lines), 10)

        assert await asyncio.to_thread(wait)

    def payloads(self) -> list[str]:
        return [json.loads(line)["payload"] for line in self.getvalue().splitlines()]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Three lines of it."""
    monkeypatch.setattr(log_read, "WAIT_MS", 100)
    monkeypatch.setenv("FLOCKMQ_TOKEN", "right")
    return Screen(3)


async def follow(screen: Screen, *options: str) -> int:
    with redirect_stdout(screen):
        return await asyncio.to_thread(run_command, ["log", "read", "plant", "--follow", "--json", *options])


def append(log: MemoryLog, *payloads: bytes) -> None:
    log.append([(b"plant/1", b"me", one, []) for one in payloads], 1_772_366_400_000)


def test_a_node_that_goes_away_is_no_reason_to_end(run: Run, screen: Screen) -> None:
    async def scenario() -> None:
        async with flock(3) as site:
            await site.admin(create)
            append(site.port.log(1), b"a", b"b")
            following = asyncio.create_task(follow(screen, "--server", site.urls[0]))
            await screen.shows(2)
            await site.apis[0].stop()
            append(site.port.log(1), b"c")
            assert await following == 130, "until Ctrl-C"

    run(scenario())
    assert screen.payloads() == ["a", "b", "c"]


def test_shards_that_are_added_are_read_from_their_beginning(run: Run, screen: Screen) -> None:
    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            append(site.port.log(1), b"old", b"a")
            following = asyncio.create_task(follow(screen, "--server", site.urls[0], "--from", "offset:1"))
            await screen.shows(1)
            await site.admin(lambda client: client.alter_topic("plant", model.TopicChange(shards=2)))
            append(site.port.log(2), b"b", b"c")
            assert await following == 130

    run(scenario())
    assert screen.payloads() == ["a", "b", "c"]


def test_of_several_servers_the_first_that_answers_is_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOCKMQ_TOKEN", "right")

    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            append(site.port.log(1), b"x")
            monkeypatch.setenv("FLOCKMQ_SERVER", f"{NOBODY}, {site.urls[0].removeprefix('http://')}")
            for arguments in (["topic", "list"], ["log", "read", "plant"], ["cursor", "create", "dash", "plant"]):
                assert await asyncio.to_thread(run_command, arguments) == 0

    run(scenario())
    assert "plant/1" in capsys.readouterr().out


def test_what_is_about_one_node_takes_one_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOCKMQ_SERVER", f"{NOBODY},{NOBODY}1")
    for arguments in (["cluster", "leave", "--yes"], ["cluster", "join", "other:16000"], ["login"]):
        assert run_command(arguments) == 2
        assert "name one of them" in capsys.readouterr().err
    assert run_command(["topic", "list"]) == 1
    assert "No broker answers at http://127.0.0.1:1 " in capsys.readouterr().err
    assert run_command(["topic", "list", "--server", " , "]) == 2
    assert "names no server" in capsys.readouterr().err


def test_what_retention_removed_is_not_waited_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOCKMQ_TOKEN", "right")

    async def scenario() -> None:
        async with flock() as site:
            await site.admin(create)
            append(site.port.log(1), b"a", b"b")
            append(site.port.log(1), b"c")
            site.port.log(1).first = 2
            arguments = ["log", "read", "plant", "--server", site.urls[0]]
            assert await asyncio.to_thread(run_command, arguments) == 0

    run(scenario())
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0:2"]
