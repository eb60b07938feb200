"""``flockmq cursor``: named positions of readers over durable topics."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import (
    NAMESPACE_DEFAULT,
    WHERE_HELP,
    AnyNamespaceOption,
    NamespaceOption,
    YesOption,
    check_namespace,
    confirm,
    in_namespace,
    parse_where,
)
from flockmq.cli.output import (
    LIMIT_DEFAULT,
    UNKNOWN,
    JsonOption,
    LimitOption,
    print_change,
    print_fields,
    print_json,
    print_table,
)
from flockmq.cli.usage import UsageError
from flockmq.errors import ApiError, NotFound
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.durable_tenants_model import ReadCursor
    from flockmq.client.admin import AdminClient

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The cursor's name.")]


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
    hold: Annotated[
        bool | None,
        typer.Option(
            "--hold/--no-hold", help="Let retention wait for it, within the topic's bound.", show_default="no"
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="WHERE", help=WHERE_HELP, show_default="earliest")
    ] = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a cursor over a durable topic. One that is there stays as it is, but for what --hold or --no-hold says."""
    from flockmq.admin.durable_tenants_model import CursorRequest

    if start is not None:
        parse_where(start, "--from")
    client = admin_client(server)
    is_known = start is not None and _exists(client, name, namespace)
    request = CursorRequest(name=name, topic=topic, namespace=namespace, hold=hold, start=start or "earliest")
    with _refusals_of_words():
        made = client.create_cursor(request)
    _print(made, as_json=as_json)
    if is_known:
        print(
            f"Cursor {name!r} was there already and stays where it stands; to move it, use "
            f"`flockmq cursor reset {name} {start}{in_namespace(namespace)}`.",
            file=sys.stderr,
        )


@contextmanager
def _refusals_of_words() -> Iterator[None]:
    """What only the broker could see: these words fit no topic with that many shards."""

    try:
        yield
    except ApiError as error:
        if error.code != "invalid_body":
            raise
        raise UsageError(str(error)) from None


def _exists(client: AdminClient, name: str, namespace: str) -> bool:

    try:
        client.cursor(name, namespace=namespace)
    except NotFound:
        return False
    return True


def list_cursors(
    *,
    namespace: AnyNamespaceOption = None,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List cursors and how far they are behind."""
    client = admin_client(server)
    found = list(itertools.islice(client.cursors(namespace=namespace), limit or None))
    if not found:
        check_namespace(client, namespace)
    if as_json:
        print_json(found)
    elif found:
        rows = [
            [one.namespace, one.name, one.topic, _figure(one.lag), _figure(one.lost), one.hold, one.created_at]
            for one in found
        ]
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
    where: Annotated[str, typer.Argument(metavar="WHERE", help=WHERE_HELP)],
    *,
    shard: Annotated[int | None, typer.Option("--shard", min=0, help="Only in this shard.")] = None,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Put a cursor somewhere else, forwards or backwards; shards that offset:SHARD=N,... does not name stay."""
    parse_where(where, "WHERE", shard)
    with _refusals_of_words():
        moved = admin_client(server).reset_cursor(name, where, shard=shard, namespace=namespace)
    _print(moved, as_json=as_json)


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
    print_change(f"Cursor {name!r} was deleted.", as_json=as_json, deleted=name, namespace=namespace)


def _print(cursor: ReadCursor, *, as_json: bool) -> None:
    if as_json:
        print_json(cursor)
        return
    lost = f"{counted(cursor.lost, 'record')}, removed before it read them" if cursor.lost else _figure(cursor.lost)
    print_fields(
        [
            ("cursor", cursor.name),
            ("namespace", cursor.namespace),
            ("topic", cursor.topic),
            ("holds retention", cursor.hold),
            ("lag", _figure(cursor.lag)),
            ("lost", lost),
            ("created", cursor.created_at),
            *([("problem", cursor.problem)] if cursor.problem else []),
        ]
    )
    print()
    rows = [
        [one.shard, one.offset if one.known else UNKNOWN, *map(_figure, (one.end_offset, one.lag, one.lost))]
        for one in cursor.positions
    ]
    print_table(["SHARD", "OFFSET", "END", "LAG", "LOST"], rows)


def _figure(value: int | None) -> int | str:
    return UNKNOWN if value is None else value
