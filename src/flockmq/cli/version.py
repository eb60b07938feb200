"""``flockmq version``: what runs here, and whether its hot modules are compiled."""

from __future__ import annotations

from typing import Annotated

import typer

from flockmq.cli.output import JsonOption
from flockmq.cli.version_text import version_text


def version(*, as_json: JsonOption = False) -> None:
    """Say which version this is, and whether it runs compiled or as plain Python."""
    print(version_text(as_json=as_json))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version_text(as_json=False))
        raise typer.Exit


def root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Say which version this is.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """FlockMQ: an MQTT broker in Python that clusters, and keeps what matters in replicated logs.

    `flockmq start` runs a broker, `flockmq up 3` a cluster on this machine.
    """
