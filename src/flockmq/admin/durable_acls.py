"""The operations on the rules of a namespace: which clients may publish and subscribe to what.

Rules are read here as every node will read them: one that nodes could not understand would deny everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import convert
from msgspec.structs import asdict

from flockmq.admin import durable_tenants_model as model
from flockmq.admin.durable_common import change, durable
from flockmq.cluster.commands import DeleteAcl, PutAcl, RefusedError
from flockmq.cluster.model import DEFAULT_NAMESPACE, AclRecord, AclRule
from flockmq.errors import NOT_FOUND, REFUSED, ApiError
from flockmq.security.acl import RuleError, parse_rules

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from flockmq.admin.desk import Desk
    from flockmq.admin.operations import Call, NoQuery


def get_acl(desk: Desk, call: Call[NoQuery, None]) -> model.AccessRules:
    """The rules of a namespace."""
    return _view(_record(desk, call.path["namespace"]))


async def put_acl(desk: Desk, call: Call[NoQuery, model.AccessRequest]) -> model.AccessRules:
    """Other rules for a namespace, all at once."""
    namespace = call.path["namespace"]
    _check(namespace, call.body.rules, durable(desk).state().namespaces)
    rules = tuple(AclRule(one.allow, tuple(one.who), one.action, tuple(one.topics)) for one in call.body.rules)
    await change(desk, PutAcl(namespace, call.body.default == "allow", rules))
    return _view(_record(desk, namespace))


async def delete_acl(desk: Desk, call: Call[NoQuery, None]) -> None:
    """No rules for a namespace."""
    await change(desk, DeleteAcl(call.path["namespace"]))


def _check(namespace: str, rules: Sequence[model.AccessRule], known: Container[str]) -> None:
    """Refuse what nodes could not read, and users by names that none has here."""
    try:
        parse_rules(asdict(rule) for rule in rules)
    except RuleError as error:
        raise ApiError(REFUSED, f"Rule {error.index + 1}: {str(error).rstrip('.')}") from None
    for number, rule in enumerate(rules, 1):
        for who in rule.who:
            hint = _elsewhere(namespace, who, known)
            if hint:
                raise ApiError(
                    REFUSED,
                    f"Rule {number}: who is {who!r}, but the rules of a namespace know users by their name in it; "
                    f"{hint}",
                )


def _elsewhere(namespace: str, who: str, known: Container[str]) -> str:
    """What to do about a user that is written as NAMESPACE/USER; empty: that is the name of one of this namespace.

    An ACL file has such names. Here they would fit no client, and a denying rule would deny nothing.
    """
    space, slash, own = who.removeprefix("user:").partition("/")
    if not who.startswith("user:") or not slash or space not in known:
        return ""
    if space != namespace:
        option = "" if space == DEFAULT_NAMESPACE else f" -n {space}"
        return f"put it as {f'user:{own}'!r} into the rules of {space!r}, with `flockmq acl set{option} FILE`"
    return "" if namespace == DEFAULT_NAMESPACE else f"write {f'user:{own}'!r}"


def _record(desk: Desk, namespace: str) -> AclRecord:
    state = durable(desk).state()
    try:
        state.namespace(namespace)
    except RefusedError as error:
        raise ApiError(NOT_FOUND, str(error)) from None
    found = state.acls.get(namespace)
    if found is None:
        option = "" if namespace == DEFAULT_NAMESPACE else f" -n {namespace}"
        raise ApiError(
            NOT_FOUND, f"The namespace {namespace} has no rules; put some with `flockmq acl set{option} FILE`"
        )
    return found


def _view(record: AclRecord) -> model.AccessRules:
    return model.AccessRules(
        namespace=record.namespace,
        default="allow" if record.default_allow else "deny",
        rules=[convert(asdict(rule), model.AccessRule) for rule in record.rules],
        changed_index=record.changed_index,
    )
