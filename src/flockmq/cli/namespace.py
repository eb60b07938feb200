"""``flockmq namespace``, also called ``flockmq vpn``: tenants, each with topics, clients and sessions of its own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import YesOption, confirm
from flockmq.cli.output import (
    LIMIT_DEFAULT,
    JsonOption,
    LimitOption,
    print_change,
    print_fields,
    print_json,
    print_table,
)
from flockmq.cli.usage import UsageError

if TYPE_CHECKING:
    from flockmq.admin.durable_tenants_model import NamespaceInfo

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The namespace's name.")]
LimitsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="NAME=NUMBER",
        help="A limit, can be repeated: topics, clients, connections, sessions, retained, messages_per_second, "
        "stored_bytes, persistent_sessions, sessions_per_user, captured_bytes_per_second; `none` for NUMBER takes it "
        "away.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group under both of its names."""
    for name, text in (
        ("namespace", "Namespaces: tenants with topics, clients and sessions of their own."),
        ("vpn", "Another name for `flockmq namespace`."),
    ):
        group = typer.Typer(help=text)
        group.command("create")(create)
        group.command("list")(list_namespaces)
        group.command("show")(show)
        group.command("alter")(alter)
        group.command("delete")(delete)
        app.add_typer(group, name=name)


def create(
    name: NameArgument,
    *,
    limits: LimitsOption = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a namespace. Its clients log in as NAME/USER, or through a listener that is set to it."""
    _print(admin_client(server).create_namespace(name, parse_limits(limits)), as_json=as_json)


def list_namespaces(
    *, limit: LimitOption = LIMIT_DEFAULT, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False
) -> None:
    """List namespaces."""
    found = list(itertools.islice(admin_client(server).namespaces(), limit or None))
    if as_json:
        print_json(found)
    else:
        rows = [[one.name, one.topics, one.clients, _limits_text(one)] for one in found]
        print_table(["NAMESPACE", "TOPICS", "CLIENTS", "LIMITS"], rows)


def show(name: NameArgument, *, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Show one namespace."""
    _print(admin_client(server).namespace(name), as_json=as_json)


def alter(
    name: NameArgument,
    *,
    limits: LimitsOption = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change limits of a namespace; those not named stay."""
    wanted = parse_limits(limits)
    if not wanted:
        raise UsageError("Nothing to change was given; see `flockmq namespace alter --help`.")
    _print(admin_client(server).alter_namespace(name, wanted), as_json=as_json)


def delete(
    name: NameArgument, *, yes: YesOption = False, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False
) -> None:
    """Delete a namespace that has no topics and clients any more."""
    confirm(f"Delete namespace {name!r}?", yes=yes)
    admin_client(server).delete_namespace(name)
    print_change(f"Namespace {name!r} was deleted.", as_json=as_json, deleted=name)


def parse_limits(texts: list[str] | None) -> dict[str, int | None]:
    """``["topics=5", "clients=none"]`` as the API takes it."""
    from flockmq.cluster.model import Limits
    from flockmq.config.units import BYTES, COUNT, parse_number

    found: dict[str, int | None] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--max can't be {text!r}: give NAME=NUMBER, like topics=100.")
        field = name if name.endswith("_max") else f"{name}_max"
        if field not in Limits.__struct_fields__:
            names = ", ".join(one.removesuffix("_max") for one in Limits.__struct_fields__)
            raise UsageError(f"--max can't be {text!r}: there is no limit {name!r}; use one of {names}.")
        if field in found:
            raise UsageError(f"--max names the limit {name!r} twice; give it once.")
        try:
            is_none = value.lower() == "none"
            found[field] = None if is_none else parse_number(value, BYTES if "bytes" in field else COUNT)
        except ValueError as error:
            raise UsageError(f"--max can't be {text!r}: {error}.") from None
    return found


def _limits_text(one: NamespaceInfo) -> str | None:
    return ", ".join(f"{name.removesuffix('_max')} {value:,}" for name, value in one.limits.items()) or None


def _print(one: NamespaceInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    fields: list[tuple[str, object]] = [("namespace", one.name), ("topics", one.topics), ("clients", one.clients)]
    if one.stored_bytes is not None:
        fields.append(("stored bytes", one.stored_bytes))
    fields += [(f"most {name.removesuffix('_max').replace('_', ' ')}", value) for name, value in one.limits.items()]
    print_fields(fields)
