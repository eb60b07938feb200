from __future__ import annotations

from flockmq.cluster.dead_letters import (
    DeadLetter,
    dead_name,
    dead_properties,
    original_name,
    read_dead,
    without_dead,
)


def test_a_dead_letter_has_a_name_of_its_own_and_the_way_back() -> None:
    assert dead_name("default", "work", b"plant/7") == b"$dead/work/plant/7"
    assert original_name("default", b"$dead/work/plant/7") == b"plant/7"
    inside = dead_name("acme", "work", b"$ns/acme/plant/7")
    assert inside == b"$ns/acme/$dead/work/plant/7"
    assert original_name("acme", inside) == b"$ns/acme/plant/7"
    assert original_name("default", b"plant/7") == b""
    assert original_name("default", b"$dead/work") == b""


def test_its_properties_say_why() -> None:
    letter = DeadLetter("work", "plant", 1, 17, 5, "expired 5 times", "m1")
    theirs = [(b"flockmq-reason", b"a lie"), (b"a", b"b")]
    properties = [*theirs, *dead_properties(letter)]
    assert read_dead(properties) == letter
    assert without_dead(properties) == [(b"a", b"b")]
    assert read_dead([(b"flockmq-offset", b"x")]) == DeadLetter("", "", -1, -1, -1, "", "")
