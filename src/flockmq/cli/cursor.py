"""``flockmq cursor``: named positions of readers over durable topics."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT, AnyNamespaceOption, NamespaceOption, YesOption, confirm
from flockmq.cli.output import LIMIT_DEFAULT, JsonOption, LimitOption, counted, print_fields, print_json, print_table

if TYPE_CHECKING:
    from flockmq.admin.durable_tenants_model import ReadCursor

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The cursor's name.")]
_WHERE_HELP = "earliest, latest, offset:N, or time:2026-03-01T12:00:00Z."


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Cursors: named, replicated positions of readers, with their lag.")
    group.command("create")(create)
    group.command("list")(list_cursors)
    group.command("show")(show)
    group.command("reset")(reset)
    group.command("delete")(delete)
    app.add_typer(group, name="cursor")


def create(
    name: NameArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The durable topic that it reads.")],
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    hold: Annotated[bool, typer.Option("--hold", help="Let retention wait for it, within the topic's bound.")] = False,
    start: Annotated[str, typer.Option("--from", metavar="WHERE", help=_WHERE_HELP)] = "earliest",
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a cursor over a durable topic."""
    from flockmq.admin.durable_tenants_model import CursorRequest

    request = CursorRequest(name=name, topic=topic, namespace=namespace, hold=hold, start=start)
    _print(admin_client(server).create_cursor(request), as_json=as_json)


def list_cursors(
    *,
    namespace: AnyNamespaceOption = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List cursors and how far they are behind."""
    found = list(itertools.islice(admin_client(server).cursors(namespace=namespace), limit or None))
    if as_json:
        print_json(found)
    elif found:
        rows = [[one.namespace, one.name, one.topic, one.lag, one.lost, one.hold, one.created_at] for one in found]
        print_table(["NAMESPACE", "CURSOR", "TOPIC", "LAG", "LOST", "HOLD", "CREATED"], rows)
    else:
        print("There are no cursors.")


def show(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show where a cursor stands in each shard."""
    _print(admin_client(server).cursor(name, namespace=namespace), as_json=as_json)


def reset(
    name: NameArgument,
    where: Annotated[str, typer.Argument(metavar="WHERE", help=_WHERE_HELP)],
    *,
    shard: Annotated[int | None, typer.Option("--shard", min=0, help="Only in this shard.")] = None,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Put a cursor somewhere else, forwards or backwards."""
    _print(admin_client(server).reset_cursor(name, where, shard=shard, namespace=namespace), as_json=as_json)


def delete(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Forget a cursor; its reader starts anew, and retention waits for it no longer."""
    confirm(f"Forget where cursor {name!r} of namespace {namespace!r} stands?", yes=yes)
    admin_client(server).delete_cursor(name, namespace=namespace)
    if as_json:
        print_json({"deleted": name, "namespace": namespace})
    else:
        print(f"Cursor {name!r} was deleted.")


def _print(cursor: ReadCursor, *, as_json: bool) -> None:
    if as_json:
        print_json(cursor)
        return
    print_fields(
        [
            ("cursor", cursor.name),
            ("namespace", cursor.namespace),
            ("topic", cursor.topic),
            ("holds retention", cursor.hold),
            ("lag", cursor.lag),
            ("lost", f"{counted(cursor.lost, 'record')}, removed before it read them" if cursor.lost else 0),
            ("created", cursor.created_at),
        ]
    )
    print()
    rows = [[one.shard, one.offset, one.end_offset, one.lag, one.lost] for one in cursor.positions]
    print_table(["SHARD", "OFFSET", "END", "LAG", "LOST"], rows)
