"""How commands reach a broker's admin API: the server from ``--server`` or the environment, the token of this user.

```
 one server                 --> that one
 several, with commas       --> the first that answers; a reader of a log goes on with another when that is gone
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.usage import UsageError

if TYPE_CHECKING:
    from flockmq.client.admin import AdminClient
    from flockmq.client.log_client import LogClient

SERVER_DEFAULT: Final = "http://127.0.0.1:18083"
ServerOption = Annotated[
    str,
    typer.Option(
        "--server",
        envvar="FLOCKMQ_SERVER",
        metavar="URL",
        help="A broker's admin API: host, host:port or URL; several with commas.",
    ),
]


def admin_client(server: str) -> AdminClient:
    """A client for the first of these servers that answers, with the token that this user has for it."""
    from flockmq.client.admin import AdminClient
    from flockmq.client.tokens import token_for

    urls = server_urls(server)
    # Where none answers, the first says so in its own words.
    url = urls[0] if len(urls) == 1 else next((one for one in urls if AdminClient(one).is_live()), urls[0])
    return AdminClient(url, token_for(url))


def log_client(server: str, namespace: str, *, retry_s: float) -> LogClient:
    """A client for the logs of a namespace, which asks these servers first and then those that they tell of."""
    from flockmq.client.log_client import LogClient

    return LogClient(server_urls(server), namespace=namespace, retry_s=retry_s, named_first=True)


def one_server(server: str, what: str) -> str:
    """The server of a command that is about a node and not about its cluster."""
    urls = server_urls(server)
    if len(urls) > 1:
        raise UsageError(f"--server names {len(urls)} servers, and {what}; name one of them.")
    return urls[0]


def server_urls(server: str) -> list[str]:
    """The servers that the user named."""
    named = [part.strip() for part in server.split(",") if part.strip()]
    if not named:
        raise UsageError(f"--server names no server; write it like {SERVER_DEFAULT}.")
    from flockmq.client.transport import server_url

    return [server_url(one) for one in named]
