from __future__ import annotations

from flockmq.routing.familiar import FamiliarNames


def test_a_name_is_known_from_the_second_time_on() -> None:
    names = FamiliarNames(64)
    assert not names.meet(b"a/b")
    assert names.meet(b"a/b")
    assert names.meet(b"a/b")


def test_most_names_are_told_apart() -> None:
    names = FamiliarNames(4_096)
    strangers = sum(not names.meet(b"device/%d" % number) for number in range(1_000))
    assert strangers > 900


def test_most_names_are_remembered_while_there_is_room() -> None:
    names = FamiliarNames(4_096)
    for number in range(1_000):
        names.meet(b"device/%d" % number)
    assert sum(names.meet(b"device/%d" % number) for number in range(1_000)) > 800


def test_many_names_push_old_ones_out() -> None:
    names = FamiliarNames(64)
    names.meet(b"old")
    for number in range(10_000):
        names.meet(b"device/%d" % number)
    # Nothing but a few bytes is kept: a name of long ago is a stranger again, but for one chance in a hundred or so.
    assert sum(names.meet(b"stranger/%d" % number) for number in range(1_000)) < 200
