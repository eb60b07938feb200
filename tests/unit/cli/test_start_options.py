"""The quick way to read ``flockmq start`` must read what typer reads, or leave it to typer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from flockmq.cli import start
from flockmq.cli.start_options import OPTIONS, PATH, PORT, REPEATED, SWITCH, StartOption, load_chosen, parse
from flockmq.errors import ConfigError


def by_typer(arguments: list[str]) -> dict[str, Any] | None:
    """What typer makes of it; None when it refuses."""
    seen: list[Mapping[str, Any]] = []
    app = typer.Typer()
    start.register(app, seen.append)
    result = CliRunner().invoke(app, arguments, env={"FLOCKMQ_CONFIG": ""})
    if result.exit_code:
        return None
    (values,) = seen
    return {name: value or None if isinstance(value, list) else value for name, value in values.items()}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--allow-anonymous", "--mqtt-port", "1883"],
        ["--allow-anonymous", "--mqtt-port=0", "--host", "*", "--json"],
        ["--name=n1@h", "--data-dir", "/tmp/x y", "--config", "a=b.toml"],
        ["--set", "a.b=c=d", "--set=e.f=", "--log-level", "debug"],
        ["--mqtt-port", "1", "--mqtt-port", "2"],
    ],
)
def test_the_usual_is_read_at_once(arguments: list[str]) -> None:
    assert parse(arguments, {}) == by_typer(arguments)
    assert parse(arguments, {}) is not None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--bogus"],
        ["--mqtt-port"],
        ["--mqtt-port", "65536"],
        ["--mqtt-port", "-1"],
        ["--mqtt-port", "１"],
        ["--allow-anonymous=true"],
        ["--log-level", "loud"],
        ["--set", "x"],
        ["--name", "--json"],
        ["stray"],
        ["--"],
    ],
)
def test_the_rest_is_left_to_typer(arguments: list[str]) -> None:
    assert parse(arguments, {}) is None


def spelled(option: StartOption) -> st.SearchStrategy[list[str]]:
    if option.kind == SWITCH:
        return st.just([option.flag])
    words = {
        PORT: st.integers(-2, 70_000).map(str) | st.sampled_from(["", "x", "1e3", "0x10", "007"]),
        REPEATED: st.text("ab.=", max_size=6),
        PATH: st.text("ab/=. -", max_size=6),
    }
    values = words.get(option.kind, st.text("ab@=- ", max_size=6) | st.sampled_from(["debug", "error"]))
    return values.flatmap(lambda text: st.sampled_from([[option.flag, text], [f"{option.flag}={text}"]]))


@given(st.lists(st.sampled_from(OPTIONS).flatmap(spelled), max_size=4))
def test_both_ways_agree(parts: list[list[str]]) -> None:
    arguments = [word for part in parts for word in part]
    quick = parse(arguments, {})
    if quick is not None:
        assert quick == by_typer(arguments)


def test_the_configuration_file_may_stand_in_the_environment() -> None:
    found = parse([], {"FLOCKMQ_CONFIG": "/etc/flockmq.toml"})
    assert found is not None
    assert found["config"] == Path("/etc/flockmq.toml")
    found = parse(["--config", "other.toml"], {"FLOCKMQ_CONFIG": "/etc/flockmq.toml"})
    assert found is not None
    assert found["config"] == Path("other.toml")


def chosen(*arguments: str) -> dict[str, Any]:
    values = parse(list(arguments), {})
    assert values is not None
    return values


def test_options_become_settings(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    flags = ("--name", "n@h", "--data-dir", str(tmp_path), "--allow-anonymous", "--mqtt-port", "7", "--json")
    config = load_chosen(chosen(*flags, "--acl-file", str(file), "--set", "limits.inflight_max=9")).config
    assert (config.broker.node_name, config.data_dir) == ("n@h", str(tmp_path))
    assert config.security.allow_anonymous
    assert config.security.acl_file == str(file)
    assert config.listeners[0].addresses[0].port == 7
    assert config.log.format == "json"
    assert config.broker.limits.inflight_max == 9


def test_set_wins_over_other_flags_and_is_named_in_errors() -> None:
    assert load_chosen(chosen("--name", "a@h", "--set", "node.name=b@h")).config.broker.node_name == "b@h"
    with pytest.raises(ConfigError, match=r"--set limits\.inflight_max can't be 'x': expected a whole number"):
        load_chosen(chosen("--set", "limits.inflight_max=x"))


LATE = {
    "typer",
    "rich",
    "pydantic",
    "aiohttp",
    "prometheus_client",
    "argon2",
    "cryptography",
    "jwt",
}


def test_what_is_slow_to_load_is_not_loaded_before_the_broker_listens() -> None:
    code = (
        "import sys, flockmq.cli.main\n"
        "from flockmq.cli import start_options\n"
        "start_options.load_chosen(start_options.parse(['--allow-anonymous', '--mqtt-port', '1883']))\n"
        "import flockmq.server.run, flockmq.server.app\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert LATE & set(done.stdout.split()) == set()
