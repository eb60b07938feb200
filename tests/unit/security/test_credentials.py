from __future__ import annotations

import stat
from pathlib import Path

import pytest

from flockmq.errors import ConfigError, FlockError
from flockmq.security import credentials
from flockmq.security.credentials import (
    HASH_FILE,
    KEPT_MAX,
    credentials_path,
    kept,
    load,
    load_or_mint,
    mint_token,
    recognise,
    save,
    token_hash,
    verify,
)

URL = "http://127.0.0.1:18083"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"FLOCKMQ_CREDENTIALS": str(tmp_path / "own" / "credentials.toml")}


def test_tokens_are_long_random_and_fit_a_header() -> None:
    tokens = {mint_token() for _ in range(100)}
    assert len(tokens) == 100
    for token in tokens:
        assert len(token.removeprefix("flockmq_")) >= 43  # 256 bits in base64
        assert token.isascii()
        assert token.isprintable()


def test_a_token_is_known_by_its_hash_alone() -> None:
    token = mint_token()
    known = token_hash(token)
    assert token not in known
    assert verify(token, known)
    for wrong in ("", token[:-1], token + "x", known, "tökén"):
        assert not verify(wrong, known)


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"HOME": "/h"}, "/h/.config/flockmq/credentials.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/flockmq/credentials.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x", "FLOCKMQ_CREDENTIALS": "/c.toml"}, "/c.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "", "FLOCKMQ_CREDENTIALS": ""}, "/h/.config/flockmq/credentials.toml"),
    ],
)
def test_where_the_file_is(environment: dict[str, str], path: str) -> None:
    assert credentials_path(environment) == Path(path)


def test_what_is_saved_is_loaded_by_server(environment: dict[str, str]) -> None:
    assert load(URL, environment) is None
    save(URL, "one", environment)
    path = save("https://Broker.example:443/", "two", environment)
    save("http://[2001:db8::1]:18083", "three", environment)
    assert load(URL, environment) == "one"
    assert load("http://localhost:18083/", environment) == "one"
    assert load("https://broker.example", environment) == "two"
    assert load("http://[2001:DB8::1]:18083/api", environment) == "three"
    assert load("http://127.0.0.1:18084", environment) is None
    save(URL, "new", environment)
    assert load(URL, environment) == "new"
    assert load("https://broker.example", environment) == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_clusters_at_one_address_have_a_token_each(environment: dict[str, str]) -> None:
    save(URL, "of a", environment, cluster="a" * 16)
    save(URL, "of b", environment, cluster="b" * 16)
    save(URL, "of one that has no cluster yet", environment)
    save("http://127.0.0.1:18084", "elsewhere", environment, cluster="c" * 16)
    assert load(URL, environment, cluster="a" * 16) == "of a"
    assert load(URL, environment, cluster="b" * 16) == "of b"
    assert load(URL, environment, cluster="c" * 16) == "of one that has no cluster yet", "kept for another address"
    assert load(URL, environment) == "of one that has no cluster yet"
    save(URL, "new of a", environment, cluster="a" * 16)
    assert load(URL, environment, cluster="a" * 16) == "new of a"
    assert len(kept(URL, environment)) == 3


def test_no_token_goes_to_a_server_of_another_cluster(environment: dict[str, str]) -> None:
    save(URL, "of a", environment, cluster="a" * 16)
    save(URL, "of b", environment, cluster="b" * 16)
    assert load(URL, environment, cluster="c" * 16) is None
    assert load(URL, environment) == "of b", "a server that does not say which cluster it is of gets the newest"


def test_a_broker_finds_its_token_and_says_for_which_cluster(environment: dict[str, str]) -> None:
    save(URL, "own", environment)
    save(URL, "other", environment, cluster="b" * 16)
    assert not recognise(URL, token_hash("unknown"), "a" * 16, environment)
    assert recognise(URL, token_hash("own"), "a" * 16, environment)
    assert recognise(URL, token_hash("own"), "c" * 16, environment), "it has joined another cluster"
    assert {(one.cluster, one.token) for one in kept(URL, environment)} == {("b" * 16, "other"), ("c" * 16, "own")}
    assert recognise("http://127.0.0.1:1", token_hash("own"), "c" * 16, environment), "it has moved to another port"
    assert load("http://127.0.0.1:1", environment) == "own"


def test_tokens_by_address_alone_are_read_and_kept(environment: dict[str, str]) -> None:
    path = credentials_path(environment)
    path.parent.mkdir()
    path.touch(mode=0o600)
    path.write_text(f'[servers."{URL}"]\ntoken = "old"\n')
    assert load(URL, environment, cluster="a" * 16) == "old"
    save(URL, "new", environment, cluster="b" * 16)
    assert load(URL, environment, cluster="a" * 16) == "old"
    assert load(URL, environment, cluster="b" * 16) == "new"


def test_clusters_that_are_gone_do_not_pile_up(environment: dict[str, str]) -> None:
    save("http://127.0.0.1:1", "other", environment)
    for number in range(KEPT_MAX + 5):
        save(URL, f"token {number}", environment, cluster=f"{number:016x}")
    assert [one.token for one in kept(URL, environment)] == [f"token {number}" for number in range(5, KEPT_MAX + 5)]
    assert load("http://127.0.0.1:1", environment) == "other"


def test_the_environment_wins(environment: dict[str, str]) -> None:
    save(URL, "file", environment)
    assert load(URL, environment | {"FLOCKMQ_TOKEN": "env"}) == "env"
    assert load(URL, environment | {"FLOCKMQ_TOKEN": ""}) == "file"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o644])
def test_a_file_that_others_can_read_is_refused(environment: dict[str, str], mode: int) -> None:
    path = save(URL, "secret-token", environment)
    path.chmod(mode)
    for attempt in (lambda: load(URL, environment), lambda: save(URL, "other", environment)):
        with pytest.raises(ConfigError, match=f"chmod 600 {path}") as caught:
            attempt()
        assert "secret-token" not in str(caught.value)
    path.chmod(0o600)
    assert load(URL, environment) == "secret-token"


@pytest.mark.parametrize(
    "text",
    [
        "tokens = 1",
        "[[tokens]]",
        '[[tokens]]\nserver = "x"',
        "servers",
        "servers = 1",
        '[servers."x"]\ntoken = 5',
        '[servers."x"]\n',
        'servers = ["a"]',
        "servers.x = 1",
    ],
)
def test_a_malformed_file_is_refused(environment: dict[str, str], text: str) -> None:
    path = credentials_path(environment)
    path.parent.mkdir()
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"credentials\.toml"):
        load(URL, environment)


@pytest.mark.parametrize("url", ["", "localhost", "http://", "ftp://x", "http://x:port", "mqtt://x"])
def test_addresses_that_are_none(environment: dict[str, str], url: str) -> None:
    with pytest.raises(FlockError, match="not a server address"):
        save(url, "token", environment)


def test_tokens_that_are_none(environment: dict[str, str]) -> None:
    for token in ("", "a\nb", "tökén"):
        with pytest.raises(FlockError, match="token"):
            save(URL, token, environment)


def test_the_first_start_mints_and_later_ones_remember(tmp_path: Path, environment: dict[str, str]) -> None:
    known = load_or_mint(tmp_path, URL, environment)
    token = load(URL, environment)
    assert token is not None
    assert verify(token, known)
    stored = (tmp_path / HASH_FILE).read_text()
    assert token not in stored
    assert stat.S_IMODE((tmp_path / HASH_FILE).stat().st_mode) == 0o600
    assert load_or_mint(tmp_path, URL, environment) == known
    assert load(URL, environment) == token


def test_a_damaged_hash_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / HASH_FILE).write_text("")
    with pytest.raises(ConfigError, match="damaged"):
        load_or_mint(tmp_path, URL, environment)


def test_a_folder_that_can_not_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="FLOCKMQ_CREDENTIALS"):
        save(URL, "token", {"FLOCKMQ_CREDENTIALS": str(tmp_path / "file" / "credentials.toml")})


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOCKMQ_TOKEN", "from the environment")
    assert credentials.load(URL) == "from the environment"
