"""``flockmq version``: what runs here, and whether its hot modules are compiled."""

from __future__ import annotations

import typer

from flockmq.cli.output import JsonOption
from flockmq.cli.version_text import version_text


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("version")(version)


def version(*, as_json: JsonOption = False) -> None:
    """Say which version this is, and whether it runs compiled or as plain Python."""
    print(version_text(as_json=as_json))
