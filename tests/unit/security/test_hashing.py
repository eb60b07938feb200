from __future__ import annotations

import asyncio
import threading
from base64 import b64encode

from argon2 import PasswordHasher

from flockmq.security.hashing import HashingPool, verify

HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(b"right")


async def test_a_password_is_compared_elsewhere_and_answered_here() -> None:
    pool = HashingPool(1, 10, 10, asyncio.get_running_loop().call_soon_threadsafe)
    answers: asyncio.Queue[tuple[bool, int]] = asyncio.Queue()
    for password in (b"right", b"wrong"):
        assert pool.submit("peer", HASH, password, lambda ok: answers.put_nowait((ok, threading.get_ident())))
    assert pool.pending == 2
    here = threading.get_ident()
    assert [await answers.get(), await answers.get()] == [(True, here), (False, here)]
    assert (pool.pending, pool.checked) == (0, 2)
    pool.close()


async def test_the_queue_is_bounded_as_a_whole_and_per_address() -> None:
    pool = HashingPool(1, 3, 2, asyncio.get_running_loop().call_soon_threadsafe)
    answers: asyncio.Queue[bool] = asyncio.Queue()
    # Answers arrive on this loop only, so that nothing is finished before the first await.
    taken = [pool.submit(peer, HASH, b"right", answers.put_nowait) for peer in ("a", "a", "a", "b", "c", "d")]
    assert taken == [True, True, False, True, True, False]
    for _ in range(4):
        assert await answers.get()
    assert pool.submit("a", HASH, b"right", answers.put_nowait)
    assert await answers.get()
    pool.close()


async def test_a_closed_pool_takes_nothing_and_says_nothing() -> None:
    pool = HashingPool(1, 10, 10, asyncio.get_running_loop().call_soon_threadsafe)
    answers: list[bool] = []
    assert pool.submit("peer", HASH, b"right", answers.append)
    pool.close()
    assert not pool.submit("peer", HASH, b"right", answers.append)
    for thread in threading.enumerate():
        if thread.name.startswith("flockmq-hash"):
            await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)  # one turn of the loop, in which an answer would be heard
    assert answers == []


def test_what_argon2_can_not_read_does_not_match() -> None:
    cut = b64encode(b"x").decode().rstrip("=")
    assert not verify(f"$argon2id$v=19$m=8,t=1,p=1${cut}${cut}", b"right")
    assert verify(HASH, b"right")
