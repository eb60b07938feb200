"""Options of commands that read the broker's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flockmq.cli.start_options import CONFIG, CONFIG_HELP, CONFIG_VARIABLE, SET, SET_HELP


def check_set(texts: list[str] | None) -> list[str] | None:
    """Refuse what is not KEY=VALUE."""
    for text in texts or []:
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
    return texts


ConfigOption = Annotated[Path | None, typer.Option(CONFIG, envvar=CONFIG_VARIABLE, metavar="FILE", help=CONFIG_HELP)]
SetOption = Annotated[list[str] | None, typer.Option(SET, metavar="KEY=VALUE", help=SET_HELP, callback=check_set)]
