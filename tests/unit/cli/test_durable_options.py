from __future__ import annotations

import pytest

from flockmq.cli.durable_options import age_text, confirm, parse_retention, retention_text, size_text
from flockmq.cli.main import run
from flockmq.cli.namespace import parse_limits
from flockmq.errors import FlockError

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("texts", "age_ms", "size"),
    [
        (["7d"], 7 * DAY_MS, None),
        (["12h"], DAY_MS // 2, None),
        (["10GB"], None, 10**10),
        (["64MiB"], None, 64 * 2**20),
        (["7d,10GB"], 7 * DAY_MS, 10**10),
        (["10GB", "1w"], 7 * DAY_MS, 10**10),
        (["none"], None, None),
    ],
)
def test_retention_is_an_age_a_size_or_both(texts: list[str], age_ms: int | None, size: int | None) -> None:
    assert parse_retention(texts) == (age_ms, size)


@pytest.mark.parametrize("text", ["7", "", "soon", "7d10GB", "-1d", "1XB"])
def test_a_retention_without_a_unit_could_be_anything(text: str) -> None:
    with pytest.raises(FlockError, match="an age like 7d"):
        parse_retention([text])


@pytest.mark.parametrize(
    ("age_ms", "size", "text"),
    [
        (7 * DAY_MS, None, "7d"),
        (90_000, 10**10, "90s, 10 GB"),
        (None, 1_500_000, "1.5 MB"),
        (None, None, "none"),
        (1, 999, "1ms, 999 B"),
    ],
)
def test_retention_as_people_read_it(age_ms: int | None, size: int | None, text: str) -> None:
    assert retention_text(age_ms, size) == text


def test_ages_and_sizes() -> None:
    assert [age_text(value) for value in (3_600_000, 5_400_000, 61_000)] == ["1h", "90m", "61s"]
    assert size_text(None) is None


def test_what_can_not_be_undone_is_asked_for() -> None:
    confirm("Delete it?", yes=True)
    with pytest.raises(FlockError, match="say --yes"):
        confirm("Delete it?", yes=False)


def test_limits_of_a_namespace() -> None:
    assert parse_limits(["topics=5", "clients_max=none", "stored_bytes=1GB"]) == {
        "topics_max": 5,
        "clients_max": None,
        "stored_bytes_max": 10**9,
    }
    assert parse_limits(None) == {}


@pytest.mark.parametrize("text", ["topics", "topics=many", "topics="])
def test_limits_that_are_none(text: str) -> None:
    with pytest.raises(FlockError, match="--max can't be"):
        parse_limits([text])


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["topic", "alter", "plant"], 1, "Nothing to change"),
        (["namespace", "alter", "acme"], 1, "Nothing to change"),
        (["vpn", "alter", "acme"], 1, "Nothing to change"),
        (["client", "alter", "alice"], 1, "Nothing to change"),
        (["client", "alter", "alice", "--password", "--no-password"], 1, "contradict"),
        (["topic", "create", "plant", "--retention", "7"], 1, "an age like 7d"),
        (["topic", "create", "plant", "--ack", "maybe"], 2, "topic create --help"),
        (["topic", "create", "plant", "--shards", "0"], 2, "topic create --help"),
        (["topic", "delete", "plant"], 1, "say --yes"),
        (["cursor", "delete", "reader"], 1, "say --yes"),
        (["partition", "show", "x"], 2, "partition show --help"),
        (["topic"], 2, "Missing command"),
    ],
)
def test_mistakes_are_told_before_anybody_is_asked(
    arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.out == ""
