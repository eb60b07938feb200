"""``flockmq login`` keeps the token of a broker on another machine, or of another user; ``flockmq token`` shows one."""

from __future__ import annotations

import sys

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, one_server
from flockmq.cli.output import JsonOption, print_change
from flockmq.errors import FlockError


def login(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Ask for a token (or read it from standard input), check it with a broker and keep it in this user's own file."""
    from flockmq.client.admin import AdminClient
    from flockmq.client.tokens import cluster_of
    from flockmq.security import credentials

    server = one_server(server, "each has a token of its own")
    if sys.stdin.isatty():
        import getpass

        given = getpass.getpass(f"Token for {server}: ").strip()
    else:
        given = sys.stdin.readline().strip()
    if not given:
        raise FlockError(
            "No token was given; write it to standard input. It is in the credentials file of the user who started the "
            "broker."
        )
    node = AdminClient(server, given).node()
    path = credentials.save(server, given, cluster=cluster_of(server))
    said = f"Logged in to {node.name} at {server}; the token is in {path}."
    print_change(said, as_json=as_json, server=server, node=node.name, credentials=str(path))


def token(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Print the token that this user has for a broker, for other programs: curl, Prometheus, a script."""
    from flockmq.client.tokens import token_for

    server = one_server(server, "each has a token of its own")
    found = token_for(server)
    if found is None:
        raise FlockError(
            f"There is no token for {server} in the credentials file of this user; run `flockmq login` with the one of "
            "the user who started the broker."
        )
    print_change(found, as_json=as_json, server=server, token=found)
