"""``flockmq config``: what a broker started here and now would be configured as."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flockmq.cli.output import JsonOption, print_json, print_table
from flockmq.cli.settings_options import ConfigOption, SetOption
from flockmq.cli.start_options import set_settings

if TYPE_CHECKING:
    from pathlib import Path

    from flockmq.config.load import Loaded


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Settings in force, and whether they can be used.")
    group.command("show")(show)
    group.command("check")(check)
    app.add_typer(group, name="config")


def show(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the defaults.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every setting with its value and where that came from. Secrets are not printed."""
    from flockmq.config.show import as_rows

    rows = [row for row in as_rows(_load(config, set_).values) if not changed or row[2] != "default"]
    if as_json:
        print_json([{"key": key, "value": value, "origin": origin} for key, value, origin in rows])
    else:
        print_table(["SETTING", "VALUE", "FROM"], [[key, _text(value), origin] for key, value, origin in rows])


def check(*, config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Say whether a broker would start with this configuration and the files it names; all that is wrong is told."""
    from flockmq.server.check import advice, check_files

    checked = _load(config, set_).config
    check_files(checked)
    listeners = [f"{one.key} on {address}" for one in checked.listeners for address in one.addresses]
    warnings = advice(checked, [address for one in checked.listeners for address in one.addresses])
    if as_json:
        told = [{"event": one.event, "message": one.message, **one.fields} for one in warnings]
        print_json({"ok": True, "node": checked.broker.node_name, "listeners": listeners, "warnings": told})
        return
    print(f"The configuration is good: {checked.broker.node_name} would serve {', '.join(listeners)}.")
    for one in warnings:
        print(f"But {one.message}{'' if one.message.endswith('?') else '.'}", file=sys.stderr)


def _load(config: Path | None, set_: list[str] | None) -> Loaded:
    from flockmq.config.load import Flags, load

    return load(config, os.environ, Flags(settings=set_settings(set_)))


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
