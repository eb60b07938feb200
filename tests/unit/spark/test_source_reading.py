"""Fetching ahead: the same items in the same order, one more than is worked on, and errors where they belong."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from flockmq.errors import FlockError
from flockmq.spark.planning import Range
from flockmq.spark.reading import Fetched, ahead

PLACE = Range("plant", 0, 0, 5)


class Fetches:
    """Five of them; ``made`` is how many were begun, ``broken`` the one that fails."""

    def __init__(self, broken: int = -1) -> None:
        self.made = 0
        self.broken = broken
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[Fetched]:
        for number in range(5):
            self.made = number + 1
            self.threads.add(threading.get_ident())
            if number == self.broken:
                raise FlockError("no node could serve it")
            yield Fetched(PLACE, number, b"%d" % number)


def test_all_items_come_in_order() -> None:
    fetches = Fetches()
    assert [one.offset for one in ahead(iter(fetches))] == [0, 1, 2, 3, 4]
    assert len(fetches.threads) == 2, "the first is waited for anyway, the others are made beside"


def test_nothing_is_nothing() -> None:
    assert list(ahead(iter(()))) == []


def test_no_more_than_one_is_fetched_ahead() -> None:
    fetches = Fetches()
    items = ahead(iter(fetches))
    for number in range(3):
        assert next(items).offset == number
        assert fetches.made <= number + 2
    items.close()  # type: ignore[attr-defined]
    assert fetches.made <= 4, "who stops early fetches no more"


def test_what_goes_wrong_is_told_after_what_came_before() -> None:
    items = ahead(iter(Fetches(broken=3)))
    assert [next(items).offset for _ in range(3)] == [0, 1, 2]
    with pytest.raises(FlockError, match="no node could serve it"):
        next(items)
