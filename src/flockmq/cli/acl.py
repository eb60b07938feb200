"""``flockmq acl``: the rules of a namespace that the cluster holds, in the text form of ACL files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT, NamespaceOption, YesOption, confirm
from flockmq.cli.output import JsonOption, print_change, print_json, print_made
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.durable_tenants_model import AccessRequest


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Rules about which clients may publish and subscribe to what, the same on all nodes.")
    group.command("show")(show)
    group.command("set")(set_rules)
    group.command("delete")(delete)
    app.add_typer(group, name="acl")


def show(
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print the rules of a namespace as an ACL file has them; `flockmq acl set` takes that back."""
    from flockmq.cluster.model import AclRule
    from flockmq.security.acl_file import format_rules

    found = admin_client(server).acl(namespace)
    if as_json:
        print_json(found)
        return
    rules = [AclRule(one.allow, tuple(one.who), one.action, tuple(one.topics)) for one in found.rules]
    print(format_rules(found.default == "allow", rules), end="")


def set_rules(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An ACL file.")],
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Put the rules of a file in place of all that a namespace has. All connections feel it within a second."""
    made = admin_client(server).put_acl(read_request(file), namespace=namespace)
    rules, default = counted(len(made.rules), "rule"), "allowed" if made.default == "allow" else "denied"
    said = f"Namespace {namespace!r} has {rules}; what none of them decides is {default}."
    print_made(made, said, as_json=as_json)


def delete(
    *,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Take the rules of a namespace away, on all nodes. An ACL file that a node has holds there then, or nothing."""
    confirm(f"Delete all rules of namespace {namespace!r}?", yes=yes)
    admin_client(server).delete_acl(namespace)
    print_change(f"Namespace {namespace!r} has no rules any more.", as_json=as_json, deleted="acl", namespace=namespace)


def read_request(file: Path) -> AccessRequest:
    """An ACL file as the API takes it; ConfigError names the rule and the line of a mistake."""
    import msgspec

    from flockmq.admin.durable_tenants_model import AccessRequest
    from flockmq.errors import ConfigError
    from flockmq.security.acl_file import read_rules

    text = read_rules(file)
    plain = {
        "default": "allow" if text.default_allow else "deny",
        "rules": [msgspec.structs.asdict(rule) for rule in text.rules],
    }
    try:
        return msgspec.convert(plain, AccessRequest)
    except msgspec.ValidationError as error:
        # A file may hold more than the cluster takes.
        raise ConfigError(f"The rules of {file} are too many or too long for the cluster: {error}.") from None
