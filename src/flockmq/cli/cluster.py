"""``flockmq cluster`` and ``flockmq node``: who is there, and becoming or ceasing to be part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.output import JsonOption, print_fields, print_json, print_table

if TYPE_CHECKING:
    from flockmq.admin.cluster_model import Cluster, Member

COLUMNS: Final = (
    "NODE",
    "STATE",
    "ROLE",
    "ADDRESS",
    "LINK",
    "RTT MS",
    "CLOCK MS",
    "CLIENTS",
    "ROUTES",
    "VERSION",
    "ID",
)
Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="Any node of the cluster: host, host:port or name@host.")
]
Discard = Annotated[
    bool, typer.Option("--discard-data", help="Join though this node loses its topics or sessions by it.")
]


def register(app: typer.Typer) -> None:
    """Add the groups."""
    cluster = typer.Typer(help="The nodes together.")
    cluster.command("status")(status)
    cluster.command("join")(join)
    cluster.command("leave")(leave)
    app.add_typer(cluster, name="cluster")
    nodes = typer.Typer(help="The nodes one by one.")
    nodes.command("list")(list_nodes)
    app.add_typer(nodes, name="node")


def status(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Show the cluster as one node sees it: its members, the links to them and their clocks."""
    found = admin_client(server).cluster()
    if as_json:
        print_json(found)
        return
    print_fields(_summary(found))
    if found.members:
        print()
        _print_members(found.members)


def _summary(found: Cluster) -> list[tuple[str, object]]:
    states = [member.state for member in found.members]
    counts = [f"{states.count(state)} {state}" for state in ("alive", "suspect", "dead", "left") if state in states]
    fields: list[tuple[str, object]] = [
        ("cluster", found.id),
        ("seen from", found.node),
        ("state", found.state),
        ("nodes", ", ".join(counts) or "none"),
    ]
    if found.reason:
        fields.append(("waits for", found.reason))
    return fields


def _print_members(members: list[Member]) -> None:
    rows = [
        [
            member.name,
            member.state,
            member.role,
            f"[{member.host}]:{member.port}" if ":" in member.host else f"{member.host}:{member.port}",
            "itself" if member.is_self else "up" if member.linked else "down",
            member.rtt_ms,
            member.clock_offset_ms,
            member.clients,
            member.routes,
            member.version,
            member.id,
        ]
        for member in members
    ]
    print_table(COLUMNS, rows)


def list_nodes(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """List the nodes of the cluster."""
    found = admin_client(server).cluster()
    if as_json:
        print_json(found.members)
    else:
        _print_members(found.members)


def join(
    address: Address,
    *,
    discard_data: Discard = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make the node at --server a member of another node's cluster."""
    result = admin_client(server).join(address, discard_data=discard_data)
    if as_json:
        print_json(result)
    elif result.changed:
        print(f"The node is a member of cluster {result.id} now.")
    else:
        print(f"The node was a member of cluster {result.id} before.")


def leave(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Let the node at --server take leave of the others. It goes on alone, in a cluster of its own."""
    client = admin_client(server)
    client.leave()
    if as_json:
        print_json(client.cluster())
    else:
        print("The node has left and is a cluster of its own now.")
