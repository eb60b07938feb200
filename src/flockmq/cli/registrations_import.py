"""``flockmq client import``: the users of a password file become clients that are registered in the cluster.

```
 passwords --read, all names checked--> one registration after the other --> registered | was there already: left alone
```
Hashes are taken over as they are. An import that was cut off is done again: what it had registered is left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT, NamespaceOption, in_namespace
from flockmq.cli.output import JsonOption, print_json
from flockmq.errors import Conflict, FlockError, NotFound
from flockmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from flockmq.client.admin import AdminClient

_SHOWN_MAX = 10


def import_clients(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A password file.")],
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Register all users of a password file with the hashes that it has. Clients that exist stay as they are.

    Users that the file writes as NAMESPACE/USER are registered there, all others in --namespace. They may do everything
    in their namespace that its rules allow; see `flockmq acl`.
    """
    from flockmq.admin.durable_tenants_model import ClientRequest
    from flockmq.security.passwords import read_secrets

    admin = admin_client(server)
    secrets = read_secrets(file)
    if not secrets:
        raise FlockError(f"The password file {file} has no users; there is nothing to import.")
    places = _places(file, secrets, namespace, {one.name for one in admin.namespaces()})
    registered: list[str] = []
    existed: list[str] = []
    for name, (space, own) in places.items():
        try:
            admin.register_client(ClientRequest(name=own, password_hash=secrets[name]), namespace=space)
        except Conflict:
            existed.append(name)
        except FlockError as error:
            raise FlockError(_stopped(str(error), name, len(registered))) from None
        else:
            registered.append(name)
    without_rules = _without_rules(admin, sorted({space for space, _ in places.values()}))
    if as_json:
        print_json({"registered": registered, "existed": existed, "without_rules": without_rules})
        return
    print(f"{counted(len(registered), 'client')} registered.")
    if existed:
        print(f"{counted(len(existed), 'client')} existed and stayed as before: {_few(existed)}.")
    for bare in without_rules:
        print(
            f"Namespace {bare!r} has no rules: its clients may publish and subscribe to everything in it. Put rules "
            f"with `flockmq acl set{in_namespace(bare)} FILE`.",
            file=sys.stderr,
        )


def _places(file: Path, names: Iterable[str], namespace: str, known: Container[str]) -> dict[str, tuple[str, str]]:
    """Namespace and name in it of each user; FlockError when one can't be registered."""
    from flockmq.cluster.checks import check_name

    places: dict[str, tuple[str, str]] = {}
    taken: set[tuple[str, str]] = set()
    for name in names:
        space, slash, own = name.partition("/")
        is_named = bool(slash) and space != NAMESPACE_DEFAULT and space in known
        place = (space, own) if is_named else (namespace, name)
        try:
            check_name("client", place[1])
        except FlockError as error:
            why = _missing(space) if slash and _could_be(space, own) else str(error)
            raise FlockError(
                f"The password file {file} has the user {name!r}, and nothing was registered. {why}"
            ) from None
        if place in taken:
            raise FlockError(f"The password file {file} has two users that would be {place[1]!r} in {place[0]!r}.")
        taken.add(place)
        places[name] = place
    return places


def _could_be(space: str, own: str) -> bool:
    """Whether that may be a user of a namespace that is yet to be created."""
    from flockmq.cluster.checks import check_name

    try:
        check_name("namespace", space)
        check_name("client", own)
    except FlockError:
        return False
    return space != NAMESPACE_DEFAULT


def _missing(space: str) -> str:
    return f"There is no namespace {space!r}; create it first, with `flockmq namespace create {space}`."


def _stopped(why: str, name: str, count: int) -> str:
    return (
        f"{why.rstrip('.')}. That was for {name!r}, and {counted(count, 'client')} registered before; put it right and "
        "import again, they are left alone."
    )


def _without_rules(admin: AdminClient, namespaces: list[str]) -> list[str]:
    """Namespaces that the cluster has no rules for. One that can't be asked about is left out."""

    found: list[str] = []
    for namespace in namespaces:
        try:
            admin.acl(namespace)
        except NotFound:
            found.append(namespace)
        except FlockError:
            continue
    return found


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_MAX:,} more" if len(names) > _SHOWN_MAX else ""
    return ", ".join(repr(name) for name in names[:_SHOWN_MAX]) + more
