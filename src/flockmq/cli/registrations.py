"""The part of ``flockmq client`` that is about registered clients: their names and rights."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT, NamespaceOption, YesOption, confirm
from flockmq.cli.output import JsonOption, print_change, print_fields, print_json, print_made, print_table
from flockmq.cli.registrations_import import import_clients
from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError
from flockmq.mqtt.namespaces import qualified

if TYPE_CHECKING:
    from flockmq.admin.durable_tenants_model import RegisteredClient

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The client's user name in its namespace.")]
PublishOption = Annotated[
    list[str] | None, typer.Option("--publish", metavar="F", help="A filter that it may publish to; can be repeated.")
]
SubscribeOption = Annotated[
    list[str] | None,
    typer.Option("--subscribe", metavar="F", help="A filter that it may subscribe to; can be repeated."),
]
PublishDenyOption = Annotated[
    list[str] | None, typer.Option("--publish-deny", metavar="F", help="An exception to what it may publish to.")
]
SubscribeDenyOption = Annotated[
    list[str] | None, typer.Option("--subscribe-deny", metavar="F", help="An exception to what it may subscribe to.")
]


def register(group: typer.Typer) -> None:
    """Add the commands to ``flockmq client``."""
    group.command("create")(create)
    group.command("alter")(alter)
    group.command("delete")(delete)
    group.command("import")(import_clients)


def create(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    publish: PublishOption = None,
    subscribe: SubscribeOption = None,
    publish_deny: PublishDenyOption = None,
    subscribe_deny: SubscribeDenyOption = None,
    superuser: Annotated[bool, typer.Option("--superuser", help="May do everything in its namespace.")] = False,
    no_password: Annotated[bool, typer.Option("--no-password", help="It can't log in with a password.")] = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Register a client on all nodes. Its password is asked for, or read from standard input, never an argument.

    Without --publish or --subscribe it may publish or subscribe to everything in its namespace.
    """
    from flockmq.admin.durable_tenants_model import ClientRequest

    request = ClientRequest(
        name=name,
        password=None if no_password else read_password(name),
        publish=publish,
        subscribe=subscribe,
        publish_deny=publish_deny or [],
        subscribe_deny=subscribe_deny or [],
        superuser=superuser,
    )
    made = admin_client(server).register_client(request, namespace=namespace)
    print_made(made, f"Client {_login(made)!r} is registered.", as_json=as_json)


def alter(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    publish: PublishOption = None,
    subscribe: SubscribeOption = None,
    publish_deny: PublishDenyOption = None,
    subscribe_deny: SubscribeDenyOption = None,
    superuser: Annotated[
        bool | None, typer.Option("--superuser/--no-superuser", help="Whether it may do everything in its namespace.")
    ] = None,
    password: Annotated[bool, typer.Option("--password", help="Give it a new password, as with create.")] = False,
    no_password: Annotated[bool, typer.Option("--no-password", help="Take its password away.")] = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change a registered client; what is not given stays. Connections feel it within a second."""
    from flockmq.admin.durable_tenants_model import ClientChange

    given: dict[str, Any] = {
        "publish": publish,
        "subscribe": subscribe,
        "publish_deny": publish_deny,
        "subscribe_deny": subscribe_deny,
        "superuser": superuser,
    }
    given = {field: value for field, value in given.items() if value is not None}
    if password and no_password:
        raise UsageError("--password and --no-password contradict each other; give one of them.")
    if password:
        given["password"] = read_password(name)
    elif no_password:
        given["password"] = None
    if not given:
        raise UsageError("Nothing to change was given; see `flockmq client alter --help`.")
    made = admin_client(server).alter_client(name, ClientChange(**given), namespace=namespace)
    print_made(made, f"Client {_login(made)!r} was changed.", as_json=as_json)


def delete(
    name: NameArgument,
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Take a client's registration away, on all nodes."""
    confirm(f"Delete client {qualified(namespace, name)!r}?", yes=yes)
    admin_client(server).delete_client(name, namespace=namespace)
    print_change(
        f"Client {qualified(namespace, name)!r} was deleted.", as_json=as_json, deleted=name, namespace=namespace
    )


def list_registered(server: str, namespace: str | None, username: str | None, limit: int, *, as_json: bool) -> None:
    """``flockmq client list --registered``: of one namespace, or of all; of one name, in its namespace or to log in."""
    client = admin_client(server)
    names = [one.name for one in client.namespaces()] if namespace is None else [namespace]
    every = itertools.chain.from_iterable(client.registered_clients(name) for name in names)
    wanted = (one for one in every if username in (None, one.name, _login(one)))
    found = list(itertools.islice(wanted, limit or None))
    if as_json:
        print_json(found)
    elif found:
        columns = ["CLIENT", "PASSWORD", "SUPERUSER", "PUBLISH", "SUBSCRIBE", "NOT PUBLISH", "NOT SUBSCRIBE"]
        print_table(columns, [_row(one) for one in found])
    else:
        name = f" as {username!r}" if username is not None else ""
        print(f"No client is registered{name}" + (f" in namespace {namespace!r}." if namespace is not None else "."))


def show_registered(server: str, namespace: str, name: str, *, as_json: bool) -> None:
    """``flockmq client show --registered``."""
    found = admin_client(server).registered_client(name, namespace=namespace)
    if as_json:
        print_json(found)
        return
    print_fields(
        [
            ("client", found.name),
            ("namespace", found.namespace),
            ("logs in as", _login(found)),
            ("has a password", found.has_password),
            ("superuser", found.superuser),
            ("may publish to", " ".join(found.publish) or None),
            ("but not to", " ".join(found.publish_deny) or None),
            ("may subscribe to", " ".join(found.subscribe) or None),
            ("but not to", " ".join(found.subscribe_deny) or None),
        ]
    )


def read_password(name: str) -> str:
    """Ask for a password, or read it from standard input."""
    if sys.stdin.isatty():
        import getpass

        password = getpass.getpass(f"Password for {name}: ")
        if password and getpass.getpass("Once more: ") != password:
            raise FlockError("The two passwords differ; nothing was changed.")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise FlockError(f"No password for {name!r} was given; write it to standard input, or say --no-password.")
    return password


def _login(client: RegisteredClient) -> str:
    return qualified(client.namespace, client.name)


def _row(client: RegisteredClient) -> list[object]:
    return [
        _login(client),
        client.has_password,
        client.superuser,
        " ".join(client.publish) or None,
        " ".join(client.subscribe) or None,
        " ".join(client.publish_deny) or None,
        " ".join(client.subscribe_deny) or None,
    ]
