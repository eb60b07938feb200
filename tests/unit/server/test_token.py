from __future__ import annotations

import io
from pathlib import Path

import pytest

from flockmq.security import credentials
from flockmq.server.log import Log, json_line
from flockmq.server.token import TOKEN_SETTING, accepts, to_share, token_hash

FIRST = "http://127.0.0.1:1"
SECOND = "http://127.0.0.1:2"


@pytest.fixture(autouse=True)
def own_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOCKMQ_CREDENTIALS", str(tmp_path / "credentials.toml"))
    monkeypatch.delenv("FLOCKMQ_TOKEN", raising=False)


def quiet() -> Log:
    return Log(io.StringIO(), json_line)


def test_a_broker_that_moves_to_another_port_stays_reachable(tmp_path: Path) -> None:
    first = token_hash("", tmp_path, FIRST, "", quiet())
    assert token_hash("", tmp_path, SECOND, "", quiet()) == first
    token = credentials.load(SECOND)
    assert token is not None
    assert credentials.verify(token, first)
    assert credentials.load(FIRST) == token


def test_a_user_without_the_token_is_told(tmp_path: Path) -> None:
    known = token_hash("", tmp_path, FIRST, "", quiet())
    (tmp_path / "credentials.toml").unlink()
    stream = io.StringIO()
    log = Log(stream, json_line)
    assert token_hash("", tmp_path, FIRST, "", log) == known
    log.start()
    log.stop()
    assert "admin_token_missing" in stream.getvalue()
    assert credentials.HASH_FILE in stream.getvalue()


def test_two_brokers_of_one_user_have_two_tokens(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert token_hash("", tmp_path / "a", FIRST, "", quiet()) != token_hash("", tmp_path / "b", SECOND, "", quiet())


def test_a_token_of_the_cluster_is_taken_by_every_node() -> None:
    own, shared = credentials.mint_token(), credentials.mint_token()
    own_hash, shared_hash = credentials.token_hash(own), credentials.token_hash(shared)
    assert accepts(own, own_hash, {})
    assert not accepts(shared, own_hash, {})
    settings = {TOKEN_SETTING: shared_hash}
    assert accepts(own, own_hash, settings)
    assert accepts(shared, own_hash, settings)
    assert not accepts("other", own_hash, settings)
    assert not accepts("", "", {}), "before anything is known nobody gets in"
    assert not accepts("", "", {TOKEN_SETTING: 7})
    assert to_share(own_hash, {}) == own_hash
    assert to_share(own_hash, settings) == "", "a cluster has one"
