"""``flockmq session``: what the broker remembers of clients, connected or not."""

from __future__ import annotations

from typing import Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import in_known_namespace
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

ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT_ID", help="The client id.")]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="N", help="Of this namespace; else all, or the default one.")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Sessions, connected or not.")
    group.command("list")(list_sessions)
    group.command("show")(show_session)
    group.command("delete")(delete_session)
    app.add_typer(group, name="session")


def list_sessions(
    *,
    namespace: NamespaceOption = None,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Only client ids that begin with this.")] = None,
    connected: Annotated[
        bool | None, typer.Option("--connected/--disconnected", help="Only those whose client is (not) connected.")
    ] = None,
    node: NodeOption = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the sessions of all nodes, connected or not. A session is on one node, where its client was last. One that
    is `away` is on none: its record waits in the log until its client returns, to any node."""
    columns = {
        "CLIENT": "client_id",
        "NODE": "node",
        "NAMESPACE": "namespace",
        "STATE": "state",
        "MQTT": "protocol_version",
        "EXPIRY S": "expiry_s",
        "SUBSCRIPTIONS": "subscriptions",
        "QUEUED": "queued_messages",
        "QUEUED BYTES": "queued_bytes",
        "IN FLIGHT": "inflight_messages",
    }
    client = admin_client(server)
    unanswered: list[str] = []
    there = client.sessions(
        client_id_prefix=prefix, connected=connected, namespace=namespace, node=node, unanswered=unanswered
    )
    found = in_known_namespace(client, namespace, there)
    print_listing(found, columns, as_json=as_json, limit=limit, nothing="There are no sessions.")
    warn_unanswered(unanswered, "sessions")


def show_session(
    client_id: ClientArgument,
    *,
    namespace: NamespaceOption = None,
    node: NodeOption = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one session with its subscriptions, whichever node it lives on."""
    import msgspec

    client = admin_client(server)
    found = msgspec.to_builtins(client.session(client_id, namespace, node))
    subscriptions = msgspec.to_builtins(list(client.session_subscriptions(client_id, namespace)))
    if as_json:
        print_json(found | {"subscriptions": subscriptions})
        return
    print_fields(found.items())
    print_fields((f"  {one['filter']}", f"QoS {one['qos']}") for one in subscriptions)


def delete_session(
    client_id: ClientArgument,
    *,
    namespace: NamespaceOption = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Disconnect a client, if it is connected, and forget its subscriptions and the messages that wait for it."""
    admin_client(server).delete_session(client_id, namespace)
    print_change(f"The session of {client_id!r} is gone.", as_json=as_json, deleted=client_id)
