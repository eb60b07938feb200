"""Selecting records for a group, compared with the obvious way: all ways to spread the levels over the words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.cluster.selection import Selection

levels = st.sampled_from(["a", "b", "", "a.b"])
keys = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=5)
mqtt = st.tuples(st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=4), st.booleans()).map(
    lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0])
)
amqp = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5).map(".".join)
pairs = st.lists(st.tuples(st.sampled_from([b"k", b"l", b"m"]), st.sampled_from([b"1", b"2"])), max_size=4)
header_keys = st.tuples(
    st.sampled_from(["all", "any"]), st.lists(st.sampled_from(["k=1", "l=2", "m=1", "k", "l="]), min_size=1, max_size=3)
).map(lambda parts: f"{parts[0]}:{','.join(parts[1])}")


def obvious(words: list[str], found: list[str]) -> bool:
    if not words:
        return not found
    if words[0] == "#":
        return any(obvious(words[1:], found[taken:]) for taken in range(len(found) + 1))
    return bool(found) and words[0] in ("*", "+", found[0]) and obvious(words[1:], found[1:])


def split(key: str, by: str) -> list[str]:
    return key.split(by) if key else []


def obvious_topic(written: str, key: str) -> bool:
    if "/" in written or "+" in written:
        return obvious(written.split("/"), split(key, "/"))
    return obvious(written.split("."), split(key, "/" if "/" in key else "."))


def obvious_headers(written: str, properties: list[tuple[bytes, bytes]]) -> bool:
    how, _, rest = written.partition(":")
    outcomes = []
    for part in rest.split(","):
        name, equals, value = part.partition("=")
        outcomes.append(any(k == name.encode() and (not equals or v == value.encode()) for k, v in properties))
    return all(outcomes) if how == "all" else any(outcomes)


@given(st.lists(mqtt | amqp, min_size=1, max_size=3), keys, st.sampled_from("/."))
def test_routing_by_filter(written: list[str], parts: list[str], by: str) -> None:
    key = by.join(parts)
    chosen = Selection([("topic", one) for one in written], [b"t/#"])
    expected = any(obvious_topic(one, key) for one in written)
    assert chosen.record(b"t/x", [(b"routing-key", key.encode())]) == expected
    if key:
        assert chosen.plain(b"t/" + key.encode()) == expected


@given(st.lists(header_keys, min_size=1, max_size=2), pairs)
def test_selecting_by_headers(written: list[str], properties: list[tuple[bytes, bytes]]) -> None:
    chosen = Selection([("headers", one) for one in written], [b"t/#"])
    expected = any(obvious_headers(one, properties) for one in written)
    assert chosen.record(b"t/x", properties) == expected


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("direct"), st.sampled_from(["a", "b", "a/b"])),
            st.tuples(st.just("topic"), mqtt | amqp),
            st.tuples(st.just("headers"), header_keys),
        ),
        max_size=4,
    ),
    st.sampled_from(["a", "b", "a/b", "b/a"]),
    pairs,
    st.none() | st.sampled_from([b"a", b"a/b", b"b.a"]),
)
def test_all_types_together(
    bindings: list[tuple[str, str]], below: str, properties: list[tuple[bytes, bytes]], said: bytes | None
) -> None:
    if said is not None:
        properties = [*properties, (b"routing-key", said)]
    key = below if said is None else said.decode()
    expected = any(
        (kind == "direct" and written == key)
        or (kind == "topic" and obvious_topic(written, key))
        or (kind == "headers" and obvious_headers(written, properties))
        for kind, written in bindings
    )
    chosen = Selection(bindings, [b"t/#"])
    name = b"t/" + below.encode()
    assert chosen.record(name, properties) == expected
    assert chosen.record(name, properties) == expected, "what is remembered says the same"
    decided = chosen.names(name)
    assert decided is None or decided == expected
    if not properties:
        assert chosen.plain(name) == expected
