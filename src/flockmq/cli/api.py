"""How commands reach a broker's admin API: the server from ``--server`` or the environment, the token of this user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from flockmq.client.admin import AdminClient

SERVER_DEFAULT: Final = "http://127.0.0.1:18083"
ServerOption = Annotated[
    str, typer.Option("--server", envvar="FLOCKMQ_SERVER", metavar="URL", help="Address of a broker's admin API.")
]


def admin_client(server: str) -> AdminClient:
    """A client for this server, with the token that this user has for it."""
    from flockmq.client.admin import AdminClient
    from flockmq.security import credentials

    if "://" not in server:
        server = f"http://{server}"
    return AdminClient(server, credentials.load(server))
