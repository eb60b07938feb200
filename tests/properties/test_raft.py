"""Quorums against brute force, frames against garbage, logs against a list, and whole groups against bad luck."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.raft.codec import FrameError, decode_frame, encode_frame
from flockmq.raft.configuration import Configuration, decode_configuration
from flockmq.raft.entry import Entry
from flockmq.raft.log_view import RaftLog
from flockmq.raft.messages import Message
from raft_cluster import MemoryLog, entry
from unit.raft.test_codec import MESSAGES, plain

nodes = st.integers(1, 7)
configurations = st.builds(
    Configuration,
    st.lists(nodes, max_size=5).map(tuple),
    st.lists(nodes, max_size=5).map(tuple),
    st.lists(nodes, max_size=3).map(tuple),
)
values = st.dictionaries(nodes, st.integers(0, 20))


def majorities(voters: tuple[int, ...]) -> list[set[int]]:
    return [set(some) for size in range(len(voters) // 2 + 1, len(voters) + 1) for some in combinations(voters, size)]


def decides(configuration: Configuration, those: set[int]) -> bool:
    sides = [configuration.voters] + ([configuration.outgoing] if configuration.outgoing else [])
    return all(any(majority <= those for majority in majorities(side)) for side in sides)


@given(configurations, st.sets(nodes))
def test_a_quorum_is_a_majority_of_both_sides(configuration: Configuration, those: set[int]) -> None:
    assert configuration.has_quorum(those) == decides(configuration, those)


@given(configurations, values)
def test_what_is_agreed_is_the_largest_value_that_a_quorum_reached(
    configuration: Configuration, reached: dict[int, int]
) -> None:
    def reached_by_a_quorum(value: int) -> bool:
        return decides(configuration, {node for node, its in reached.items() if its >= value})

    assert configuration.agreed(reached) == max(filter(reached_by_a_quorum, reached.values()), default=0)


@given(configurations, st.sets(nodes), st.sets(nodes))
def test_two_quorums_meet(configuration: Configuration, some: set[int], others: set[int]) -> None:
    if configuration.has_quorum(some) and configuration.has_quorum(others):
        assert some & others


@given(configurations)
def test_a_joint_configuration_meets_both_of_its_ends(configuration: Configuration) -> None:
    joint = Configuration(configuration.voters, configuration.outgoing or (1,))
    for those in majorities(joint.voters):
        for more in majorities(joint.outgoing):
            assert joint.has_quorum(those | more)


@given(configurations)
def test_configurations_come_back_from_their_bytes(configuration: Configuration) -> None:
    assert decode_configuration(configuration.encode()) == configuration


@given(st.lists(st.sampled_from(MESSAGES), max_size=6))
def test_frames_come_back_from_their_bytes(messages: list[Message]) -> None:
    decoded = decode_frame(encode_frame(1, 2, 3, 5, 4, messages))
    for before, after in zip(messages, decoded.messages, strict=True):
        after.sender, after.receiver = before.sender, before.receiver
        assert plain(after) == plain(before)


@given(st.lists(st.sampled_from(MESSAGES), max_size=3), st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255))))
def test_a_frame_with_other_bytes_in_it_is_read_or_refused(
    messages: list[Message], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(encode_frame(1, 2, 3, 5, 4, messages))
    for position, value in changes:
        data[position % len(data)] = value
    try:
        frame = decode_frame(bytes(data))
    except FrameError:
        return
    assert len(frame.messages) <= len(data)


@given(st.binary(max_size=300))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(data)


@given(st.lists(st.tuples(st.sampled_from("awtsk"), st.integers(0, 12)), max_size=60), st.integers(0, 900))
def test_a_log_in_two_places_is_one_list(steps: list[tuple[str, int]], tail_bytes_max: int) -> None:
    """append, write out, truncate, sync; whatever the order, reads see one list, and the disk ends up with it."""
    disk = MemoryLog()
    log = RaftLog(disk, tail_bytes_max)
    plain_log: list[Entry] = []
    term = 1
    flying: list[tuple[int, list[Entry], int, bool]] = []
    barrier = number = 0
    for step, value in steps:
        if step == "a":
            fresh = entry(len(plain_log) + 1, term)
            log.append(fresh)
            plain_log.append(fresh)
        elif step == "t":
            index = max(log.durable, 0) + 1 + value
            if 1 <= index <= len(plain_log):
                log.truncate_from(index)
                del plain_log[index - 1 :]
                term += 1
        elif step == "w":
            truncated = log.take_truncation()
            entries = log.take_unwritten(1 + value * 100)
            number += 1
            if log.rewritten:
                log.rewritten = False
                barrier = number
            flying.append((truncated, entries, log.handed, False))
        elif step == "s" and flying:
            truncated, entries, handed, _ = flying.pop(0)
            if truncated:
                del disk.items[truncated - 1 :]
            disk.items += [item.data for item in entries]
            if number - len(flying) >= barrier and not log.rewritten:
                log.became_durable(handed)
        else:
            log.trim()
        assert log.last_index == len(plain_log)
        assert log.term_at(log.last_index) == (plain_log[-1].term if plain_log else 0)
        assert disk.items[: log.durable] == [item.data for item in plain_log[: log.durable]]
        if plain_log:
            low = random.Random(value).randint(1, len(plain_log))
            found = log.read(low, len(plain_log) + 1, 1 << 20)
            assert [item.data for item in found] == [item.data for item in plain_log[low - 1 :]]
