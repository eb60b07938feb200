"""``flockmq route``: which filters lead where, and who a message to a topic would reach."""

from __future__ import annotations

from typing import Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.mqtt_options import TopicArgument
from flockmq.cli.output import LIMIT_DEFAULT, JsonOption, LimitOption, print_json, print_listing
from flockmq.peering.drawing import draw_routes
from flockmq.server.escape import printable

_COLUMNS = {
    "FILTER": "filter",
    "CLIENT": "client_id",
    "QOS": "qos",
    "GROUP": "share_group",
    "NO LOCAL": "no_local",
    "ID": "identifier",
}


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
    if not found:
        print("Nobody has subscribed to anything.")
        return
    rows = [(f"$share/{one.share_group}/{one.filter}" if one.share_group else one.filter, one.nodes) for one in found]
    if tree:
        print("\n".join(printable(line) for line in draw_routes(rows)))
        return
    width = max(len(name) for name, _ in rows)
    for name, nodes in rows:
        print(printable(f"{name:<{width}} -> {', '.join(nodes)}"))


def show_route(
    topic: TopicArgument,
    *,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the subscriptions that a message to this topic would reach."""
    found = admin_client(server).subscriptions(match=topic)
    print_listing(found, _COLUMNS, as_json=as_json, limit=limit, nothing="A message to that topic would reach nobody.")


def list_subscriptions(
    *,
    client_id: Annotated[str | None, typer.Option("--client", help="Only those of this client id.")] = None,
    topic_filter: Annotated[str | None, typer.Option("--filter", help="Only this filter, exactly.")] = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List subscriptions."""
    found = admin_client(server).subscriptions(client_id=client_id, topic_filter=topic_filter)
    print_listing(found, _COLUMNS, as_json=as_json, limit=limit, nothing="Nobody has subscribed to that.")
