from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flockmq import __version__
from flockmq.cli import main
from flockmq.cli.main import COMMANDS, make_app, run


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FLOCKMQ_SERVER", "FLOCKMQ_TOKEN", "FLOCKMQ_CONFIG", "FLOCKMQ_DEBUG", "FLOCKMQ_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLOCKMQ_CREDENTIALS", str(tmp_path / "credentials.toml"))


def test_version_says_which_build_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"flockmq {__version__} (")
    assert run(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == __version__
    scan = sys.modules["flockmq.mqtt.scan"].__file__ or ""
    assert found["build"] == ("pure" if scan.endswith(".py") else "compiled")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bogus"], "No such command 'bogus'; see `flockmq --help`."),
        (["stauts"], "Did you mean 'status', 'start'? See `flockmq --help`."),
        (["client"], "Missing command; see `flockmq client --help`."),
        (["bench"], "Missing command; see `flockmq bench --help`."),
        (["pub", "t/#", "p"], "The topic name holds a wildcard; wildcards are for filters only; see `flockmq pub"),
        (["pub", "", "p"], "The topic name is empty"),
        (["pub", "\udcff", "p"], "The topic name is not valid UTF-8"),
        (["client", "show", "\udcff"], "An argument is not UTF-8 text"),
        (["route", "show", "+/t"], "The topic name holds a wildcard"),
        (["version", "--bogus"], "see `flockmq version --help`."),
        (["client", "show"], "see `flockmq client show --help`."),
        (["client", "ban", "x", "--kind", "all"], "'--kind': 'all' is not one of 'client', 'username', 'address'; see"),
        (["pub", "t", "p", "--file", "f"], "give one of PAYLOAD, --file, --lines and --empty, not several"),
        (["pub", "t", "p", "--qos", "3"], "see `flockmq pub --help`."),
        (["pub", "t", "p", "--mqtt", "3.1.1", "-U", "a=b"], "properties exist in MQTT 5 only"),
        (["pub", "t", "p", "-U", "ab"], "'ab' is not NAME=VALUE"),
        (["pub", "t", "p", "--expiry", "soon"], "a duration like"),
        (["sub", "t", "--session-expiry", "1h"], "needs --client-id"),
        (["sub", "t", "-i", "x", "--session-expiry", "ever"], "a duration like"),
        (["config", "show", "--set", "x"], "'x' is not KEY=VALUE"),
        (["pub", "a", "b", "--username", "u"], "--username needs a password"),
        (["bench", "pub", "--cpus", "one"], "--cpus can't be 'one'"),
        (["acl", "delete"], "say --yes if you are sure"),
        (["cluster", "leave", "--server", "127.0.0.1:1"], "say --yes if you are sure"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("flockmq: ")
    assert sentence in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["status", "--server", "http://127.0.0.1:1"], "is it running?"),
        (["status", "--server", "127.0.0.1:1"], "is it running?"),
        (["status", "--server", "gopher://x"], "is not a server address"),
        (["pub", "a", "b", "--port", "1"], "No broker answers at 127.0.0.1:1 (Connection refused); is it running?"),
        (["pub", "a", "b", "--port", "1", "--ca-file", "/nowhere"], "check --ca-file"),
        (["pub", "a", "--file", "/nowhere"], "/nowhere can't be read (No such file or directory)"),
        (["sub", "a", "--password-file", "/nowhere"], "/nowhere can't be read"),
        (["config", "check", "--set", "node.nmae=x"], "did you mean node.name?"),
        (["passwd", "/nowhere/file", "ann"], "No password for 'ann' came on standard input"),
        (["login"], "No token was given"),
    ],
)
def test_what_fails_is_one_sentence_and_exit_code_1(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert run(arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("flockmq: ")
    assert sentence in printed.err
    assert len(printed.err.splitlines()) == 1


def test_without_arguments_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage" in capsys.readouterr().out


def test_a_command_loads_alone_and_all_load_together() -> None:
    assert [group.name for group in make_app("client").registered_groups] == ["client"]
    assert [command.name for command in make_app("pub").registered_commands] == ["pub"]
    app = make_app()
    commands = {one.name for one in app.registered_commands}
    groups = {one.name for one in app.registered_groups}
    assert commands | groups >= COMMANDS.keys() - {"bench", "demo"}


@pytest.mark.parametrize("debug", [False, True])
def test_our_own_mistakes_are_told_as_such(
    debug: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(main.COMMANDS, "oops", "../..")  # a module that can't be loaded
    if debug:
        monkeypatch.setenv("FLOCKMQ_DEBUG", "1")
        with pytest.raises(ModuleNotFoundError):
            run(["oops"])
    else:
        assert run(["oops"]) == 1
        assert "This is a mistake in FlockMQ" in capsys.readouterr().err


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_is_no_mistake_of_ours(closed: int, tmp_path: Path) -> None:
    """As under a supervisor that closes what it does not need."""
    shell = f'exec "$0" -m flockmq passwd "$1" ann --delete {closed}>&-'
    arguments = ["sh", "-c", shell, sys.executable, str(tmp_path / "users")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "mistake" not in done.stderr
    assert bool(done.stderr) == (closed != 2)


def test_help_is_not_cut_or_eaten(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["cluster", "rebalance", "--help"]) == 0
    assert "With --advice copies and leaders go" in " ".join(capsys.readouterr().out.split())
    assert run(["pipeline", "--help"]) == 0
    assert "They need `flockmq[spark]`." in capsys.readouterr().out
