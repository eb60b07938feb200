"""The operations on namespaces and the clients registered in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from flockmq.admin import durable_tenants_model as model
from flockmq.admin.durable_common import change, durable
from flockmq.admin.durable_views import client_view, namespace_view
from flockmq.admin.handlers import page
from flockmq.cluster.commands import (
    AlterNamespace,
    CreateNamespace,
    DeleteClient,
    DeleteNamespace,
    PutClient,
    RefusedError,
)
from flockmq.cluster.model import Limits
from flockmq.errors import INVALID_BODY, NOT_FOUND, REFUSED, ApiError, ConfigError

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk
    from flockmq.admin.model import Page, PageQuery
    from flockmq.admin.operations import Call, NoQuery
    from flockmq.admin.paging import Entries
    from flockmq.cluster.model import ClientRecord
    from flockmq.cluster.state import ClusterState

HASHES_AT_ONCE: Final = 2
"""Each takes 64 MiB and a tenth of a second."""
_hashing = asyncio.Semaphore(HASHES_AT_ONCE)


def list_namespaces(desk: Desk, call: Call[PageQuery, None]) -> Page[model.NamespaceInfo]:
    """A page of namespaces."""
    state = durable(desk).state()
    topics = _counts([one.namespace for one in state.user_topics()])
    clients = _counts([one.namespace for one in state.clients.values()])
    spaces = desk.broker.node.spaces

    def walk() -> Entries[model.NamespaceInfo]:
        for one in list(state.namespaces.values()):
            yield namespace_view(one, topics.get(one.name, 0), clients.get(one.name, 0), spaces.find(one.name))

    return page(desk, "namespaces", call, walk)


async def create_namespace(desk: Desk, call: Call[NoQuery, model.NamespaceRequest]) -> model.NamespaceInfo:
    """A new tenant."""
    await change(desk, CreateNamespace(call.body.name, Limits(**_limits(call.body.limits))))
    return _namespace(desk, call.body.name)


def get_namespace(desk: Desk, call: Call[NoQuery, None]) -> model.NamespaceInfo:
    """One namespace."""
    return _namespace(desk, call.path["namespace"])


async def alter_namespace(desk: Desk, call: Call[NoQuery, model.NamespaceChange]) -> model.NamespaceInfo:
    """Change limits."""
    name = call.path["namespace"]
    await change(desk, AlterNamespace(name, **_limits(call.body.limits)))
    return _namespace(desk, name)


async def delete_namespace(desk: Desk, call: Call[NoQuery, None]) -> None:
    """Delete a namespace that is empty."""
    await change(desk, DeleteNamespace(call.path["namespace"]))


def list_registered_clients(desk: Desk, call: Call[PageQuery, None]) -> Page[model.RegisteredClient]:
    """A page of registered clients."""
    state = durable(desk).state()
    name = call.path["namespace"]
    _check_namespace(state, name)

    def walk() -> Entries[model.RegisteredClient]:
        for one in list(state.clients.values()):
            yield client_view(one) if one.namespace == name else None

    return page(desk, ("clients", name), call, walk)


async def register_client(desk: Desk, call: Call[NoQuery, model.ClientRequest]) -> model.RegisteredClient:
    """Register a client."""
    asked = call.body
    namespace = call.path["namespace"]
    await change(
        desk,
        PutClient(
            namespace,
            asked.name,
            secret=await _secret(asked),
            publish=None if asked.publish is None else tuple(asked.publish),
            subscribe=None if asked.subscribe is None else tuple(asked.subscribe),
            publish_deny=tuple(asked.publish_deny),
            subscribe_deny=tuple(asked.subscribe_deny),
            superuser=asked.superuser,
            only_new=True,
        ),
    )
    return client_view(_client(durable(desk).state(), namespace, asked.name))


def get_registered_client(desk: Desk, call: Call[NoQuery, None]) -> model.RegisteredClient:
    """One registered client."""
    return client_view(_client(durable(desk).state(), call.path["namespace"], call.path["client"]))


async def alter_registered_client(desk: Desk, call: Call[NoQuery, model.ClientChange]) -> model.RegisteredClient:
    """Change a registered client."""
    asked = call.body
    namespace, name = call.path["namespace"], call.path["client"]
    _client(durable(desk).state(), namespace, name)
    fields: dict[str, Any] = {}
    for field in ("publish", "subscribe", "publish_deny", "subscribe_deny"):
        if getattr(asked, field) is not UNSET:
            fields[field] = tuple(getattr(asked, field))
    if asked.superuser is not UNSET:
        fields["superuser"] = asked.superuser
    if asked.password is not UNSET:
        fields["secret"] = await _hash(name, asked.password)
    await change(desk, PutClient(namespace, name, **fields))
    return client_view(_client(durable(desk).state(), namespace, name))


async def delete_registered_client(desk: Desk, call: Call[NoQuery, None]) -> None:
    """Take a registration away."""
    await change(desk, DeleteClient(call.path["namespace"], call.path["client"]))


async def _secret(asked: model.ClientRequest) -> str:
    """What is kept of a new client's password, which may come hashed already: then this node never sees it."""
    if asked.password_hash is None:
        return await _hash(asked.name, asked.password)
    if asked.password is not None:
        raise ApiError(INVALID_BODY, "There are a password and the hash of one; give one of them")
    from flockmq.security.passwords import parse_secret  # brings argon2 along

    try:
        parse_secret(asked.name, asked.password_hash)
    except ConfigError as error:
        raise ApiError(REFUSED, str(error).rstrip(".")) from None
    return asked.password_hash


async def _hash(name: str, password: str | None) -> str:
    """What is kept of a password; empty for none. In a thread: it takes long on purpose."""
    if password is None:
        return ""
    if not password:
        raise ApiError(INVALID_BODY, "The password is empty; give one with at least one character, or none at all")
    from flockmq.security.passwords import make_secret  # brings argon2 along

    try:
        async with _hashing:
            return await asyncio.to_thread(make_secret, name, password)
    except ConfigError as error:
        raise ApiError(REFUSED, str(error).rstrip(".")) from None


def _limits(asked: dict[str, int | None]) -> dict[str, int]:
    for name in asked:
        if name not in Limits.__struct_fields__:
            raise ApiError(
                INVALID_BODY,
                f"A namespace has no limit {name[:64]!r}; its limits are {', '.join(Limits.__struct_fields__)}",
            )
    return {name: value or 0 for name, value in asked.items()}


def _namespace(desk: Desk, name: str) -> model.NamespaceInfo:
    state = durable(desk).state()
    _check_namespace(state, name)
    topics = sum(1 for one in state.user_topics() if one.namespace == name)
    clients = sum(1 for one in state.clients.values() if one.namespace == name)
    return namespace_view(state.namespaces[name], topics, clients, desk.broker.node.spaces.find(name))


def _check_namespace(state: ClusterState, name: str) -> None:
    try:
        state.namespace(name)
    except RefusedError as error:
        raise ApiError(NOT_FOUND, str(error)) from None


def _client(state: ClusterState, namespace: str, name: str) -> ClientRecord:
    try:
        return state.client(namespace, name)
    except RefusedError as error:
        raise ApiError(NOT_FOUND, str(error)) from None


def _counts(names: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
