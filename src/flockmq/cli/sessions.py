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
from flockmq.cli.usage import seconds_of

ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT_ID", help="The client id.")]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="N", help="Of this namespace; else all, or the default one.")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Sessions, connected or not.")
    group.command("list")(list_sessions)
    group.command("show")(show_session)
    group.command("kick")(kick_session)
    group.command("delete")(delete_session)
    app.add_typer(group, name="session")


def list_sessions(
    *,
    namespace: NamespaceOption = None,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Only client ids that begin with this.")] = None,
    connected: Annotated[
        bool | None, typer.Option("--connected/--disconnected", help="Only those whose client is (not) connected.")
    ] = None,
    username: Annotated[str | None, typer.Option("--username", help="Only this user name.")] = None,
    lag: Annotated[
        int | None, typer.Option("--lag", min=1, help="Only those for which so many messages may wait in logs.")
    ] = None,
    away_for: Annotated[
        str, typer.Option("--away-for", help="Only those whose client is away for so long, like 30s, 10m or 7d.")
    ] = "",
    node: NodeOption = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the sessions of all nodes, connected or not. A session is on one node, where its client was last. One that
    is `away` is on none: its record waits in the log until its client returns, to any node. LAG is how many messages
    wait in logs at most: those for others are counted, too."""
    columns = {
        "CLIENT": "client_id",
        "NODE": "node",
        "NAMESPACE": "namespace",
        "STATE": "state",
        "LAG": "lag",
        "USER": "username",
        "MQTT": "protocol_version",
        "EXPIRY S": "expiry_s",
        "SUBSCRIPTIONS": "subscriptions",
        "QUEUED": "queued_messages",
        "QUEUED BYTES": "queued_bytes",
        "IN FLIGHT": "inflight_messages",
        "AWAY SINCE": "disconnected_at",
    }
    client = admin_client(server)
    unanswered: list[str] = []
    there = client.sessions(
        client_id_prefix=prefix,
        connected=connected,
        namespace=namespace,
        username=username,
        lag_min=lag,
        disconnected_s_min=seconds_of("--away-for", away_for),
        node=node,
        unanswered=unanswered,
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


def kick_session(
    client_id: ClientArgument,
    *,
    namespace: NamespaceOption = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Disconnect a client (MQTT 5: reason 0x98) and keep its session, as long as that outlives connections."""
    client = admin_client(server)
    expiry_s = client.session(client_id, namespace).expiry_s
    client.kick(client_id, namespace)
    what = "waits for it" if expiry_s else "ended with the connection"
    sentence = f"{client_id!r} was disconnected; its session {what}."
    print_change(sentence, as_json=as_json, kicked=client_id, session_kept=expiry_s > 0)


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
