from __future__ import annotations

import pytest

from flockmq.gossip.member import ALIVE, DEAD, LEFT, SUSPECT, Member, MemberEvent, fingerprint, is_newer


def member(boot: int = 5, incarnation: int = 2, state: int = ALIVE) -> Member:
    return Member(1, boot, "n1@a", "a", 16_000, incarnation, state)


@pytest.mark.parametrize(
    ("claim", "known", "newer"),
    [
        ((5, 2, ALIVE), (5, 2, ALIVE), False),
        ((5, 2, SUSPECT), (5, 2, ALIVE), True),
        ((5, 2, DEAD), (5, 2, SUSPECT), True),
        ((5, 2, LEFT), (5, 2, DEAD), True),
        ((5, 2, ALIVE), (5, 2, SUSPECT), False),
        ((5, 3, ALIVE), (5, 2, DEAD), True),
        ((5, 1, DEAD), (5, 2, ALIVE), False),
        ((6, 0, ALIVE), (5, 9, LEFT), True),
        ((4, 9, DEAD), (5, 0, ALIVE), False),
    ],
)
def test_precedence(claim: tuple[int, int, int], known: tuple[int, int, int], newer: bool) -> None:
    assert is_newer(*claim, member(*known)) is newer


def test_only_alive_and_suspects_are_live() -> None:
    assert [member(state=state).is_live for state in (ALIVE, SUSPECT, DEAD, LEFT)] == [True, True, False, False]


def test_members_compare_by_value() -> None:
    assert member() == member()
    assert hash(member()) == hash(member())
    assert member() != member(incarnation=3)
    assert member() != Member(1, 5, "n1@a", "b", 16_000, 2)
    assert member() != object()


def test_another_claim_keeps_the_details() -> None:
    assert member().with_claim(7, DEAD) == member(incarnation=7, state=DEAD)


def test_fingerprints_differ() -> None:
    prints = {fingerprint(node, boot, turn) for node in range(20) for boot in range(20) for turn in range(20)}
    assert len(prints) == 8_000
    assert all(0 <= value < 1 << 64 for value in prints)


def test_what_people_see() -> None:
    assert repr(MemberEvent(4, member(state=DEAD))) == "<dead <n1@a 0000000000000001 at a:16000 dead 5.2>>"
