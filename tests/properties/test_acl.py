"""ACL decisions against brute force: a filter is the set of all names that it matches, out of a small alphabet."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from flockmq.mqtt.topics import matches
from flockmq.security.acl import Acl, Principal, parse_pattern, parse_rules
from flockmq.security.filters import covers, overlaps, parse_filter, parse_name

WORDS = (b"a", b"b", b"", b"$s")
FRESH = b"zz"  # stands for the endless other words, which no filter here names
LEVELS_MAX = 3
DEPTHS = range(1, LEVELS_MAX + 2)  # one deeper than any filter: what ``#`` alone reaches
NAMES = [b"/".join(levels) for depth in DEPTHS for levels in product((*WORDS, FRESH), repeat=depth) if levels != (b"",)]

levels = st.sampled_from([*WORDS, b"+"])
filters = st.builds(
    lambda parts, rest: b"/".join([*parts, b"#"] if rest else parts),
    st.lists(levels, min_size=0, max_size=LEVELS_MAX),
    st.booleans(),
).filter(bool)


def names_of(topic_filter: bytes) -> set[bytes]:
    return {name for name in NAMES if matches(topic_filter, name)}


@given(filters, filters)
@example(b"/+/#", b"/#")  # the name "" would be the difference, and is none
@example(b"+/#", b"#")
def test_covering_is_being_a_superset(rule: bytes, wanted: bytes) -> None:
    assert covers(parse_filter(rule), parse_filter(wanted)) == (names_of(wanted) <= names_of(rule))


@given(filters, filters)
@example(b"/#", b"+")
def test_overlapping_is_having_a_name_in_common(rule: bytes, wanted: bytes) -> None:
    assert overlaps(parse_filter(rule), parse_filter(wanted)) == bool(names_of(wanted) & names_of(rule))


@given(filters, st.sampled_from(NAMES))
def test_a_name_is_covered_when_it_matches(rule: bytes, name: bytes) -> None:
    assert covers(parse_filter(rule), parse_name(name)) == matches(rule, name)


def acl_of(rules: list[tuple[bool, bytes]], default: bool) -> Acl:
    tables = [{"allow": allow, "who": "all", "action": "all", "topics": [topic.decode()]} for allow, topic in rules]
    return Acl(parse_rules(tables), default=default)


rule_lists = st.lists(st.tuples(st.booleans(), filters), max_size=5)


@given(rule_lists, st.booleans(), filters)
def test_who_may_subscribe_may_read_every_name_of_it(
    rules: list[tuple[bool, bytes]], default: bool, wanted: bytes
) -> None:
    selection = acl_of(rules, default).select(Principal("c"))
    if selection.decide("subscribe", parse_filter(wanted)):
        for name in names_of(wanted):
            assert selection.decide("subscribe", parse_name(name))


@given(rule_lists, st.booleans(), st.sampled_from(NAMES))
def test_a_name_is_decided_by_the_first_rule_that_matches_it(
    rules: list[tuple[bool, bytes]], default: bool, name: bytes
) -> None:
    expected = next((allow for allow, topic in rules if matches(topic, name)), default)
    assert acl_of(rules, default).select(Principal("c")).decide("publish", parse_name(name)) == expected


hostile = st.text(alphabet="ab+#/$%cuSY", max_size=6)
patterns = st.lists(st.sampled_from(["a", "x%c", "%c", "%u", "%c%u", "+", "$%u"]), min_size=1, max_size=3)


@given(patterns, st.booleans(), hostile, st.none() | hostile, filters)
def test_client_input_never_widens_a_pattern(
    parts: list[str], rest: bool, client_id: str, username: str | None, wanted: bytes
) -> None:
    """What a pattern gives to anybody is at most what it gives with the placeholder's level read as one ``+``."""
    text = "/".join([*parts, "#"] if rest else parts)
    bound = parse_pattern(text).bind(Principal(client_id, username), allow=True)
    if bound is None:
        return
    assert len(bound.levels) == (len(parts) if bound.levels else 0), "as many levels as the rule has"
    for part, level in zip(parts, bound.levels, strict=False):
        assert (level is None) == (part == "+"), "only the rule's own wildcards are wildcards"
        assert level is None or not {*b"+#/"} & {*level}
    widest = "/".join("+" if "%" in part and not part.startswith("$") else part for part in parts)
    if "%" not in widest and covers(bound, parse_filter(wanted)):
        assert covers(parse_filter((widest + "/#" if rest else widest).encode()), parse_filter(wanted))
    assert not covers(bound, parse_filter(b"$SYS/x"))
