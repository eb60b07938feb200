"""``flockmq login``: keep the token of a broker on another machine, or of another user."""

from __future__ import annotations

import sys

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, one_server
from flockmq.cli.output import JsonOption, print_json
from flockmq.errors import FlockError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("login")(login)


def login(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Ask for a token (or read it from standard input), check it with a broker and keep it in this user's own file."""
    from flockmq.client.admin import AdminClient
    from flockmq.security import credentials

    server = one_server(server, "each has a token of its own")
    if sys.stdin.isatty():
        import getpass

        token = getpass.getpass(f"Token for {server}: ").strip()
    else:
        token = sys.stdin.readline().strip()
    if not token:
        raise FlockError(
            "No token was given; write it to standard input. It is in the credentials file of the user who started the "
            "broker."
        )
    node = AdminClient(server, token).node()
    path = credentials.save(server, token)
    if as_json:
        print_json({"server": server, "node": node.name, "credentials": str(path)})
    else:
        print(f"Logged in to {node.name} at {server}; the token is in {path}.")
