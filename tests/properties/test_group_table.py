"""The table of consumer groups under any statements: equal by replay and checkpoint, and to an obvious table."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.durable.machine.group_bodies import (
    BURIED,
    DEAD,
    DROP,
    FAIL,
    OPEN,
    SETTLE,
    Death,
    Failed,
    GroupStatement,
    burying,
    dropping,
    dying,
    failing,
    group_body,
    opening,
    read_group_body,
    settling,
)
from flockmq.durable.machine.group_table import GroupTable, decode_groups
from flockmq.durable.machine.ranges import RangeSet

END: Final = 24
TARGETS: Final = (0, 7, 8)

groups = st.sampled_from([1, 2])
generations = st.integers(1, 3)
offsets = st.integers(0, END - 1)
ranges = st.tuples(offsets, st.integers(0, 6)).map(lambda one: (one[0], min(one[0] + one[1], END)))
deaths = st.builds(Death, offsets, st.integers(1, 5), st.sampled_from([b"", b"bad"]), st.sampled_from([b"m", b"n"]))
statements = st.one_of(
    st.builds(opening, groups, generations, offsets),
    st.builds(settling, groups, generations, st.lists(ranges, min_size=1, max_size=3)),
    st.builds(settling, groups, generations, st.lists(ranges, min_size=1, max_size=3)),
    st.builds(failing, groups, generations, st.lists(st.builds(Failed, offsets, st.integers(1, 4), st.just(9)))),
    st.builds(dying, groups, generations, st.sampled_from(TARGETS), st.lists(deaths, max_size=3)),
    st.builds(burying, st.sampled_from(TARGETS), st.integers(1, 20)),
    st.builds(dropping, groups),
)


class Obvious:
    """A group, one offset after the other."""

    def __init__(self, generation: int, floor: int) -> None:
        self.generation = generation
        self.settled = set(range(floor))
        self.failed: dict[int, int] = {}
        self.dying: dict[int, tuple[int, int]] = {}

    def change(self, statement: GroupStatement, index: int) -> None:
        if statement.what == SETTLE:
            for low, high in statement.ranges:
                self.settle(set(range(low, high)) - set(self.dying))
        elif statement.what == FAIL:
            for one in statement.failed:
                if one.offset not in self.settled and one.offset not in self.dying:
                    self.failed[one.offset] = max(self.failed.get(one.offset, 0), one.deliveries)
        elif statement.what == DEAD:
            for death in statement.deaths:
                before = self.dying.get(death.offset)
                if death.offset in self.settled or (before is not None and before[0] == statement.target):
                    continue
                self.failed.pop(death.offset, None)
                self.dying.pop(death.offset, None)
                if statement.target:
                    self.dying[death.offset] = (statement.target, index)
                else:
                    self.settle({death.offset})

    def settle(self, more: set[int]) -> None:
        self.settled |= more
        for offset in more:
            self.failed.pop(offset, None)


def apply_obvious(known: dict[int, Obvious], statement: GroupStatement, index: int) -> None:
    group = known.get(statement.group)
    if statement.what == OPEN:
        if group is None or statement.generation > group.generation:
            known[statement.group] = Obvious(statement.generation, statement.floor)
    elif statement.what == DROP:
        known.pop(statement.group, None)
    elif statement.what == BURIED:
        for one in known.values():
            for offset, run in list(one.dying.items()):
                if run == (statement.target, statement.sequence):
                    del one.dying[offset]
                    one.settle({offset})
    elif group is not None and statement.generation == group.generation:
        group.change(statement, index)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.lists(statements, min_size=1, max_size=4), st.booleans()), max_size=25))
def test_the_table_is_as_an_obvious_one_has_it(steps: list[tuple[list[GroupStatement], bool]]) -> None:
    table = GroupTable()
    copy = GroupTable()
    known: dict[int, Obvious] = {}
    for index, (step, reopens) in enumerate(steps, 1):
        body = read_group_body(group_body(5, step))
        assert body is not None
        table.apply(body, index)
        again = read_group_body(group_body(5, step))
        assert again is not None
        copy.apply(again, index)
        for statement in step:
            apply_obvious(known, statement, index)
        if reopens:
            copy = decode_groups(copy.encode())
        assert copy.encode() == table.encode()
        assert {group: state.generation for group, state in table.groups.items()} == {
            group: one.generation for group, one in known.items()
        }
        for group, one in known.items():
            state = table.groups[group]
            assert [offset for offset in range(END) if state.is_settled(offset)] == sorted(one.settled)
            assert {offset: failed.deliveries for offset, failed in state.failed.items()} == one.failed
            assert state.dying == one.dying
            assert state.floor not in state.settled
        assert table.letters == sum(map(len, table.runs.values()))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), offsets, st.integers(0, 9)), max_size=40), offsets, offsets)
def test_range_sets_are_sets(steps: list[tuple[bool, int, int]], low: int, high: int) -> None:
    ranges = RangeSet()
    plain: set[int] = set()
    for adds, begin, length in steps:
        if adds:
            ranges.add(begin, begin + length)
            plain |= set(range(begin, begin + length))
        else:
            ranges.remove(begin, begin + length)
            plain -= set(range(begin, begin + length))
        assert {offset for one in ranges.ranges() for offset in range(*one)} == plain
        assert ranges.size == len(plain)
        assert all(a[1] < b[0] for a, b in zip(ranges.ranges(), ranges.ranges()[1:], strict=False))
    asked = set(range(low, high))
    assert {offset for one in ranges.gaps(low, high) for offset in range(*one)} == asked - plain
    assert {offset for one in ranges.parts(low, high) for offset in range(*one)} == asked & plain
    assert [offset for offset in range(40) if offset in ranges] == sorted(plain)
    end = ranges.take_head(low)
    assert end >= low
    assert end not in plain
