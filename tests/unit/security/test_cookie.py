from __future__ import annotations

import secrets
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from flockmq.errors import ConfigError
from flockmq.security.cookie import cookie_path, derive_key, load_cookie, parse_cookie

GOOD = "0123456789abcdef" * 4


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def cookie_file(folder: Path, text: str = GOOD, mode: int = 0o600) -> Path:
    path = folder / "cookie"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_named_file_comes_first_then_the_variable_then_the_own_file(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    named = cookie_file(tmp_path, f"  {GOOD[::-1]}\n")
    environment["FLOCKMQ_COOKIE"] = GOOD
    found = load_cookie(str(named), environment)
    assert (found.value, found.source, found.warning) == (GOOD[::-1].encode(), str(named), "")
    found = load_cookie("", environment)
    assert (found.value, found.source) == (GOOD.encode(), "FLOCKMQ_COOKIE")
    del environment["FLOCKMQ_COOKIE"]
    found = load_cookie("", environment)
    assert found.source == str(cookie_path(environment))
    assert found.value not in (GOOD.encode(), GOOD[::-1].encode())


def test_the_own_file_is_made_once_and_private(environment: dict[str, str]) -> None:
    first = load_cookie("", environment)
    path = cookie_path(environment)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(first.value) == 64
    assert load_cookie("", environment) == first
    assert [one.name for one in path.parent.iterdir()] == ["cookie"]


def test_nodes_that_start_together_have_the_same(environment: dict[str, str]) -> None:
    together = Barrier(16)

    def start(_: int) -> bytes:
        together.wait()
        return load_cookie("", environment).value

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(start, range(16)))) == 1


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"HOME": "/h"}, "/h/.config/flockmq/cookie"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/flockmq/cookie"),
    ],
)
def test_where_the_own_file_is(environment: dict[str, str], path: str) -> None:
    assert cookie_path(environment) == Path(path)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "7f" * 8 + "0123456789abcde8",
        "kX9-_vQ2mT7pL0sR4wY8zA",
        "314159265358979323846264338327950288419",
    ],
)
def test_enough_bits(text: str) -> None:
    assert parse_cookie(f"{text}\n".encode(), "It") == text.encode()


def test_random_cookies_of_128_bits_are_enough() -> None:
    for _ in range(200):
        parse_cookie(secrets.token_hex(16).encode(), "It")
        parse_cookie(secrets.token_urlsafe(16).encode(), "It")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"secret", "could be guessed"),
        (GOOD[:31].encode(), "could be guessed"),
        (b"31415926535897932384626433832795028841", "could be guessed"),
        (b"a" * 64, "could be guessed"),
        (b"abcd" * 16, "could be guessed"),
        (b"correct horse battery staple and more", "without spaces"),
        (GOOD.encode() + b"\n" + GOOD.encode(), "without spaces"),
        ("ü".encode() * 40, "letters, digits and signs"),
        (b"x" * 5_000, "more than 4,096 bytes"),
    ],
)
def test_what_is_no_cookie(data: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^It .*{problem}") as found:
        parse_cookie(data, "It")
    assert not data.strip() or data not in str(found.value).encode()


def test_an_empty_variable_is_a_mistake_not_a_wish_for_another_cookie() -> None:
    with pytest.raises(ConfigError, match="FLOCKMQ_COOKIE is empty; make one with: openssl rand"):
        load_cookie("", {"FLOCKMQ_COOKIE": ""})


def test_a_named_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cookie file .*missing can't be read .No such file"):
        load_cookie(str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="is a folder"):
        load_cookie(str(tmp_path))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_the_own_file_must_be_private(environment: dict[str, str], mode: int) -> None:
    load_cookie("", environment)
    cookie_path(environment).chmod(mode)
    with pytest.raises(ConfigError, match=r"by other users \(mode .*chmod 600"):
        load_cookie("", environment)


def test_a_named_file_may_be_one_that_a_platform_hands_out(tmp_path: Path) -> None:
    assert "can be read by other users (mode 0444)" in load_cookie(str(cookie_file(tmp_path, mode=0o444))).warning


def test_nobody_else_may_change_a_named_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can be changed by other users"):
        load_cookie(str(cookie_file(tmp_path, mode=0o666)))


def test_a_home_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"can't be made .*give a --cookie-file"):
        load_cookie("", {"XDG_CONFIG_HOME": str(tmp_path / "file")})


def test_keys_differ_by_purpose_and_do_not_show_the_cookie(environment: dict[str, str]) -> None:
    found = load_cookie("", environment)
    keys = {derive_key(found.value, purpose) for purpose in ("one", "two")}
    keys.add(derive_key(found.value + b"x", "one"))
    assert len(keys) == 3
    assert {len(key) for key in keys} == {32}
    assert found.value.decode() not in repr(found)
