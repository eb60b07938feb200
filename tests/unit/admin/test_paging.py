from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.admin.model import Page
from flockmq.admin.paging import Pager
from flockmq.errors import CURSOR_EXPIRED, INVALID_PARAMETER, ApiError


def make_pager(**bounds: int) -> Pager:
    numbers = count()
    return Pager(lambda: f"walk{next(numbers)}", **bounds)


def walk(entries: dict[int, bool]) -> Iterator[int | None]:
    """Keys whose value is True pass the filter."""
    for key in list(entries):
        yield key if entries.get(key) else None


def page(pager: Pager, entries: dict[int, bool], after: str | None, limit: int = 10, now_ms: int = 0) -> Page[int]:
    return pager.page("numbers", lambda: walk(entries), after, limit, now_ms)


def test_a_listing_that_fits_into_one_page_leaves_nothing_behind() -> None:
    pager = make_pager()
    assert page(pager, dict.fromkeys(range(5), True), None) == Page(items=[0, 1, 2, 3, 4], next=None)
    assert len(pager) == 0


def test_pages_follow_each_other_until_next_is_null() -> None:
    pager = make_pager()
    entries = dict.fromkeys(range(7), True)
    first = page(pager, entries, None, limit=3)
    second = page(pager, entries, first.next, limit=3)
    third = page(pager, entries, second.next, limit=3)
    assert (first.items, second.items, third.items) == ([0, 1, 2], [3, 4, 5], [6])
    assert third.next is None
    assert len(pager) == 0


@given(
    before=st.dictionaries(st.integers(0, 200), st.booleans(), max_size=60),
    limit=st.integers(1, 9),
    changes=st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=40),
)
def test_what_stays_is_listed_exactly_once_whatever_comes_and_goes(
    before: dict[int, bool], limit: int, changes: list[tuple[int, bool]]
) -> None:
    pager = make_pager(scan_max=7)
    entries = dict(before)
    listed: list[int] = []
    after: str | None = None
    left: set[int] = set()
    pending = list(changes)
    while True:
        one = page(pager, entries, after, limit)
        listed += one.items
        assert len(one.items) <= limit
        after = one.next
        if after is None:
            break
        for key, arrives in (pending.pop() for _ in range(min(3, len(pending)))):
            if arrives and key not in before:
                entries[key] = True
            elif not arrives:
                left.add(key)
                entries.pop(key, None)
    stayed = [key for key, passes in before.items() if passes and key not in left]
    assert [key for key in listed if key in stayed] == stayed
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set(before)


def test_a_page_examines_a_bounded_number_of_entries_however_few_pass() -> None:
    examined = []

    def entries() -> Iterator[int | None]:
        for number in range(1_000):
            examined.append(number)
            yield number if number == 999 else None

    pager = make_pager(scan_max=100)
    first = pager.page("rare", entries, None, 10, 0)
    assert first.items == []
    assert first.next is not None
    assert len(examined) == 100


def test_the_last_page_can_be_asked_for_again() -> None:
    pager = make_pager()
    entries = dict.fromkeys(range(9), True)
    first = page(pager, entries, None, limit=3)
    second = page(pager, entries, first.next, limit=3)
    assert page(pager, entries, first.next, limit=3) == second
    assert page(pager, entries, second.next, limit=3).items == [6, 7, 8]


def test_an_older_page_is_expired() -> None:
    pager = make_pager()
    entries = dict.fromkeys(range(20), True)
    first = page(pager, entries, None, limit=3)
    second = page(pager, entries, first.next, limit=3)
    page(pager, entries, second.next, limit=3)
    with pytest.raises(ApiError) as refused:
        page(pager, entries, first.next, limit=3)
    assert refused.value.kind is CURSOR_EXPIRED


def test_a_walk_that_rests_too_long_is_forgotten() -> None:
    pager = make_pager(idle_ms_max=1_000)
    entries = dict.fromkeys(range(20), True)
    first = page(pager, entries, None, limit=3, now_ms=0)
    second = page(pager, entries, first.next, limit=3, now_ms=1_000)
    with pytest.raises(ApiError) as refused:
        page(pager, entries, second.next, limit=3, now_ms=2_001)
    assert refused.value.kind is CURSOR_EXPIRED
    assert "start again" in str(refused.value)
    assert len(pager) == 0


def test_the_walk_used_longest_ago_makes_way_for_a_new_one() -> None:
    pager = make_pager(walks_max=2)
    entries = dict.fromkeys(range(20), True)
    first, second = page(pager, entries, None, limit=3), page(pager, entries, None, limit=3)
    first = page(pager, entries, first.next, limit=3)
    page(pager, entries, None, limit=3)
    assert len(pager) == 2
    assert page(pager, entries, first.next, limit=3).items == [6, 7, 8]
    with pytest.raises(ApiError):
        page(pager, entries, second.next, limit=3)


def test_a_cursor_holds_for_its_own_filters_only() -> None:
    pager = make_pager()
    entries = dict.fromkeys(range(20), True)
    first = page(pager, entries, None, limit=3)
    with pytest.raises(ApiError) as refused:
        pager.page("letters", lambda: walk(entries), first.next, 3, 0)
    assert refused.value.kind is INVALID_PARAMETER


@pytest.mark.parametrize(
    "after", ["", ".", "x", "walk0.", "walk0.-1", "walk0.x", "walk0.1.", f"walk0.{'9' * 5_000}", "walk0.²"]
)
def test_garbage_is_no_cursor(after: str) -> None:
    pager = make_pager()
    entries = dict.fromkeys(range(20), True)
    page(pager, entries, None, limit=3)
    with pytest.raises(ApiError) as refused:
        page(pager, entries, after, limit=3)
    assert refused.value.kind in {INVALID_PARAMETER, CURSOR_EXPIRED}


def test_page_zero_was_never_given() -> None:
    pager = make_pager()
    entries = dict.fromkeys(range(20), True)
    page(pager, entries, None, limit=3)
    with pytest.raises(ApiError) as refused:
        page(pager, entries, "walk0.0", limit=3)
    assert refused.value.kind is CURSOR_EXPIRED
