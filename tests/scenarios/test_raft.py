"""Transcripts of Raft groups: commands above ``----``, what they led to below. ``--update`` rewrites them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.raft_script import Script

FOLDER = Path(__file__).parent / "raft"
RULE = "----"


def transcript(text: str) -> str:
    """The same commands, with what happens now."""
    script = Script()
    parts: list[str] = []
    for block in text.strip().split("\n\n"):
        commands = block.split("\n")
        if RULE in commands:
            commands = commands[: commands.index(RULE)]
        output: list[str] = []
        for line in commands:
            if line and not line.startswith("#"):
                output += script.run(line)
        is_comment = all(line.startswith("#") for line in commands)
        parts.append("\n".join(commands if is_comment else [*commands, RULE, *(output or ["(nothing)"])]))
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.txt")))
def test_transcript(name: str, update: bool) -> None:
    path = FOLDER / name
    expected = path.read_text()
    actual = transcript(expected)
    if update:
        path.write_text(actual)
        return
    assert actual == expected
