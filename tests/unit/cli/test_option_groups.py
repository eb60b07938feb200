from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from flockmq.cli.option_groups import grouped

Host = Annotated[str, typer.Option("--host", "-H", help="Host.")]
Port = Annotated[list[int] | None, typer.Option("--port", help="Port.")]


@dataclass(frozen=True)
class Where:
    host: Host = "127.0.0.1"
    port: Port = None


def connect(*, where: Where, qos: Annotated[int, typer.Option("--qos", help="Quality.")] = 0) -> None:
    """Connect somewhere."""
    print(where.host, where.port, qos)


def test_fields_of_a_group_are_options_in_their_order() -> None:
    assert list(inspect.signature(grouped(connect)).parameters) == ["host", "port", "qos"]


def test_the_command_gets_its_group() -> None:
    app = typer.Typer()
    app.command()(grouped(connect))
    assert CliRunner().invoke(app, []).output == "127.0.0.1 None 0\n"
    assert CliRunner().invoke(app, ["-H", "h", "--port", "1", "--port", "2", "--qos", "1"]).output == "h [1, 2] 1\n"
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Connect somewhere." in shown
    assert "--where" not in shown
