from __future__ import annotations

import random
from dataclasses import replace

import pytest

from flockmq.gossip.claims import Claim, encode_claim, read_claims
from flockmq.gossip.member import (
    ALIVE,
    ALIVE_AGAIN,
    CHANGED,
    CONFLICT,
    DEAD,
    DIED,
    HAS_LEFT,
    JOINED,
    LEFT,
    SUSPECT,
    SUSPECTED,
    Member,
)
from flockmq.gossip.roster import Roster
from flockmq.gossip.settings import LAN, GossipSettings

ME = Member(1, 100, "n1@h1", "h1", 16_000)


def node(number: int, incarnation: int = 0, state: int = ALIVE, boot: int = 100) -> Member:
    return Member(number, boot, f"n{number}@h{number}", f"h{number}", 16_000, incarnation, state)


def claim(member: Member, source: int = 0, *, brief: bool = False) -> Claim:
    return read_claims(encode_claim(member, source, brief=brief), 0, 1)[0]


def roster(*members: Member, settings: GossipSettings = LAN) -> Roster:
    made = Roster(settings, ME, random.Random(1))
    for member in members:
        hear(made, member)
    made.events = []
    return made


def hear(known: Roster, member: Member, source: int = 0, *, now: int = 0, list_of: int = 0) -> list[int]:
    before = len(known.events)
    known.hear(claim(member, source), now, list_of=list_of)
    return [event.kind for event in known.events[before:]]


def test_a_newcomer_joins_and_is_passed_on() -> None:
    known = roster()
    assert hear(known, node(2)) == [JOINED]
    assert known.live == [2]
    assert len(known.news) == 1
    assert hear(known, node(2)) == []


def test_life_of_a_suspect_that_contradicts() -> None:
    known = roster(node(2), node(3))
    assert hear(known, node(2, 0, SUSPECT), 3) == [SUSPECTED]
    assert 2 in known.suspicions
    assert hear(known, node(2, 0, ALIVE)) == []
    assert hear(known, node(2, 1, ALIVE)) == [ALIVE_AGAIN]
    assert not known.suspicions


def test_the_dead_stay_dead_until_they_contradict() -> None:
    known = roster(node(2))
    assert hear(known, node(2, 0, DEAD)) == [DIED]
    assert hear(known, node(2, 0, ALIVE)) == []
    assert hear(known, node(2, 0, SUSPECT)) == []
    assert known.live == []
    assert hear(known, node(2, 1, ALIVE)) == [ALIVE_AGAIN]
    assert known.live == [2]
    assert not known.gone


def test_a_suspicion_of_a_later_incarnation_shows_that_the_dead_one_lived_again() -> None:
    known = roster(node(2, 0, ALIVE), node(3))
    hear(known, node(2, 0, DEAD))
    assert hear(known, node(2, 1, SUSPECT), 3) == [ALIVE_AGAIN, SUSPECTED]


def test_who_leaves_is_not_dead_and_may_come_again() -> None:
    known = roster(node(2))
    assert hear(known, node(2, 0, LEFT)) == [HAS_LEFT]
    assert hear(known, node(2, 0, DEAD)) == []
    assert hear(known, node(2, 1, ALIVE)) == [JOINED]


def test_a_dead_one_that_had_left_is_no_news() -> None:
    known = roster(node(2))
    hear(known, node(2, 0, DEAD))
    assert hear(known, node(2, 0, LEFT)) == []
    assert known.members[2].state == LEFT


@pytest.mark.parametrize(("state", "events"), [(ALIVE, [DIED, JOINED]), (SUSPECT, [DIED, JOINED]), (DEAD, [JOINED])])
def test_a_new_life_replaces_the_old_one_at_once(state: int, events: list[int]) -> None:
    known = roster(node(2), node(3))
    hear(known, node(2, 0, state), 3)
    known.events = []
    assert hear(known, node(2, boot=101)) == events
    assert known.live.count(2) == 1
    assert not known.suspicions
    assert hear(known, node(2, 9, DEAD)) == [], "what is said of the old life does not matter any more"


def test_a_node_with_a_new_id_at_an_address_ends_the_one_before() -> None:
    known = roster(node(2))
    fresh = Member(9, 101, "n2@h2", "h2", 16_000)
    assert hear(known, fresh) == [JOINED, DIED]
    assert known.live == [9]
    assert hear(known, node(2)) == []


def test_two_that_live_and_tell_the_same_address_do_not_end_each_other_for_ever() -> None:
    known = roster(node(2))
    hear(known, Member(9, 101, "n2@h2", "h2", 16_000))
    assert hear(known, node(2, 1)) == [ALIVE_AGAIN, CONFLICT]
    assert sorted(known.live) == [2, 9]


def test_late_word_of_the_former_holder_of_an_address_ends_there() -> None:
    known = roster(Member(9, 101, "n2@h2", "h2", 16_000))
    assert hear(known, node(2)) == [JOINED, DIED]
    assert known.live == [9]


def test_the_former_holder_of_the_own_address_is_dead() -> None:
    known = roster()
    assert hear(known, Member(9, 99, "old@h1", "h1", 16_000)) == [JOINED, DIED]


def test_somebody_else_at_the_own_address_is_a_conflict() -> None:
    known = roster()
    assert hear(known, Member(9, 101, "new@h1", "h1", 16_000)) == [JOINED, CONFLICT]


def test_one_name_at_two_addresses_is_a_conflict_and_both_stay() -> None:
    known = roster(node(2))
    assert hear(known, Member(9, 101, "n2@h2", "elsewhere", 16_000)) == [JOINED, CONFLICT]
    assert sorted(known.live) == [2, 9]


def test_somebody_with_the_own_id_and_a_later_boot_is_a_conflict_once() -> None:
    known = roster()
    assert hear(known, Member(1, 101, "n1@h1", "h1", 16_000)) == [CONFLICT]
    assert hear(known, Member(1, 101, "n1@h1", "h1", 16_000)) == []
    assert known.me.boot == 100


@pytest.mark.parametrize("state", [SUSPECT, DEAD, LEFT])
def test_what_is_said_wrongly_of_this_node_is_contradicted(state: int) -> None:
    known = roster(node(2))
    assert known.hear(claim(ME.with_claim(4, state), 2), 0)
    assert known.me.incarnation == 5
    assert known.health.score == 1
    assert known.members[1] is known.me
    assert known.hear(claim(ME.with_claim(4, state), 2), 0), "old talk needs an answer"
    assert known.me.incarnation == 5


def test_a_changed_address_is_told() -> None:
    known = roster(node(2))
    moved = Member(2, 100, "n2@h2", "h9", 16_001, 1)
    assert hear(known, moved) == [CHANGED]
    assert known.members[2].port == 16_001
    assert hear(known, node(2, 2)) == [CHANGED]
    assert hear(known, node(2, 3)) == []


def test_lists_kill_nobody() -> None:
    known = roster(node(2), node(3))
    assert hear(known, node(2, 0, DEAD), list_of=3) == []
    assert known.accused == [2]
    assert list(known.order.check_soon) == [2]
    assert hear(known, node(3, 0, LEFT), list_of=3) == [HAS_LEFT]


def test_a_list_confirms_what_is_suspected() -> None:
    known = roster(*[node(number) for number in range(2, 12)])
    hear(known, node(2, 0, SUSPECT), 3)
    for teller in (3, 4, 5):
        hear(known, node(2, 0, DEAD), list_of=teller)
    assert known.suspicions[2].sources == {3, 4, 5}
    assert known.members[2].state == SUSPECT


def test_lists_tell_of_the_dead_so_that_they_can_be_tried() -> None:
    known = roster()
    assert hear(known, node(2, 0, DEAD), list_of=3) == []
    assert list(known.gone) == [2]
    assert hear(known, node(2, 0, ALIVE)) == []


def test_brief_word_of_strangers_is_nothing() -> None:
    known = roster()
    for state in (SUSPECT, DEAD, LEFT):
        known.hear(claim(node(2, 0, state), 3, brief=True), 0)
    assert list(known.members) == [1]


def test_details_that_can_not_be_read_change_nothing() -> None:
    known = roster()
    known.hear(Claim(2, 1, 0, ALIVE, 0, b"nonsense"), 0)
    assert known.unreadable == 1
    assert list(known.members) == [1]


def test_confirmations_are_passed_on_until_there_are_enough() -> None:
    known = roster(*[node(number) for number in range(2, 12)])
    hear(known, node(2, 0, SUSPECT), 3)
    for source in (4, 5, 6):
        hear(known, node(2, 0, SUSPECT), source)
    assert known.suspicions[2].sources == {3, 4, 5}
    assert known.suspicions[2].timeout_ms() == LAN.suspicion_min_ms(11)


def test_the_gone_are_forgotten_in_time_and_by_number() -> None:
    settings = replace(LAN, dead_keep_ms=1_000, left_keep_ms=100, dead_max=3)
    known = roster(*[node(number) for number in range(2, 9)], settings=settings)
    hear(known, node(2, 0, LEFT), now=0)
    hear(known, node(3, 0, DEAD), now=0)
    known.forget_old(100)
    assert list(known.gone) == [3]
    for number in range(4, 8):
        hear(known, node(number, 0, DEAD), now=500)
    assert list(known.gone) == [5, 6, 7]
    known.forget_old(1_500)
    assert list(known.members) == [1, 8]
    assert not known.forget(8)


def test_there_are_no_more_members_than_the_limit() -> None:
    known = roster(node(2), node(3), settings=replace(LAN, members_max=3))
    assert hear(known, node(4)) == []
    assert known.full == 1
    hear(known, node(3, 0, DEAD))
    assert hear(known, node(4)) == [JOINED], "the dead make way"
    assert sorted(known.members) == [1, 2, 4]


def test_everybody_is_probed_once_a_round() -> None:
    known = roster(*[node(number) for number in range(2, 22)])
    rounds = [[known.order.take_next() for _ in range(20)] for _ in range(3)]
    for one in rounds:
        assert sorted(one) == list(range(2, 22))
    assert rounds[1] != rounds[2]
    hear(known, node(5, 0, DEAD))
    assert 5 not in [known.order.take_next() for _ in range(40)]


def test_nobody_to_probe() -> None:
    assert roster().order.take_next() == 0
    assert roster().order.pick(3) == []


def test_random_members_are_different() -> None:
    known = roster(*[node(number) for number in range(2, 8)])
    for _ in range(50):
        assert len(set(known.order.pick(3))) == 3
    assert sorted(known.order.pick(9)) == list(range(2, 8))


def test_coming_and_going_does_not_lengthen_the_round() -> None:
    known = roster(node(2), node(3))
    for turn in range(500):
        hear(known, node(2, turn, DEAD))
        hear(known, node(2, turn + 1, ALIVE))
        known.order.take_next()
    assert len(known.order.round) < 100


def test_the_view_is_the_same_for_the_same_live_members() -> None:
    one = roster(node(2), node(3), node(4))
    other = Roster(LAN, node(3), random.Random(2))
    for member in (node(4), ME, node(2)):
        hear(other, member)
    assert one.view == other.view
    assert one.buckets == other.buckets
    hear(one, node(2, 0, SUSPECT), 3)
    assert one.view == other.view, "a suspect is live"
    hear(one, node(2, 0, DEAD))
    assert one.view != other.view
    hear(other, node(2, 0, DEAD))
    assert one.view == other.view
