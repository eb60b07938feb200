from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.main import get_command

from flockmq.cli.main import make_app
from flockmq.cli.reference import reference

PAGE = Path(__file__).parents[3] / "docs/reference/cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text("utf-8") == reference(), "write it anew with python -m flockmq.cli.reference"


def leaves(command: Any, path: str = "flockmq") -> list[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        return [(path, command)]
    return [leaf for name, child in children.items() for leaf in leaves(child, f"{path} {name}")]


def test_every_command_has_json_and_every_option_its_help() -> None:
    commands = leaves(get_command(make_app()))
    without = [path for path, command in commands if not any("--json" in one.opts for one in command.params)]
    assert without == ["flockmq completion"]  # a script for a shell
    assert [f"{path} {one.name}" for path, command in commands for one in command.params if not one.help] == []
