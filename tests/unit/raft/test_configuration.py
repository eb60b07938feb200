from __future__ import annotations

import pytest

from flockmq.raft.configuration import Configuration, decode_configuration


@pytest.mark.parametrize(
    ("voters", "outgoing", "nodes", "expected"),
    [
        ((1, 2, 3), (), {1, 2}, True),
        ((1, 2, 3), (), {1}, False),
        ((1, 2, 3), (), {1, 4, 5}, False),
        ((1, 2), (), {1}, False),
        ((1,), (), {1}, True),
        ((), (), {1}, False),
        ((1, 2, 3), (4, 5, 6), {1, 2, 4, 5}, True),
        ((1, 2, 3), (4, 5, 6), {1, 2, 3, 4}, False),
        ((2, 3, 4), (1, 2, 3), {2, 3}, True),
    ],
)
def test_quorums(voters: tuple[int, ...], outgoing: tuple[int, ...], nodes: set[int], expected: bool) -> None:
    assert Configuration(voters, outgoing).has_quorum(nodes) is expected


@pytest.mark.parametrize(
    ("voters", "outgoing", "values", "expected"),
    [
        ((1, 2, 3), (), {1: 5, 2: 7, 3: 2}, 5),
        ((1, 2, 3, 4), (), {1: 5, 2: 7, 3: 2, 4: 9}, 5),
        ((1, 2), (), {1: 5}, 0),
        ((1, 2, 3), (1, 4, 5), {1: 9, 2: 8, 4: 3}, 3),
        ((), (), {1: 9}, 0),
    ],
)
def test_what_a_quorum_has_reached(
    voters: tuple[int, ...], outgoing: tuple[int, ...], values: dict[int, int], expected: int
) -> None:
    assert Configuration(voters, outgoing).agreed(values) == expected


def test_a_learner_that_is_outgoing_still_votes() -> None:
    joint = Configuration((1, 2), (1, 2, 3), (3,))
    assert joint.is_voter(3)
    assert joint.members() == [1, 2, 3]
    assert joint.settled() == Configuration((1, 2), (), (3,))
    assert not joint.settled().is_voter(3)


def test_it_comes_back_from_its_bytes() -> None:
    joint = Configuration((1, 2), (1, 2, 3), (3, 2**63))
    assert decode_configuration(joint.encode()) == joint
    assert hash(decode_configuration(joint.encode())) == hash(joint)
    assert repr(joint) == f"Configuration(voters=[1, 2], outgoing=[1, 2, 3], learners=[3, {2**63}])"


@pytest.mark.parametrize(
    "data", [b"", b"\1", Configuration((1, 2)).encode()[:-1], Configuration((1, 2)).encode() + b"x"]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="A configuration"):
        decode_configuration(data)
