"""The routing of bindings, case by case; ``tests/properties/test_selection.py`` compares it with obvious code."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import CreateNamespace, CreateTopic
from flockmq.cluster.commands_groups import CreateGroup, ShareGroup
from flockmq.cluster.groups import Binding
from flockmq.cluster.selection import KNOWN_MAX, Selection
from state_cases import Machine


def selection(*bindings: tuple[str, str], filters: tuple[bytes, ...] = (b"plant/#",)) -> Selection:
    return Selection(bindings, filters)


def test_fanout_takes_all() -> None:
    all_of_it = selection(("fanout", ""), ("direct", "x"))
    assert all_of_it.names(b"plant/1") is True
    assert all_of_it.record(b"plant/1", [(b"routing-key", b"y")])
    assert not all_of_it.by_properties


def test_the_routing_key_is_below_the_filters_prefix() -> None:
    chosen = selection(("direct", "7"), filters=(b"plant/#", b"plant/hall/+/state", b"lone"))
    assert chosen.routing_key(b"plant/7") == b"7"
    assert chosen.routing_key(b"plant") == b""
    assert chosen.routing_key(b"plant/hall/3/state") == b"3/state"
    assert chosen.routing_key(b"lone") == b"lone"
    assert chosen.names(b"plant/7") is None
    assert chosen.plain(b"plant/7")
    assert not chosen.plain(b"plant/8")


def test_a_property_names_another_routing_key() -> None:
    chosen = selection(("direct", "7"))
    assert chosen.record(b"plant/8", [(b"x", b"y"), (b"routing-key", b"7")])
    assert not chosen.record(b"plant/7", [(b"routing-key", b"8")])
    assert not chosen.record(b"plant/7", [(b"routing-key", b"")])
    assert chosen.record(b"plant/7", [(b"x", b"y")])
    assert chosen.record(b"plant/7", [])


@pytest.mark.parametrize(
    ("key", "takes", "leaves"),
    [
        ("+/state", ["7/state", "/state"], ["state", "7/8/state", "7.state"]),
        ("a/#", ["a", "a/b", "a/b/c"], ["b", "a.b", ""]),
        ("#", ["", "a", "a/b"], []),
        ("*.state", ["7/state", "7.state"], ["7/8/state", "a.b.state", "state"]),
        ("#.state", ["state", "7/state", "7.8.state"], ["state.7"]),
        ("a.#.z", ["a.z", "a/z", "a.b.c.z"], ["a", "z", "a.b"]),
        ("#.b.#", ["b", "a.b", "b.c", "a.b.c"], ["a.c", ""]),
        ("a.#.#", ["a", "a.b"], ["b"]),
        ("v1.2", ["v1.2", "v1/2"], ["v1"]),
        ("a", ["a"], ["a/b", "a.b"]),
        ("a/*", ["a/*"], ["a/b"]),
        ("*", ["a"], ["a.b", ""]),
        ("*.x", ["v1/x"], ["v1.2/x/y"]),
        ("+", ["v1.2"], ["v1/2"]),
    ],
)
def test_filters_of_mqtt_and_of_amqp(key: str, takes: list[str], leaves: list[str]) -> None:
    chosen = selection(("topic", key))
    for routing_key in takes:
        assert chosen.record(b"plant/none", [(b"routing-key", routing_key.encode())]), routing_key
    for routing_key in leaves:
        assert not chosen.record(b"plant/none", [(b"routing-key", routing_key.encode())]), routing_key


def test_headers_match_all_or_any() -> None:
    both = selection(("headers", "all:a=1,b"))
    assert both.names(b"plant/1") is None
    assert both.record(b"plant/1", [(b"b", b"x"), (b"a", b"1"), (b"c", b"3")])
    assert not both.record(b"plant/1", [(b"a", b"1")])
    assert not both.record(b"plant/1", [(b"a", b"2"), (b"b", b"")])
    assert not both.record(b"plant/1", [])
    one = selection(("headers", "any:a=1,b=2"))
    assert one.record(b"plant/1", [(b"b", b"2")])
    assert not one.record(b"plant/1", [(b"b", b"3")])


def test_one_binding_is_enough() -> None:
    chosen = selection(("direct", "7"), ("topic", "a/+"), ("headers", "any:x=1"))
    assert chosen.plain(b"plant/7")
    assert chosen.plain(b"plant/a/b")
    assert chosen.record(b"plant/8", [(b"x", b"1")])
    assert not chosen.record(b"plant/8", [(b"x", b"2")])


def test_of_a_group_and_a_topic() -> None:
    machine = Machine(1)
    machine.done(CreateNamespace("acme"))
    topic = machine.done(CreateTopic("t", "acme", ("#",), exchange="direct"))
    group = machine.done(CreateGroup("g", (Binding("t", "", "a/b"),), "acme", dead_letter="none"))
    chosen = Selection.of(group, topic)  # type: ignore[arg-type]
    assert chosen.routing_key(b"$ns/acme/a/b") == b"a/b"
    assert chosen.plain(b"$ns/acme/a/b")
    assert not chosen.plain(b"$ns/acme/a/c")
    shared = machine.done(ShareGroup("g", "a/+", "acme"))
    chosen = Selection.of(shared, topic)  # type: ignore[arg-type]
    assert not chosen.by_properties
    assert chosen.names(b"$ns/acme/a/b") is True
    assert chosen.names(b"$ns/acme/b") is False
    assert not chosen.record(b"$ns/acme/b", [(b"routing-key", b"a/b")])


def test_what_is_remembered_is_bounded() -> None:
    chosen = selection(("direct", "7"))
    for number in range(KNOWN_MAX + 10):
        chosen.plain(b"plant/%d" % number)
    assert len(chosen._plain) <= KNOWN_MAX
    chosen.record(b"plant/x", [(b"routing-key", b"k" * 2_000)])
    assert all(len(key) <= 1_024 for key in chosen._keys)
