"""``flockmq version``: what runs here, and whether its hot modules are compiled."""

from __future__ import annotations

import typer

from flockmq.cli.output import JsonOption, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("version")(version)


def version(*, as_json: JsonOption = False) -> None:
    """Say which version this is, and whether it runs compiled or as plain Python."""
    import platform

    from flockmq import __version__
    from flockmq.server.build import build_kind

    python = f"{platform.python_implementation()} {platform.python_version()}"
    if as_json:
        print_json({"version": __version__, "build": build_kind(), "python": python, "platform": platform.platform()})
    else:
        print(f"flockmq {__version__} ({build_kind()}, {python})")
