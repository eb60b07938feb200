from __future__ import annotations

import asyncio

import pytest

from flockmq.errors import FlockError
from flockmq.server.together import all_of


async def test_the_first_error_ends_the_others() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise FlockError("The port is taken.")

    with pytest.raises(FlockError, match="taken"):
        await all_of(waits(), fails())
    assert ended == ["waits"]


async def test_all_come_to_their_end() -> None:
    done: list[int] = []

    async def part(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    await all_of(part(1), part(2))
    assert sorted(done) == [1, 2]
