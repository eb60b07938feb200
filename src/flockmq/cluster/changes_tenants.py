"""Commands about namespaces, their clients and their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from flockmq.cluster.checks import (
    CLIENTS_MAX,
    NAMESPACES_MAX,
    RULE_ENTRIES_MAX,
    RULES_BYTES_MAX,
    RULES_ENTRIES_MAX,
    RULES_MAX,
    check_filter,
    check_filters,
    check_name,
    check_number,
    check_secret,
    check_text,
)
from flockmq.cluster.commands import CONFLICT, EXISTS, INVALID, LIMIT, NOT_FOUND, RefusedError
from flockmq.cluster.model import DEFAULT_NAMESPACE, AclRecord, AclRule, ClientRecord, Limits, Namespace
from flockmq.cluster.tables import key_of

if TYPE_CHECKING:
    from flockmq.cluster.commands import (
        AlterNamespace,
        CreateNamespace,
        DeleteAcl,
        DeleteClient,
        DeleteNamespace,
        PutAcl,
        PutClient,
    )
    from flockmq.cluster.tables import Tables

_ACTIONS = ("publish", "subscribe", "capture", "all")


def create_namespace(tables: Tables, command: CreateNamespace, wall_ms: int) -> Namespace:
    """A new tenant."""
    check_name("namespace", command.name)
    if command.name in tables.namespaces:
        raise RefusedError(EXISTS, f"The namespace {command.name} exists; choose another name, or alter it.")
    if len(tables.namespaces) >= NAMESPACES_MAX:
        raise RefusedError(LIMIT, f"There are {NAMESPACES_MAX} namespaces, which is the most; delete one first.")
    _check_limits(command.limits)
    return _keep_namespace(tables, Namespace(command.name, command.limits, wall_ms))


def alter_namespace(tables: Tables, command: AlterNamespace) -> Namespace:
    """Other limits. What is already there stays, also when it is more than the new limit."""
    known = tables.namespace(command.name)
    said = {name: value for name, value in asdict(command).items() if value is not None and name != "name"}
    limits = replace(known.limits, **said)
    _check_limits(limits)
    return _keep_namespace(tables, replace(known, limits=limits))


def delete_namespace(tables: Tables, command: DeleteNamespace) -> Namespace:
    """A tenant that has nothing any more."""
    known = tables.namespace(command.name)
    if command.name == DEFAULT_NAMESPACE:
        raise RefusedError(CONFLICT, "The namespace default can't be deleted; clients without a namespace are there.")
    for topic in tables.topics.values():
        if topic.namespace == command.name:
            raise RefusedError(
                CONFLICT, f"The namespace {command.name} has topics, such as {topic.name}; delete them first."
            )
    for client in tables.clients.values():
        if client.namespace == command.name:
            raise RefusedError(
                CONFLICT, f"The namespace {command.name} has clients, such as {client.name}; delete them first."
            )
    del tables.namespaces[command.name]
    if tables.acls.pop(command.name, None) is not None:
        tables.versions = replace(tables.versions, clients=tables.index)
    tables.versions = replace(tables.versions, namespaces=tables.index)
    return known


def put_client(tables: Tables, command: PutClient, wall_ms: int) -> ClientRecord:
    """A new client, or another secret or other rights for one."""
    check_name("client", command.name)
    namespace = tables.namespace(command.namespace)
    key = key_of(command.namespace, command.name)
    known = tables.clients.get(key)
    if known is not None and command.only_new:
        raise RefusedError(EXISTS, f"The client {command.name} exists; choose another name, or alter it.")
    if known is None:
        _check_room(tables, namespace)
        known = ClientRecord(command.namespace, command.name, created_ms=wall_ms)
    record = ClientRecord(
        command.namespace,
        command.name,
        known.secret if command.secret is None else command.secret,
        known.publish if command.publish is None else command.publish,
        known.subscribe if command.subscribe is None else command.subscribe,
        known.publish_deny if command.publish_deny is None else command.publish_deny,
        known.subscribe_deny if command.subscribe_deny is None else command.subscribe_deny,
        known.superuser if command.superuser is None else command.superuser,
        known.created_ms,
        tables.index,
    )
    check_secret(record.secret)
    for filters in (record.publish, record.subscribe, record.publish_deny, record.subscribe_deny):
        check_filters("client", filters)
    tables.clients[key] = record
    tables.versions = replace(tables.versions, clients=tables.index)
    return record


def delete_client(tables: Tables, command: DeleteClient) -> ClientRecord:
    """The client can't log in any more."""
    known = tables.client(command.namespace, command.name)
    del tables.clients[key_of(command.namespace, command.name)]
    tables.versions = replace(tables.versions, clients=tables.index)
    return known


def put_acl(tables: Tables, command: PutAcl) -> AclRecord:
    """All rules of a namespace at once."""
    tables.namespace(command.namespace)
    if len(command.rules) > RULES_MAX:
        raise RefusedError(LIMIT, f"A namespace can have at most {RULES_MAX} rules, not {len(command.rules)}.")
    size = entries = 0
    for number, rule in enumerate(command.rules, 1):
        try:
            size += _check_rule(rule)
        except RefusedError as error:
            raise RefusedError(error.code, f"Rule {number}: {error}") from None
        entries += len(rule.who) + len(rule.topics)
        if size > RULES_BYTES_MAX or entries > RULES_ENTRIES_MAX:
            raise RefusedError(
                LIMIT,
                f"All rules of a namespace together may name {RULES_ENTRIES_MAX:,} users and topics in "
                f"{RULES_BYTES_MAX:,} bytes, and rule {number} goes beyond; use wildcards, %u or %c for many of them.",
            )
    record = AclRecord(command.namespace, command.default_allow, command.rules, tables.index)
    tables.acls[command.namespace] = record
    tables.versions = replace(tables.versions, clients=tables.index)
    return record


def delete_acl(tables: Tables, command: DeleteAcl) -> AclRecord:
    """No rules for a namespace."""
    known = tables.acls.pop(command.namespace, None)
    if known is None:
        raise RefusedError(
            NOT_FOUND, f"The namespace {command.namespace[:128]!r} has no rules; there is nothing to delete."
        )
    tables.versions = replace(tables.versions, clients=tables.index)
    return known


def _keep_namespace(tables: Tables, namespace: Namespace) -> Namespace:
    tables.namespaces[namespace.name] = namespace
    tables.versions = replace(tables.versions, namespaces=tables.index)
    return namespace


def _check_limits(limits: Limits) -> None:
    for name, value in asdict(limits).items():
        check_number(f"limit {name}", value, 0)


def _check_room(tables: Tables, namespace: Namespace) -> None:
    if len(tables.clients) >= CLIENTS_MAX:
        raise RefusedError(LIMIT, f"There are {CLIENTS_MAX} clients, which is the most; delete some first.")
    most = namespace.limits.clients_max
    if not most:
        return
    count = sum(1 for client in tables.clients.values() if client.namespace == namespace.name)
    if count >= most:
        raise RefusedError(
            LIMIT,
            f"The namespace {namespace.name} has as many clients as it may, {count} of {most}; delete one or raise the "
            "limit.",
        )


def _check_rule(rule: AclRule) -> int:
    """Refuse what can't be a rule; how many bytes it names."""
    if rule.action not in _ACTIONS:
        raise RefusedError(INVALID, f"its action must be one of {', '.join(_ACTIONS)}.")
    if not (1 <= len(rule.who) <= RULE_ENTRIES_MAX and 1 <= len(rule.topics) <= RULE_ENTRIES_MAX):
        raise RefusedError(INVALID, f"it needs from 1 to {RULE_ENTRIES_MAX:,} entries in `who` and in `topics`.")
    for who in rule.who:
        check_text("`who` of a rule", who)
    for topic_filter in rule.topics:
        check_filter(topic_filter)
    return sum(len(text.encode()) for text in (*rule.who, *rule.topics))
