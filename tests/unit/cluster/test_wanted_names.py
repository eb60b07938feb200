"""Which names a reader wants, against the obvious way to decide it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.cluster import wanted_names
from flockmq.cluster.filters import namespace_prefix
from flockmq.cluster.wanted_names import WantedNames
from flockmq.mqtt.topics import matches

LEVELS = st.sampled_from(["a", "b", "", "$x", "a.b", "(", "\n"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map(lambda levels: "/".join(levels).encode())
FILTERS = st.tuples(st.lists(st.one_of(LEVELS, st.just("+")), max_size=4), st.sampled_from([[], ["#"]])).map(
    lambda parts: "/".join([*parts[0], *parts[1]] or ["+"]).encode()
)


@given(st.lists(FILTERS, min_size=1, max_size=4), st.lists(NAMES, max_size=5))
def test_as_the_obvious_way(filters: list[bytes], names: list[bytes]) -> None:
    both = WantedNames(filters)
    inside = WantedNames(filters, namespace_prefix("acme"))
    for name in names:
        expected = any(matches(one, name) for one in filters)
        assert both.wants(name) is expected
        assert both.wants(name) is expected
        assert inside.wants(namespace_prefix("acme") + name) is expected
        assert not inside.wants(namespace_prefix("other") + name)
    assert both.wants_any(names) is any(map(both.wants, names))


def test_what_is_kept_is_bounded() -> None:
    some = WantedNames([b"a/#"])
    for number in range(wanted_names.NAMES_MAX + 10):
        assert some.wants(b"a/%d" % number)
    assert len(some._known) <= wanted_names.NAMES_MAX
