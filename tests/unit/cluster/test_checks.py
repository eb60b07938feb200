from __future__ import annotations

import pytest

from flockmq.cluster import checks
from flockmq.cluster.commands import INVALID, RefusedError


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "user@example.org", "0", "_x", "a" * 128, "k=v~w:x"])
def test_good_names(name: str) -> None:
    checks.check_name("topic", name)


@pytest.mark.parametrize(
    "name", ["", "a" * 129, "a/b", "+", "a#", "$SYS", ".", "..", "-x", "a b", "é", "a\n", "a\x00", "%41", "a?b"]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(RefusedError, match="can't be the name of a topic") as caught:
        checks.check_name("topic", name)
    assert caught.value.code == INVALID


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a+", "\ud800", "a\x00", "x" * 1_025, "/" * 64])
def test_bad_filters(topic_filter: str) -> None:
    with pytest.raises(RefusedError):
        checks.check_filter(topic_filter)


def test_lists_of_filters_are_bounded_and_name_each_once() -> None:
    checks.check_filters("client", tuple(f"a/{number}" for number in range(64)))
    with pytest.raises(RefusedError, match="at most 64"):
        checks.check_filters("client", tuple(f"a/{number}" for number in range(65)))
    with pytest.raises(RefusedError, match="twice"):
        checks.check_filters("client", ("a", "a"))


@pytest.mark.parametrize("filters", [(), ("$SYS/#",), ("$ns/acme/#",), ("$share/g/a",)])
def test_filters_that_no_durable_topic_can_have(filters: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError):
        checks.check_durable_filters(filters)


@pytest.mark.parametrize("text", ["x" * 256, "a\nb", "\ud800", "\x7f"])
def test_bad_texts(text: str) -> None:
    with pytest.raises(RefusedError):
        checks.check_text("zone", text)


def test_numbers_have_bounds() -> None:
    checks.check_number("port", 1, 1, 2)
    checks.check_number("port", 2, 1, 2)
    for number in (0, 3):
        with pytest.raises(RefusedError, match="from 1 to 2"):
            checks.check_number("port", number, 1, 2)
    checks.check_id("node", 2**64 - 1)
    with pytest.raises(RefusedError):
        checks.check_id("node", 0)


def test_a_plain_password_is_refused_and_not_repeated() -> None:
    checks.check_secret("")
    checks.check_secret("$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA:$scram-sha-256$i=1$a$b$c")
    with pytest.raises(RefusedError) as caught:
        checks.check_secret("hunter2")
    assert "hunter2" not in str(caught.value)
