"""Changes of cluster state that every live node is to know of."""

from __future__ import annotations

from flockmq.durable.state.barrier import WAIT_MS, WAITING_MAX, AppliedBarrier
from flockmq.durable.state.facts import Head


class Others:
    """What gossip says: how far other nodes are, and who lives."""

    def __init__(self, **indexes: int) -> None:
        self.indexes = {int(name[1:]): index for name, index in indexes.items()}
        self.dead: set[int] = set()

    def tell(self, index: int, has_replica: bool) -> None:
        raise AssertionError

    def heads(self) -> dict[int, Head]:
        return {node: Head(index, True) for node, index in self.indexes.items()}

    def alive(self) -> list[int]:
        return [1, *(node for node in self.indexes if node not in self.dead)]


def test_the_last_of_them_is_waited_for() -> None:
    others = Others(n2=7, n3=5)
    barrier = AppliedBarrier(others)
    told: list[tuple[int, bool]] = []
    barrier.wait(5, 0).then(lambda known: told.append((5, known)))
    assert told == [(5, True)], "all know that already"
    barrier.wait(6, 0).then(lambda known: told.append((6, known)))
    barrier.wait(7, 0).then(lambda known: told.append((7, known)))
    others.indexes[3] = 6
    barrier.flush(10)
    assert told == [(5, True), (6, True)]
    others.indexes[3] = 9
    barrier.flush(20)
    assert told == [(5, True), (6, True), (7, True)]


def test_nobody_waits_for_the_dead_nor_for_ever() -> None:
    others = Others(n2=7, n3=5)
    barrier = AppliedBarrier(others)
    told: list[bool] = []
    barrier.wait(7, 0).then(told.append)
    others.dead.add(3)
    barrier.flush(10)
    assert told == [True]
    others.dead.clear()
    barrier.wait(7, 10).then(told.append)
    barrier.flush(9 + WAIT_MS)
    assert told == [True]
    barrier.flush(10 + WAIT_MS)
    assert told == [True, False]


def test_a_node_alone_waits_for_nobody_and_few_may_wait() -> None:
    told: list[bool] = []
    AppliedBarrier(Others()).wait(3, 0).then(told.append)
    assert told == [True]
    others = Others(n2=0)
    barrier = AppliedBarrier(others)
    for _ in range(WAITING_MAX + 1):
        barrier.wait(1, 0).then(told.append)
    assert told == [True, False]
