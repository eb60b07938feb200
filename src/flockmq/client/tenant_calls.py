"""The part of the admin client that is about namespaces, their registered clients and their rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flockmq.admin import durable_tenants_model as model
from flockmq.admin.model import Page
from flockmq.client.calls import ApiCalls, v1
from flockmq.client.topic_calls import DEFAULT_NAMESPACE


class TenantCalls(ApiCalls):
    """See the module."""

    def namespaces(self) -> Iterator[model.NamespaceInfo]:
        """All namespaces."""
        return self._listing(v1("namespaces"), Page[model.NamespaceInfo])

    def create_namespace(self, name: str, limits: Mapping[str, int | None] | None = None) -> model.NamespaceInfo:
        """Create a namespace."""
        request = model.NamespaceRequest(name=name, limits=dict(limits or {}))
        return self._send("POST", v1("namespaces"), model.NamespaceInfo, request)

    def namespace(self, name: str) -> model.NamespaceInfo:
        """One namespace."""
        return self._get(v1("namespaces", name), model.NamespaceInfo)

    def alter_namespace(self, name: str, limits: Mapping[str, int | None]) -> model.NamespaceInfo:
        """Change limits of a namespace; None takes a limit away."""
        change = model.NamespaceChange(limits=dict(limits))
        return self._send("PATCH", v1("namespaces", name), model.NamespaceInfo, change)

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace that has no topics and clients any more."""
        self._delete(v1("namespaces", name))

    def registered_clients(self, namespace: str = DEFAULT_NAMESPACE) -> Iterator[model.RegisteredClient]:
        """Clients registered in a namespace."""
        return self._listing(v1("namespaces", namespace, "clients"), Page[model.RegisteredClient])

    def register_client(
        self, request: model.ClientRequest, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.RegisteredClient:
        """Register a client."""
        return self._send("POST", v1("namespaces", namespace, "clients"), model.RegisteredClient, request)

    def registered_client(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> model.RegisteredClient:
        """One registered client."""
        return self._get(v1("namespaces", namespace, "clients", name), model.RegisteredClient)

    def alter_client(
        self, name: str, change: model.ClientChange, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.RegisteredClient:
        """Change a registered client; running connections feel it within a second."""
        return self._send("PATCH", v1("namespaces", namespace, "clients", name), model.RegisteredClient, change)

    def delete_client(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Take a client's registration away."""
        self._delete(v1("namespaces", namespace, "clients", name))

    def acl(self, namespace: str = DEFAULT_NAMESPACE) -> model.AccessRules:
        """The rules of a namespace; NotFound when it has none."""
        return self._get(v1("namespaces", namespace, "acl"), model.AccessRules)

    def put_acl(self, request: model.AccessRequest, *, namespace: str = DEFAULT_NAMESPACE) -> model.AccessRules:
        """Put rules in place of all that a namespace has; running connections feel it within a second."""
        return self._send("PUT", v1("namespaces", namespace, "acl"), model.AccessRules, request)

    def delete_acl(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Take a namespace's rules away."""
        self._delete(v1("namespaces", namespace, "acl"))
