"""Options of commands that read the broker's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flockmq.config.sources import Setting

ConfigOption = Annotated[
    Path | None, typer.Option("--config", envvar="FLOCKMQ_CONFIG", metavar="FILE", help="Configuration file, in TOML.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, like limits.packet_bytes_max=64KB; may repeat."),
]


def setting(flag: str, path: str, value: object) -> tuple[str, str, object]:
    """A flag that stands for a setting."""
    return flag, path, str(value) if isinstance(value, Path) else value


def settings(named: list[tuple[str, str, object]], set_: list[str] | None) -> tuple[Setting, ...]:
    """Flags as settings; those of ``--set`` come last."""
    from flockmq.config.sources import Origin, Setting

    found = [Setting(tuple(path.split(".")), value, Origin("flag", flag)) for flag, path, value in named]
    for text in set_ or []:
        path, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        found.append(Setting(tuple(path.strip().split(".")), value, Origin("flag", f"--set {path.strip()}")))
    return tuple(found)
