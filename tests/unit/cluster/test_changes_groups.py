from __future__ import annotations

import pytest

from flockmq.cluster import changes_groups
from flockmq.cluster.commands import (
    CONFLICT,
    EXISTS,
    INVALID,
    LIMIT,
    NOT_FOUND,
    AlterTopic,
    CreateHidden,
    CreateNamespace,
    CreateTopic,
    DeleteNamespace,
    DeleteTopic,
)
from flockmq.cluster.commands_groups import AlterGroup, CreateGroup, DeleteGroup, ReadDead, ResetGroup, ShareGroup
from flockmq.cluster.groups import Binding, ConsumerGroup
from flockmq.cluster.model import SESSIONS_TOPIC, Limits
from state_cases import Machine

ALL = (Binding("t"),)


def machine() -> Machine:
    made = Machine(3)
    made.topic("t", 2)
    made.topic("u")
    return made


def group(made: Machine, name: str = "work", namespace: str = "default") -> ConsumerGroup:
    return made.state.consumer_group(namespace, name)


def test_a_group_comes_with_a_topic_for_its_dead_letters() -> None:
    made = machine()
    created = made.done(CreateGroup("work", ALL, start="earliest"))
    assert isinstance(created, ConsumerGroup)
    assert (created.id, created.generation, created.reset_to) == (made.state.index, 1, "earliest")
    assert created.dead_letter == "work.dead"
    dead = made.state.topic("default", "work.dead")
    assert (dead.filters, dead.shards, len(dead.partitions)) == ((), 1, 1), "clients can't publish there"
    assert made.state.versions.groups == made.state.versions.topics == made.state.index


def test_dead_letters_go_to_a_topic_that_is_there_or_nowhere() -> None:
    made = machine()
    made.done(CreateGroup("one", ALL, dead_letter="u"))
    made.done(CreateGroup("two", ALL, dead_letter="none"))
    made.topic("three.dead", 4)
    made.done(CreateGroup("three", ALL))
    assert set(made.state.topics) == {"default/t", "default/u", "default/three.dead"}
    made.refused(CreateGroup("four", ALL, dead_letter="gone"), NOT_FOUND)
    made.done(CreateHidden(SESSIONS_TOPIC))
    assert "own" in made.refused(CreateGroup("four", ALL, dead_letter=SESSIONS_TOPIC), INVALID)
    assert "can't go there" in made.refused(CreateGroup("four", ALL, dead_letter="t"), INVALID)


def test_no_group_without_room_for_its_dead_letters() -> None:
    made = Machine(1)
    made.done(CreateNamespace("acme", Limits(topics_max=1)))
    made.done(CreateTopic("t", "acme"))
    made.refused(CreateGroup("work", ALL, "acme"), LIMIT)
    made.done(CreateGroup("work", ALL, "acme", dead_letter="none"))


@pytest.mark.parametrize(
    ("binding", "says"),
    [
        (Binding("t", "direct"), "needs a key"),
        (Binding("t", "topic"), "needs a key"),
        (Binding("t", "headers"), "needs a key"),
        (Binding("t", "fanout", "x"), "no key"),
        (Binding("t", "", "x"), "no key"),
        (Binding("t", "name", "x"), "must be one of fanout, direct, topic, headers"),
        (Binding("t", "topic", "a/#/b"), "can't be used"),
        (Binding("t", "topic", "a*.b"), "whole words"),
        (Binding("t", "topic", "#.a.#.b.#.c.#.d.#"), "more than 4"),
        (Binding("t", "headers", "x=1"), "all:NAME=VALUE"),
        (Binding("t", "headers", "all:"), "all:NAME=VALUE"),
        (Binding("t", "headers", "any:=1"), "no header"),
        (Binding("t", "headers", "any:" + "a," * 40), "at most 32"),
        (Binding("t", "direct", "a\nb"), "printable"),
    ],
)
def test_bindings_that_can_not_be(binding: Binding, says: str) -> None:
    made = machine()
    assert says in made.refused(CreateGroup("work", (binding,)), INVALID)


def test_groups_that_can_not_be() -> None:
    made = machine()
    made.refused(CreateGroup("a/b", ALL), INVALID)
    made.refused(CreateGroup("x" * 124, ALL), INVALID)
    made.refused(CreateGroup("work", ()), INVALID)
    made.refused(CreateGroup("work", ALL * 2), INVALID)
    made.refused(CreateGroup("work", tuple(Binding("t", "direct", str(each)) for each in range(65))), INVALID)
    made.refused(CreateGroup("work", (Binding("gone"),)), NOT_FOUND)
    made.refused(CreateGroup("work", (Binding(SESSIONS_TOPIC),)), INVALID)
    made.refused(CreateGroup("work", ALL, "gone"), NOT_FOUND)
    made.refused(CreateGroup("work", ALL, mode="solo"), INVALID)
    made.refused(CreateGroup("work", ALL, ack_wait_ms=99), INVALID)
    made.refused(CreateGroup("work", ALL, max_deliver=-1), INVALID)
    made.refused(CreateGroup("work", ALL, max_in_flight=0), INVALID)
    made.refused(CreateGroup("work", ALL, start="tomorrow"), INVALID)
    assert "2 shards" in made.refused(CreateGroup("work", ALL, start="offset:5"), INVALID)
    both = (Binding("t"), Binding("u"))
    assert "2 topics" in made.refused(CreateGroup("work", both, start="offset:0=5"), INVALID)
    made.done(CreateGroup("work", ALL, start="offset:0=5"))
    assert "exists" in made.refused(CreateGroup("work", ALL), EXISTS)


def test_ids_are_never_used_again() -> None:
    made = machine()
    made.done(CreateGroup("work", ALL))
    first = group(made)
    made.done(DeleteGroup("work"))
    assert "default/work.dead" in made.state.topics, "its dead letters stay"
    made.done(CreateGroup("work", ALL))
    assert group(made).id > first.id
    assert "another one" in made.refused(DeleteGroup("work", id=first.id), CONFLICT)
    made.done(DeleteGroup("work", id=group(made).id))
    made.refused(DeleteGroup("work"), NOT_FOUND)


def test_an_altered_group_stays_where_it_stands() -> None:
    made = machine()
    made.done(CreateGroup("work", ALL))
    before = group(made)
    version = made.state.versions.groups
    assert made.done(AlterGroup("work")) == before
    assert made.state.versions.groups == version
    made.done(AlterGroup("work", bindings=(Binding("u"),), mode="key", ack_wait_ms=1_000, hold=False, paused=True))
    after = group(made)
    assert (after.bindings, after.mode, after.ack_wait_ms) == ((Binding("u"),), "key", 1_000)
    assert (after.hold, after.paused) == (False, True)
    assert (after.id, after.generation, after.max_deliver) == (before.id, 1, before.max_deliver)
    made.refused(AlterGroup("work", mode="solo"), INVALID)
    made.refused(AlterGroup("gone"), NOT_FOUND)
    made.done(AlterGroup("work", dead_letter="none"))
    made.done(DeleteTopic("work.dead"))
    made.done(AlterGroup("work", dead_letter=""))
    assert "default/work.dead" in made.state.topics


def test_a_reset_is_a_new_generation() -> None:
    made = machine()
    made.done(CreateGroup("work", ALL))
    made.done(ResetGroup("work", "time:2026-01-01"))
    after = group(made)
    assert (after.generation, after.start, after.reset_to) == (2, "latest", "time:2026-01-01")
    assert after.reset_ms > after.created_ms
    made.refused(ResetGroup("work", "noon"), INVALID)
    made.refused(ResetGroup("gone", "latest"), NOT_FOUND)


def test_a_topic_that_groups_need_is_not_deleted() -> None:
    made = machine()
    for name in "bcadefg":
        made.done(CreateGroup(name, ALL, dead_letter="u"))
    said = made.refused(DeleteTopic("t"), CONFLICT)
    assert "the consumer groups a, b, c, d, e and 2 more" in said
    assert "dead letters of the consumer groups a" in made.refused(DeleteTopic("u"), CONFLICT)
    for name in "abcdefg":
        made.done(DeleteGroup(name))
    made.done(DeleteTopic("t"))
    made.done(DeleteTopic("u"))


def test_a_default_type_that_bindings_do_not_go_with_is_refused() -> None:
    made = machine()
    made.done(CreateGroup("work", ALL))
    made.done(AlterTopic("u", exchange="direct"))
    made.done(CreateGroup("keyed", (Binding("u", "", "k"),)))
    assert "work" in made.refused(AlterTopic("t", exchange="direct"), CONFLICT)
    assert "keyed" in made.refused(AlterTopic("u", exchange="fanout"), CONFLICT)
    made.done(AlterTopic("u", exchange="topic"))
    made.done(AlterTopic("t", shards=3))


def test_shared_subscriptions_make_a_group_of_the_topics_that_their_filter_meets() -> None:
    made = machine()
    made.refused(ShareGroup("pool", "v/x"), NOT_FOUND)
    made.done(ShareGroup("pool", "+/x", linger_ms=5_000))
    shared = group(made, "$share/pool/+/x")
    assert shared.bindings == (Binding("t", "name", "+/x"), Binding("u", "name", "+/x"))
    assert (shared.made_by_share, shared.dead_letter, shared.max_deliver, shared.linger_ms) == (True, "none", 0, 5_000)
    assert made.done(ShareGroup("pool", "+/x")) == shared, "it is there already"
    for name in ("", "a/b", "a+", "a#"):
        made.refused(ShareGroup(name, "+/x"), INVALID)
    made.refused(ShareGroup("pool", "a/#/b"), INVALID)
    made.topic("v")
    assert [each.topic for each in group(made, shared.name).bindings] == ["t", "u", "v"]
    made.done(AlterTopic("v", filters=("v/y",)))
    made.done(DeleteTopic("t"))
    assert [each.topic for each in group(made, shared.name).bindings] == ["u"]
    made.done(AlterGroup(shared.name, paused=True))
    made.done(ResetGroup(shared.name, "earliest"))
    made.refused(AlterGroup(shared.name, mode="key"), CONFLICT)
    made.done(DeleteTopic("u"))
    made.refused(DeleteGroup(shared.name), NOT_FOUND)


def test_groups_of_other_namespaces_are_others() -> None:
    made = machine()
    made.done(CreateNamespace("acme"))
    made.done(CreateTopic("t", "acme"))
    made.done(CreateGroup("work", ALL))
    made.done(CreateGroup("work", ALL, "acme"))
    made.done(ShareGroup("pool", "t/#", "acme"))
    assert group(made, "$share/pool/t/#", "acme").bindings == (Binding("t", "name", "t/#"),)
    made.refused(DeleteNamespace("acme"), CONFLICT)
    made.done(DeleteGroup("work", "acme"))
    made.done(DeleteTopic("t", "acme"))
    made.done(DeleteTopic("work.dead", "acme"))
    made.done(DeleteNamespace("acme"))
    assert [each.namespace for each in made.state.groups.values()] == ["default"]


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine()
    made.done(CreateNamespace("acme"))
    made.done(CreateTopic("t", "acme"))
    monkeypatch.setattr(changes_groups, "GROUPS_PER_NAMESPACE_MAX", 1)
    monkeypatch.setattr(changes_groups, "GROUPS_MAX", 2)
    made.done(CreateGroup("one", ALL))
    assert "namespace default" in made.refused(CreateGroup("two", ALL), LIMIT)
    assert "namespace default" in made.refused(ShareGroup("two", "t/#"), LIMIT)
    made.done(CreateGroup("one", ALL, "acme"))
    monkeypatch.setattr(changes_groups, "GROUPS_PER_NAMESPACE_MAX", 9)
    assert "2 consumer groups" in made.refused(CreateGroup("two", ALL), LIMIT)


def test_backoff_doubles_up_to_its_most() -> None:
    one = ConsumerGroup(1, "default", "g", ALL, backoff_ms=1_000, backoff_max_ms=5_000)
    assert [one.backoff_after(deliveries) for deliveries in (0, 1, 2, 3, 4, 1_000_000)] == [
        1_000,
        1_000,
        2_000,
        4_000,
        5_000,
        5_000,
    ]


def test_dead_letters_have_a_reader_that_stays_with_their_topic() -> None:
    made = machine()
    made.done(CreateGroup("work", ALL))
    made.done(ReadDead("work"))
    reader = group(made, "$dead/work")
    assert (reader.bindings, reader.reset_to, reader.hold) == ((Binding("work.dead", "fanout"),), "earliest", False)
    assert made.done(ReadDead("work")) == reader
    made.refused(AlterGroup("$dead/work", paused=True), CONFLICT)
    made.done(DeleteGroup("work"))
    made.done(CreateGroup("work", ALL))
    assert made.done(ReadDead("work")) == reader, "what was redriven before stays settled"
    made.done(AlterGroup("work", dead_letter="u"))
    made.done(ReadDead("work"))
    other = group(made, "$dead/work")
    assert other.bindings == (Binding("u", "headers", "all:flockmq-group=work"),)
    assert other.id > reader.id
    made.refused(DeleteTopic("u"), CONFLICT)
    made.done(DeleteGroup("work"))
    made.done(DeleteTopic("u"))
    made.refused(ReadDead("work"), NOT_FOUND)
    assert not made.state.groups
    made.done(CreateGroup("silent", ALL, dead_letter="none"))
    made.refused(ReadDead("silent"), INVALID)
