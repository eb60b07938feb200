"""``flockmq route``: which filters lead where, and which clients a message to a topic would reach."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.mqtt_options import TopicArgument
from flockmq.cli.output import (
    LIMIT_DEFAULT,
    JsonOption,
    LimitOption,
    NodeOption,
    print_json,
    print_listing,
    warn_unanswered,
)
from flockmq.peering.drawing import draw_routes, draw_table
from flockmq.server.escape import printable

if TYPE_CHECKING:
    from flockmq.admin.cluster_model import Route, Step

_REACHED = {"CLIENT": "client_id", "NODE": "node", "FILTER": "filter", "QOS": "qos", "NOTE": "note"}
_COLUMNS = {
    "FILTER": "filter",
    "CLIENT": "client_id",
    "NODE": "node",
    "QOS": "qos",
    "GROUP": "share_group",
    "NO LOCAL": "no_local",
    "ID": "identifier",
}


class Reached(msgspec.Struct, frozen=True):
    """A subscription that a message would reach."""

    node: str
    client_id: str
    filter: str
    share_group: str | None
    qos: int | None
    note: str


def register(app: typer.Typer) -> None:
    """Add the groups."""
    routes = typer.Typer(help="Topic filters and where they lead.")
    routes.command("list")(list_routes)
    routes.command("show")(show_route)
    app.add_typer(routes, name="route")
    subscriptions = typer.Typer(help="Subscriptions, one by one.")
    subscriptions.command("list")(list_subscriptions)
    app.add_typer(subscriptions, name="subscription")


def list_routes(
    *,
    tree: Annotated[bool, typer.Option("--tree", help="Draw the tree of wildcard filters above the table.")] = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the topic filters of the whole cluster, each with the nodes that have subscribers for it."""
    found = list(admin_client(server).routes())
    if as_json:
        print_json(found)
        return
    if found:
        print_routes(found, tree=tree)
    else:
        print("No client has subscribed to anything.")


def print_routes(found: list[Route], *, tree: bool) -> None:
    """Filters and their nodes, below the drawing of the wildcard filters where that is wanted."""
    rows = [(printable(_full(one)), [printable(node) for node in one.nodes]) for one in found]
    print("\n".join(draw_routes(rows) if tree else draw_table(rows)))


def _full(route: Route) -> str:
    return f"$share/{route.share_group}/{route.filter}" if route.share_group else route.filter


def show_route(
    topic: TopicArgument,
    *,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the subscriptions of the whole cluster that a message to this topic would reach.

    `flockmq explain` also tells the way there, and which filters look alike and don't match.
    """
    found = admin_client(server).explain(topic)
    reached = [_reached(step) for step in found.steps if step.kind == "Deliver"]
    print_listing(
        reached, _REACHED, as_json=as_json, limit=limit, nothing="A message to that topic would reach no client."
    )
    for miss in found.misses:
        print(printable(f"{miss.node}: {miss.reason}"), file=sys.stderr)


def _reached(step: Step) -> Reached:
    return Reached(
        node=step.source,
        client_id=step.target,
        filter=f"$share/{step.share_group}/{step.topic}" if step.share_group else step.topic,
        share_group=step.share_group,
        qos=step.qos,
        note=step.note,
    )


def list_subscriptions(
    *,
    client_id: Annotated[str | None, typer.Option("--client", help="Only those of this client id.")] = None,
    topic_filter: Annotated[str | None, typer.Option("--filter", help="Only this filter, exactly.")] = None,
    node: NodeOption = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the subscriptions of the whole cluster."""
    unanswered: list[str] = []
    found = admin_client(server).subscriptions(
        client_id=client_id, topic_filter=topic_filter, node=node, unanswered=unanswered
    )
    print_listing(found, _COLUMNS, as_json=as_json, limit=limit, nothing="No client has subscribed to that.")
    warn_unanswered(unanswered, "subscriptions")
