from __future__ import annotations

import re
from typing import Any

import pytest
from typer.main import get_command

from flockmq import __version__
from flockmq.cli.describe import arguments, options, text_of, walk
from flockmq.cli.help import SECTIONS, help_text
from flockmq.cli.main import COMMANDS, make_app, run

WIDTH = 80
ALL: list[tuple[str, Any]] = [
    (" ".join(("flockmq", *path)), command) for path, command in walk((), get_command(make_app()))
]


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_help_fits_80_columns_and_cuts_nothing(path: str, command: Any) -> None:
    printed = help_text(path, command, WIDTH)
    assert max(map(len, printed.splitlines())) <= WIDTH
    told = words(printed)
    for paragraph in text_of(command).split("\n\n"):
        assert words(paragraph) in told
    for one in [*arguments(command), *options(command)]:
        assert one.text
        assert words(one.text) in told
        assert all(name in told for name in one.names)
    assert not re.search(r"<(bool|int|str|float|path)|…", printed)


def test_switches_have_no_value_and_numbers_have_a_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "create", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(r" +--json +Print JSON, for programs\.", line) for line in lines)
    assert any(
        re.fullmatch(r" +--shards N +How many partitions\. From 1 to 1024\. Default: 1\.", line) for line in lines
    )
    assert any(line.strip() == "--ack quorum|leader|memory" for line in lines)


@pytest.mark.parametrize(
    "arguments", [["-h"], ["topic", "-h"], ["topic", "create", "-h"], ["start", "-h"], ["status", "-h"], ["sub", "-h"]]
)
def test_the_short_name_of_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    short = capsys.readouterr().out
    assert run([*arguments[:-1], "--help"]) == 0
    assert capsys.readouterr().out == short
    assert short.startswith(f"Usage: flockmq {' '.join(arguments[:-1])}".rstrip())


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "status"]])
def test_the_version_as_an_option(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    assert capsys.readouterr().out.startswith(f"flockmq {__version__} (")


def test_every_command_has_its_place_in_the_overview() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)
