"""``flockmq route``: which filters lead where, and who a message to a topic would reach."""

from __future__ import annotations

from typing import Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.mqtt_options import TopicArgument
from flockmq.cli.output import LIMIT_DEFAULT, JsonOption, LimitOption, print_json, print_listing, print_table

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


def list_routes(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """List the filters that somebody subscribed to, with how many did."""
    counts: dict[str, int] = {}
    client = admin_client(server)
    for one in client.subscriptions():
        counts[one.filter] = counts.get(one.filter, 0) + 1
    node = client.node().name
    if as_json:
        print_json([{"filter": name, "node": node, "subscribers": counts[name]} for name in sorted(counts)])
    elif counts:
        print_table(["FILTER", "NODE", "SUBSCRIBERS"], [[name, node, counts[name]] for name in sorted(counts)])
    else:
        print("Nobody has subscribed to anything.")


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
