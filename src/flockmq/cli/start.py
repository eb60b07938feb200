"""``flockmq start``: run a broker in the foreground. Its options are a table, see ``start_options``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from flockmq.cli.settings_options import check_set
from flockmq.cli.start_options import (
    CONFIG,
    CONFIG_VARIABLE,
    OPTIONS,
    PATH,
    PORT,
    REPEATED,
    SET,
    SWITCH,
    StartOption,
    run,
)

_TYPES: Final[dict[str, Any]] = {PATH: Path, PORT: int, SWITCH: bool, REPEATED: list[str]}


def register(app: typer.Typer, handler: Callable[[Mapping[str, Any]], None] = run) -> None:
    """Add the command; ``handler`` gets the values of its options, by name."""

    def start(**values: Any) -> None:
        handler(values)

    start.__doc__ = "Run a broker in the foreground until Ctrl-C. Logs go to standard error, one line an event."
    parameters = [_parameter(option) for option in OPTIONS]
    start.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    start.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command("start")(start)


def _parameter(option: StartOption) -> inspect.Parameter:
    kind: Any = Literal[option.choices] if option.choices else _TYPES.get(option.kind, str)
    info = typer.Option(
        option.flag,
        help=option.text,
        metavar=option.metavar or None,
        envvar=CONFIG_VARIABLE if option.flag == CONFIG else None,
        min=0 if option.kind == PORT else None,
        max=65_535 if option.kind == PORT else None,
        callback=check_set if option.flag == SET else None,
    )
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )
