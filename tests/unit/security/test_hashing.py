from __future__ import annotations

import asyncio
import os
import threading
from base64 import b64encode
from collections.abc import Callable

import pytest
from argon2 import PasswordHasher

from flockmq.security.hashing import Check, HashingPool, threads_for, verify

HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(b"right")


Done = Callable[[bool | None], None]


def check(peer: str, done: Done, password: bytes = b"right", is_wanted: Callable[[], bool] = lambda: True) -> Check:
    return Check(peer, HASH, password, done, is_wanted)


def pool_of(threads: int = 1, queue: int = 10, per_peer: int = 10, suspects: tuple[str, ...] = ()) -> HashingPool:
    call_soon = asyncio.get_running_loop().call_soon_threadsafe
    return HashingPool(threads, queue, per_peer, call_soon, lambda peer: peer in suspects)


async def test_a_password_is_compared_elsewhere_and_answered_here() -> None:
    pool = pool_of()
    answers: asyncio.Queue[tuple[bool | None, int]] = asyncio.Queue()
    for password in (b"right", b"wrong"):
        assert pool.submit(check("peer", lambda ok: answers.put_nowait((ok, threading.get_ident())), password))
    assert pool.pending == 2
    here = threading.get_ident()
    assert [await answers.get(), await answers.get()] == [(True, here), (False, here)]
    assert (pool.pending, pool.checked) == (0, 2)
    pool.close()


async def test_a_hash_that_can_not_be_read_is_a_no_and_costs_no_thread() -> None:
    pool = pool_of(1)
    answers: asyncio.Queue[bool | None] = asyncio.Queue()
    damaged = "$argon2id$v=19$m=8,t=1,p=1$a$a"
    assert pool.submit(Check("peer", damaged, b"right", answers.put_nowait, lambda: True))
    assert pool.submit(check("peer", answers.put_nowait))
    assert [await asyncio.wait_for(answers.get(), 5) for _ in range(2)] == [False, True]
    pool.close()


async def test_the_queue_is_bounded_as_a_whole_and_per_address() -> None:
    pool = pool_of(1, 3, 2)
    answers: asyncio.Queue[bool | None] = asyncio.Queue()
    # Answers arrive on this loop only, so that nothing is finished before the first await.
    taken = [pool.submit(check(peer, answers.put_nowait)) for peer in ("a", "a", "a", "b", "c", "d")]
    assert taken == [True, True, False, True, True, False]
    for _ in range(4):
        assert await answers.get()
    assert pool.submit(check("a", answers.put_nowait))
    assert await answers.get()
    pool.close()


async def order_of(pool: HashingPool, peers: str) -> str:
    """Who is answered when."""
    answers: asyncio.Queue[str] = asyncio.Queue()
    for peer in peers:
        assert pool.submit(check(peer, lambda _, peer=peer: answers.put_nowait(peer)))  # type: ignore[misc]
    order = "".join([await answers.get() for _ in peers])
    pool.close()
    return order


async def test_short_lines_and_those_whose_turn_it_is_go_by_turns() -> None:
    assert await order_of(pool_of(), "aaaabbc") == "aacbbaa"
    order = await order_of(pool_of(queue=20, per_peer=20), "aaaabbbbbbccccccd")
    assert order.index("d") <= 2, "one login goes before the many of others"
    assert set(order[:6]) == set("abcd"), "which get on as well"


async def test_addresses_that_failed_come_last() -> None:
    assert await order_of(pool_of(suspects=("a", "b")), "aaabbcd") == "acdaabb"


async def test_a_full_queue_has_the_longest_line_give_way() -> None:
    pool = pool_of(queue=4)
    answers: asyncio.Queue[tuple[str, bool | None]] = asyncio.Queue()
    for number, peer in enumerate("aaabbc"):
        name = f"{peer}{number}"
        assert pool.submit(check(peer, lambda ok, name=name: answers.put_nowait((name, ok))))  # type: ignore[misc]
    outcomes = dict([await answers.get() for _ in range(6)])
    assert [name for name, ok in outcomes.items() if ok is None] == ["a2"]
    assert pool.forgotten == 1
    pool.close()


async def test_who_is_gone_is_forgotten_before_the_work_begins_and_frees_its_place() -> None:
    pool = pool_of(queue=4, per_peer=4)
    gone: set[str] = set()
    answers: asyncio.Queue[str] = asyncio.Queue()

    def submit(name: str) -> bool:
        return pool.submit(check(name[0], lambda _: answers.put_nowait(name), is_wanted=lambda: name not in gone))

    assert [submit(f"a{number}") for number in range(5)] == [True] * 4 + [False]
    gone.update(("a1", "a2"))
    assert submit("a5"), "two of its places are free again"
    gone.add("a3")
    assert [await answers.get(), await answers.get()] == ["a0", "a5"]
    assert (pool.pending, pool.checked, pool.forgotten) == (0, 2, 3)
    pool.close()


async def test_a_closed_pool_takes_nothing_and_says_nothing() -> None:
    pool = pool_of()
    answers: list[bool | None] = []
    assert pool.submit(check("peer", answers.append))
    pool.close()
    assert not pool.submit(check("peer", answers.append))
    for thread in threading.enumerate():
        if thread.name.startswith("flockmq-hash"):
            await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)  # one turn of the loop, in which an answer would be heard
    assert answers == []


def test_what_argon2_can_not_read_does_not_match() -> None:
    cut = b64encode(b"x").decode().rstrip("=")
    assert not verify(f"$argon2id$v=19$m=8,t=1,p=1${cut}${cut}", b"right")
    assert not verify("right", b"right")
    assert verify(HASH, b"right")


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_one_thread_works_on_all_lanes_and_finds_what_argon2_finds(lanes: int) -> None:
    password_hash = PasswordHasher(time_cost=2, memory_cost=64, parallelism=lanes).hash(b"right")
    assert verify(password_hash, b"right")
    assert not verify(password_hash, b"wrong")
    assert not verify(password_hash, b"")


def test_a_core_is_left_to_the_broker() -> None:
    assert threads_for(7) == 7
    assert 1 <= threads_for(0) <= max(1, min(4, (os.cpu_count() or 1) - 1))
