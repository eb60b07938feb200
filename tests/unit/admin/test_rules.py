"""The patterns of the description say what the broker checks."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.admin import rules
from flockmq.admin.openapi import build_openapi
from flockmq.admin.routes import OPERATIONS
from flockmq.cluster.checks import NAME_PATTERN, check_durable_filters, check_filter, check_name
from flockmq.cluster.model import Limits
from flockmq.errors import FlockError
from flockmq.log.starts import parse_start, parse_time
from flockmq.mqtt.topics import check_topic_filter, check_topic_name, split_shared
from flockmq.security.acl import parse_rules

PIECES = st.lists(st.sampled_from(["a", "b", "+", "#", "/", "$", "\0", "é", "\n", "$share/", " "]), max_size=8)


def accepts(check: Callable[[], object]) -> bool:
    try:
        check()
    except (FlockError, ValueError):
        return False
    return True


def fits(pattern: str, text: str) -> bool:
    """As JSON Schema means it: `$` is the very end."""
    return re.search(pattern.removesuffix("$") + r"\Z", text) is not None


@given(PIECES)
def test_filters_and_names(pieces: list[str]) -> None:
    text = "".join(pieces)
    raw = text.encode()
    assert (text != "" and fits(rules.FILTER_PATTERN, text)) == accepts(lambda: check_topic_filter(raw))
    assert fits(rules.TOPIC_PATTERN, text) == accepts(lambda: check_topic_name(raw))
    assert (text != "" and fits(rules.DURABLE_FILTER_PATTERN, text)) == accepts(lambda: check_durable_filters((text,)))
    assert (text != "" and fits(rules.CLIENT_FILTER_PATTERN, text)) == accepts(lambda: check_filter(text))
    if not text.startswith("$share/"):
        assert (text != "" and fits(rules.SHARED_FILTER_PATTERN, text)) == accepts(
            lambda: check_topic_filter(split_shared(raw)[1])
        )


def test_levels_of_durable_filters() -> None:
    for levels in (64, 65):
        for text in ("/".join(["a"] * levels), "/".join(["a"] * (levels - 1)) + "/#"):
            assert fits(rules.DURABLE_FILTER_PATTERN, text) == accepts(partial(check_durable_filters, (text,)))


@given(st.text("aZ9_.@:~=- é\n", max_size=130))
def test_names(text: str) -> None:
    assert fits(f"^{NAME_PATTERN}$", text) == accepts(lambda: check_name("topic", text))


@given(st.from_regex(rules.TIME_PATTERN.replace("(0[1-9]|[12][0-9]|3[01])", "(0[1-9]|1[0-9]|2[0-8])"), fullmatch=True))
def test_times_of_the_pattern_can_be_used(text: str) -> None:
    assert accepts(lambda: parse_time(text.removesuffix("\n")))


@pytest.mark.parametrize("text", ["earliest", "latest", "offset:7", "offset:0=7,1=9", "time:2026-01-31T12:00:00Z"])
def test_starts(text: str) -> None:
    assert fits(rules.START_PATTERN, text)
    assert accepts(lambda: parse_start(text))


@pytest.mark.parametrize("text", ["", "earliest:", "offset:", "offset:x", "offset:0=", "time:yesterday", "later"])
def test_no_starts(text: str) -> None:
    assert not fits(rules.START_PATTERN, text)
    assert not accepts(lambda: parse_start(text))


@pytest.mark.parametrize(
    ("who", "good"),
    [
        ("all", True),
        ("user:a/b", True),
        ("client:x", True),
        ("ip:10.0.0.0/8", True),
        ("ip:::1", True),
        ("user:", False),
    ],
)
def test_who(who: str, good: bool) -> None:
    rule = {"allow": True, "who": [who], "action": "all", "topics": ["a"]}
    assert fits(rules.WHO_PATTERN, who) is good
    assert accepts(lambda: parse_rules([rule])) is good


def test_limits_of_namespaces_are_named_in_the_schema() -> None:
    schemas = build_openapi(OPERATIONS, "1")["components"]["schemas"]
    for name in ("NamespaceRequest", "NamespaceChange"):
        limits = schemas[name]["properties"]["limits"]
        assert limits["propertyNames"] == {"enum": list(Limits.__struct_fields__)}
        assert limits["additionalProperties"]["anyOf"][0]["minimum"] == 0
