from __future__ import annotations

import asyncio

import pytest

from flockmq.drivers import resolver
from flockmq.drivers.resolver import Resolver
from link_ends import LOOPS, Run, runner, until


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    return runner(request.param)


def test_addresses_stand_for_themselves(run: Run) -> None:
    async def scenario() -> None:
        found = Resolver(asyncio.get_running_loop())
        for address in ("192.0.2.1", "2001:db8::1", "fe80::1%lo"):
            assert found.find(address) == address
            assert found.find(address) == address

    run(scenario())


def test_a_name_is_known_a_little_later(run: Run) -> None:
    async def scenario() -> None:
        found = Resolver(asyncio.get_running_loop(), has_ipv6=False)
        assert found.find("localhost") is None
        await until(lambda: found.find("localhost") == "127.0.0.1")

    run(scenario())


def test_an_old_answer_is_better_than_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        found = Resolver(asyncio.get_running_loop(), has_ipv6=False)
        await until(lambda: found.find("localhost") is not None)
        monkeypatch.setattr(resolver, "FRESH_MS", -1)
        for _ in range(5):
            assert found.find("localhost") == "127.0.0.1"
            await asyncio.sleep(0)
        found.close()

    run(scenario())


def test_names_that_do_not_exist_and_crowds_of_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        found = Resolver(asyncio.get_running_loop())
        for number in range(1_000):
            assert found.find(f"n{number}.invalid") is None
        assert len(asyncio.all_tasks()) <= resolver.LOOKUPS_MAX + 2
        assert found.find("x" * 300) is None  # no name at all
        found.close()
        monkeypatch.setattr(resolver, "NAMES_MAX", 2)
        for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"):
            assert found.find(address) == address

    run(scenario())
