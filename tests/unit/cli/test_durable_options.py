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
        (["topic", "alter", "plant"], 2, "Nothing to change"),
        (["namespace", "alter", "acme"], 2, "Nothing to change"),
        (["vpn", "alter", "acme"], 2, "Nothing to change"),
        (["client", "alter", "alice"], 2, "Nothing to change"),
        (["client", "alter", "alice", "--password", "--no-password"], 2, "contradict"),
        (["topic", "create", "plant", "--retention", "7"], 2, "an age like 7d"),
        (["topic", "create", "plant", "--retention", "7x"], 2, "an age like 7d"),
        (["topic", "create", "plant", "--retention", "0d"], 2, "--retention can't be '0d': that keeps nothing"),
        (["topic", "create", "plant", "--retention", "7d,8d"], 2, "two ages"),
        (["topic", "create", "plant", "--retention", "1GB", "--retention", "2GB"], 2, "two sizes"),
        (["topic", "create", "plant", "--retention", "none,7d"], 2, "none stands alone"),
        (["topic", "create", "plant", "--retention", "99999999999d"], 2, "more than can be counted"),
        (["topic", "create", "plant", "--key", ""], 2, "--key can't be empty"),
        (["topic", "alter", "plant", "--key", ""], 2, "--key can't be empty"),
        (["topic", "create", "plant", "--filter", ""], 2, "--filter can't be ''"),
        (["topic", "alter", "plant", "--filter", "a#"], 2, "--filter can't be 'a#'"),
        (["namespace", "create", "acme", "--max", "topics=x"], 2, "--max can't be 'topics=x'"),
        (["namespace", "create", "acme", "--max", "foo=3"], 2, "no limit 'foo'; use one of topics, clients,"),
        (["namespace", "create", "acme", "--max", "topics=1", "--max", "topics=2"], 2, "'topics' twice"),
        (["cluster", "rebalance", "--dry-run"], 2, "--dry-run goes with --advice FILE"),
        (["log", "read", "plant", "--from", "bogus"], 2, "--from can't be used: 'bogus' is no place to start"),
        (["cursor", "create", "c", "plant", "--from", "bogus"], 2, "--from can't be used"),
        (["cursor", "reset", "c", "bogus"], 2, "WHERE can't be used"),
        (["sub", "plant/#", "--from", "offset:x"], 2, "--from can't be used: 'x' is no offset"),
        (["sub", "plant/#", "--from", "offset:a=1"], 2, "--from can't be used: 'a' is no shard"),
        (["sub", "plant/#", "--mqtt", "3.1.1", "--from", "bogus"], 2, "--from can't be used"),
        (["client", "ban", "x", "--for", "ever"], 2, "--for can't be"),
        (["topic", "create", "plant", "--ack", "maybe"], 2, "topic create --help"),
        (["topic", "create", "plant", "--shards", "0"], 2, "topic create --help"),
        (["topic", "delete", "plant"], 2, "say --yes"),
        (["cursor", "delete", "reader"], 2, "say --yes"),
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
