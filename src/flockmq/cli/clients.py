"""``flockmq client``: connected clients, and bans."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from flockmq.cli import registrations
from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT, in_known_namespace
from flockmq.cli.output import (
    LIMIT_DEFAULT,
    JsonOption,
    LimitOption,
    NodeOption,
    print_change,
    print_fields,
    print_json,
    print_listing,
    warn_unanswered,
)
from flockmq.cli.usage import UsageError, seconds_of
from flockmq.wording import counted

ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT_ID", help="The client id.")]
NamespaceOption = Annotated[str | None, typer.Option("--namespace", "-n", metavar="N", help="In this namespace.")]
RegisteredOption = Annotated[bool, typer.Option("--registered", help="Registered clients, connected or not.")]
Kind = Annotated[
    Literal["client", "username", "address"], typer.Option("--kind", help="What VALUE is: client id, user name, IP.")
]
ValueArgument = Annotated[str, typer.Argument(metavar="VALUE", help="Client id, user name or IP address.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Clients: those that are connected, those that are registered, and bans.")
    group.command("list")(list_clients)
    group.command("show")(show_client)
    registrations.register(group)
    group.command("kick")(kick)
    group.command("ban")(ban)
    group.command("unban")(unban)
    group.command("bans")(bans)
    app.add_typer(group, name="client")


def list_clients(
    *,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Only client ids that begin with this.")] = None,
    username: Annotated[str | None, typer.Option("--username", help="Only this user name.")] = None,
    peer: Annotated[str | None, typer.Option("--peer", help="Only this IP address.")] = None,
    registered: RegisteredOption = False,
    namespace: NamespaceOption = None,
    node: NodeOption = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the clients that are connected to any node of the cluster, or with --registered those that may log in."""
    if registered:
        if prefix is not None or peer is not None:
            wrong = "--peer" if prefix is None else "--prefix"
            raise UsageError(
                f"{wrong} is about connected clients: a registered client has a name, which --username chooses by."
            )
        registrations.list_registered(server, namespace, username, limit, as_json=as_json)
        return
    client = admin_client(server)
    unanswered: list[str] = []
    there = client.connections(
        client_id_prefix=prefix, username=username, peer=peer, namespace=namespace, node=node, unanswered=unanswered
    )
    found = in_known_namespace(client, namespace, there)
    columns = {
        "CLIENT": "client_id",
        "NODE": "node",
        "NAMESPACE": "namespace",
        "USER": "username",
        "ADDRESS": "peer",
        "LISTENER": "listener",
        "MQTT": "protocol_version",
        "SUBSCRIPTIONS": "subscriptions",
        "MESSAGES IN": "messages_in",
        "MESSAGES OUT": "messages_out",
        "SINCE": "connected_at",
    }
    print_listing(found, columns, as_json=as_json, limit=limit, nothing="No client is connected.")
    warn_unanswered(unanswered, "clients")


def show_client(
    client_id: Annotated[str, typer.Argument(metavar="CLIENT_ID", help="The client id, or a registered name.")],
    *,
    registered: RegisteredOption = False,
    namespace: NamespaceOption = None,
    node: NodeOption = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one connected client, whichever node it is connected to, or with --registered what is registered of it."""
    import msgspec

    if registered:
        registrations.show_registered(server, namespace or NAMESPACE_DEFAULT, client_id, as_json=as_json)
        return
    found = msgspec.to_builtins(admin_client(server).connection(client_id, namespace, node))
    if as_json:
        print_json(found)
    else:
        print_fields(found.items())


def kick(
    client_id: ClientArgument,
    *,
    namespace: NamespaceOption = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Disconnect a client, whichever node it is connected to. It may connect again; to keep it out, use ban."""
    admin_client(server).kick(client_id, namespace)
    print_change(f"{client_id!r} was disconnected.", as_json=as_json, kicked=client_id)


def ban(
    value: ValueArgument,
    *,
    kind: Kind = "client",
    duration: Annotated[str, typer.Option("--for", help="How long, like 30s, 10m or 7d; without it, for good.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; shown in the list of bans.")] = "",
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Keep a client id, a user name or an address out, and disconnect the clients it hits."""
    result = admin_client(server).ban(kind, value, duration_s=seconds_of("--for", duration), reason=reason)
    if as_json:
        print_json(result)
        return
    until = f"until {result.ban.expires_at}" if result.ban.expires_at else "until it is lifted with unban"
    print(f"{kind} {value!r} is banned {until}; {counted(result.kicked, 'connected client')} disconnected.")


def unban(
    value: ValueArgument, *, kind: Kind = "client", server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False
) -> None:
    """Let a client id, a user name or an address in again."""
    admin_client(server).unban(kind, value)
    print_change(f"{kind} {value!r} may connect again.", as_json=as_json, kind=kind, unbanned=value)


def bans(
    *, limit: LimitOption = LIMIT_DEFAULT, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False
) -> None:
    """List the bans."""
    columns = {"KIND": "kind", "VALUE": "value", "UNTIL": "expires_at", "REASON": "reason"}
    found = admin_client(server).bans()
    print_listing(found, columns, as_json=as_json, limit=limit, nothing="There are no bans.")
