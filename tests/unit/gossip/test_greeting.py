from __future__ import annotations

from flockmq.gossip.greeting import CONTACTS_MAX, HELLOS_PER_S
from flockmq.gossip.member import ALIVE, DEAD, JOINED, LEFT, Member
from flockmq.gossip.messages import ACK, GOSSIP, HELLO, PING, WELCOME, decode
from swim_cases import CLUSTER, address, member, run, say, swim


def test_a_greeting_is_answered_with_some_of_the_list() -> None:
    one = swim(*[member(number) for number in range(2, 40)])
    one.roster.news.take(100_000, 1)  # nothing new is left to tell
    assert not len(one.roster.news)
    (welcome,) = say(one, HELLO, sender=member(50), claims=[member(50)])
    assert welcome.kind == WELCOME
    assert welcome.claims[0].node_id == 1
    assert len({claim.node_id for claim in welcome.claims}) > 5
    assert [event.kind for event in one.take_events()] == [JOINED]
    assert one.state_of(50) == ALIVE
    assert one.state_of(51) == DEAD


def test_a_stranger_that_pings_is_asked_who_it_is() -> None:
    kinds = [answer.kind for answer in say(swim(), PING, sender=member(2), about=1)]
    assert sorted(kinds) == [ACK, HELLO]


def test_one_whose_incarnation_is_newer_than_known_is_asked() -> None:
    kinds = [answer.kind for answer in say(swim(member(2)), PING, sender=member(2, 3), about=1)]
    assert sorted(kinds) == [ACK, HELLO]


def test_greetings_are_bounded() -> None:
    one = swim()
    answers = 0
    for number in range(2, 1_000):
        answers += len(say(one, PING, sender=member(number), about=99))
    assert answers == HELLOS_PER_S


def test_contact_points_are_greeted_until_one_answers() -> None:
    one = swim()
    one.join([address(2), address(3)], 0)
    sent = run(one, 5_000)
    assert {to for to, said in sent if said.kind == HELLO} == {address(2), address(3)}
    assert len(sent) >= 8
    for to, said in sent[-2:]:
        who = member(int(to[0][1:]))
        say(one, WELCOME, sender=who, claims=[who], sequence=said.sequence, now=5_000)
    assert not [said for _, said in run(one, 5_400) if said.kind == HELLO]


def test_a_contact_point_that_is_the_node_itself_is_left_alone() -> None:
    one = swim()
    one.join([address(1)], 0)
    one.tick(0)
    ((to, body),) = one.take_datagrams()
    one.receive_datagram(body, to, 1)
    assert run(one, 10_000) == []


def test_contact_points_are_bounded_and_new_ones_count_more_than_silent_ones() -> None:
    one = swim()
    one.join([address(number) for number in range(2, 1_000)], 0)
    one.tick(0)
    greeted = [to for to, _ in one.take_datagrams()]
    assert len(greeted) == CONTACTS_MAX
    assert address(999) in greeted


def test_a_contact_point_may_answer_from_another_address() -> None:
    one = swim()
    one.join([("a-name", 16_000)], 0)
    one.tick(0)
    ((to, body),) = one.take_datagrams()
    assert to == ("a-name", 16_000)
    say(one, WELCOME, sender=member(2), claims=[member(2)], sequence=decode(body).sequence)
    sent = run(one, 3_000)
    assert sent
    assert not [said for _, said in sent if said.kind == HELLO]


def test_a_link_to_a_dead_member_lets_it_contradict() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, DEAD)])
    one.peer_up(2, 0)
    ((to, body),) = one.take_datagrams()
    hello = decode(body)
    assert (to, hello.kind) == (address(2), HELLO)
    assert (2, DEAD) in [(claim.node_id, claim.state) for claim in hello.claims]
    assert 2 not in one.lists.linked


def test_the_dead_are_tried_again_and_those_who_left_are_not() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[member(2, 0, DEAD)])
    say(one, GOSSIP, sender=member(3), claims=[member(3, 0, LEFT)])
    greeted = [to for to, said in run(one, 10_000) if said.kind == HELLO]
    assert len(greeted) >= 5
    assert set(greeted) == {address(2)}
    assert one.forget(2)
    assert run(one, 20_000) == []


def test_whose_address_somebody_else_has_now_is_not_tried_again() -> None:
    one = swim(member(2), member(3))
    say(one, GOSSIP, sender=member(3), claims=[Member(9, 101, "n2@h2", "h2", 16_000, cluster_id=CLUSTER)])
    assert one.state_of(2) == DEAD
    assert address(2) not in [to for to, said in run(one, 1_900) if said.kind == HELLO]


def test_a_few_of_a_large_cluster_try_the_dead() -> None:
    greeted = 0
    for number in range(100):
        one = swim(*[member(other) for other in range(200, 400)], number=number + 1)
        say(one, GOSSIP, sender=member(201), claims=[member(200, 0, DEAD)])
        one.tick(one._greeter.revive_at)
        greeted += sum(decode(body).kind == HELLO for _, body in one.take_datagrams())
    assert 0 < greeted < 20
