"""``flockmq retained``: the messages that new subscribers get at once."""

from __future__ import annotations

import base64
import sys
from typing import Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.output import LIMIT_DEFAULT, JsonOption, LimitOption, print_change, print_json, print_listing
from flockmq.server.escape import printable

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic name.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Retained messages.")
    group.command("list")(list_retained)
    group.command("show")(show_retained)
    group.command("delete")(delete_retained)
    app.add_typer(group, name="retained")


def list_retained(
    *,
    topic_filter: Annotated[str | None, typer.Option("--filter", help="Only topics that this filter matches.")] = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List retained messages, without their payloads."""
    columns = {"TOPIC": "topic", "QOS": "qos", "BYTES": "payload_bytes", "EXPIRES": "expires_at"}
    found = admin_client(server).retained(topic_filter=topic_filter)
    print_listing(found, columns, as_json=as_json, limit=limit, nothing="There are no retained messages.")


def show_retained(topic: TopicArgument, *, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Print the payload of a retained message: as it is, or escaped on a terminal."""
    found = admin_client(server).retained_message(topic)
    if as_json:
        print_json(found)
    elif sys.stdout.isatty():
        print(printable(base64.b64decode(found.payload_base64).decode("utf-8", "backslashreplace")))
    else:
        sys.stdout.buffer.write(base64.b64decode(found.payload_base64))
        sys.stdout.buffer.flush()


def delete_retained(
    topic: TopicArgument, *, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False
) -> None:
    """Forget the retained message of a topic."""
    admin_client(server).delete_retained(topic)
    print_change(f"{topic!r} has no retained message any more.", as_json=as_json, deleted=topic)
