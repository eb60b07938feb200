"""The part of the admin client that is about durable topics, cursors, namespaces, their clients and rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from flockmq.admin import cluster_model
from flockmq.admin import durable_model as model
from flockmq.admin import durable_tenants_model as tenants
from flockmq.admin.model import Page
from flockmq.admin.moments import rfc3339
from flockmq.client.calls import segment
from flockmq.client.sink_calls import SinkCalls
from flockmq.client.transport import Answer
from flockmq.cluster.advice import Advice

_V1: Final = "/api/v1"
DEFAULT_NAMESPACE: Final = "default"
BATCHES: Final = "application/vnd.flockmq.batches"


class DurableCalls(SinkCalls):
    """See the module."""

    # --- topics -----------------------------------------------------------------------------------------------------

    def topics(self, *, namespace: str | None = None) -> Iterator[model.DataTopic]:
        """Durable topics of a namespace, or of all."""
        return self._listing(f"{_V1}/topics", {"namespace": namespace}, Page[model.DataTopic])

    def create_topic(self, request: model.TopicRequest) -> model.DataTopic:
        """Create a durable topic; AdminError ``conflict`` when it is there or its filters meet those of another."""
        return self._send("POST", f"{_V1}/topics", request, model.DataTopic)

    def topic(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> model.DataTopic:
        """One durable topic; AdminError ``not_found`` when there is none of that name."""
        return self._get(_topic(name, namespace=namespace), model.DataTopic)

    def alter_topic(
        self, name: str, change: model.TopicChange, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.DataTopic:
        """Change a durable topic; what the change leaves out stays as it is."""
        return self._send("PATCH", _topic(name, namespace=namespace), change, model.DataTopic)

    def delete_topic(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Delete a durable topic with all of its records."""
        self._call("DELETE", _topic(name, namespace=namespace))

    def topic_partitions(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> list[model.Partition]:
        """The partitions of a topic, by shard, with their replicas."""
        return self._get(_topic(name, "/partitions", namespace=namespace), list[model.Partition])

    def heads(
        self, name: str, *, after: str | None = None, wait_ms: int = 0, namespace: str = DEFAULT_NAMESPACE
    ) -> model.Heads:
        """How far the partitions reach; with ``after`` it waits until one of them reaches further."""
        path = _topic(name, "/heads", namespace=namespace, after=after, wait_ms=wait_ms)
        return self._decode(self._transport.request("GET", path, wait_s=wait_ms / 1000).body, model.Heads)

    def offsets_at(self, name: str, time: str | int, *, namespace: str = DEFAULT_NAMESPACE) -> list[int]:
        """For each shard, the first offset whose record came at that time (ISO 8601, or ms since 1970) or later."""
        path = _topic(name, "/offsets", namespace=namespace, time=_moment(time))
        return self._get(path, model.Offsets).offsets

    def records(
        self,
        name: str,
        shard: int,
        *,
        offset: int | None = None,
        time: str | int | None = None,
        max_bytes: int = model.READ_BYTES_DEFAULT,
        limit: int = 1_000,
        wait_ms: int = 0,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> model.Records:
        """Records of a partition for people; programs that want many use ``LogClient``."""
        path = _records(
            name,
            shard,
            namespace=namespace,
            offset=offset,
            time=_moment(time),
            max_bytes=max_bytes,
            limit=limit,
            wait_ms=wait_ms,
        )
        return self._decode(self._transport.request("GET", path, wait_s=wait_ms / 1000).body, model.Records)

    def read_batches(
        self,
        name: str,
        shard: int,
        *,
        offset: int,
        max_bytes: int,
        wait_ms: int,
        filters: Sequence[str] = (),
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Answer:
        """Records of a partition as the log stores them; see ``LogClient.read``."""
        path = _records(name, shard, namespace=namespace, offset=offset, max_bytes=max_bytes, wait_ms=wait_ms)
        if filters:
            path += "&" + urlencode([("filter", one) for one in filters])
        return self._transport.request("GET", path, accept=BATCHES, wait_s=wait_ms / 1000)

    def publish_records(
        self, name: str, request: model.PublishRecords, *, namespace: str = DEFAULT_NAMESPACE
    ) -> model.Publication:
        """Append messages to a durable topic; the answer comes after they are committed and says where they are."""
        return self._send("POST", _topic(name, "/records", namespace=namespace), request, model.Publication)

    # --- partitions -------------------------------------------------------------------------------------------------

    def partitions(
        self, *, namespace: str | None = None, topic: str | None = None, unhealthy: bool = False
    ) -> Iterator[model.Partition]:
        """Partitions of all topics, or of those that pass every filter given."""
        filters = {"namespace": namespace, "topic": topic, "unhealthy": "true" if unhealthy else None}
        return self._listing(f"{_V1}/partitions", filters, Page[model.Partition])

    def partition(self, group: int) -> model.Partition:
        """One partition by the number of its group."""
        return self._get(f"{_V1}/partitions/{group}", model.Partition)

    def scrub(self, topic: str | None = None, *, namespace: str | None = None) -> model.Scrub:
        """Let all nodes read and verify their replicas now, of one topic or of all."""
        given = {"topic": topic, "namespace": namespace}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        return self._decode(self._call("POST", f"{_V1}/cluster/scrub?{query}"), model.Scrub)

    def accept_loss(self, group: int, *, without_absent: bool = False) -> model.Partition:
        """Let a partition go on whose data is gone with the stores of most of its replicas."""
        path = f"{_V1}/partitions/{group}/accept-loss?without_absent={'true' if without_absent else 'false'}"
        return self._decode(self._call("POST", path), model.Partition)

    def rebalance(self, moves_max: int = 10) -> tenants.Rebalance:
        """Begin so many moves of replicas and leaders to where they should be."""
        path = f"{_V1}/cluster/rebalance?moves_max={moves_max}"
        return self._decode(self._call("POST", path), tenants.Rebalance)

    def remove_node(self, node: str, *, accept_data_loss: bool = False) -> cluster_model.NodeRemoval:
        """Take a dead node out, by its name or id; asked again, it tells how far that is, and 404 when it is done."""
        path = f"{_V1}/cluster/nodes/{segment(node)}?accept_data_loss={'true' if accept_data_loss else 'false'}"
        return self._decode(self._call("DELETE", path), cluster_model.NodeRemoval)

    def apply_advice(self, advice: Advice, *, dry_run: bool = False) -> tenants.AdviceOutcome:
        """Put leaders and copies where an advice says; with ``dry_run`` only see what would come of it."""
        path = f"{_V1}/cluster/advice?dry_run={'true' if dry_run else 'false'}"
        return self._send("POST", path, advice, tenants.AdviceOutcome)

    def rebalance_progress(self) -> tenants.Rebalance:
        """How much is left to move."""
        return self._get(f"{_V1}/cluster/rebalance", tenants.Rebalance)

    def dump(self) -> dict[str, Any]:
        """Cluster state and segments, secrets left out."""
        return self._get(f"{_V1}/dump", dict[str, Any])

    # --- cursors ----------------------------------------------------------------------------------------------------

    def cursors(self, *, namespace: str | None = None) -> Iterator[tenants.ReadCursor]:
        """Cursors of a namespace, or of all."""
        return self._listing(f"{_V1}/cursors", {"namespace": namespace}, Page[tenants.ReadCursor])

    def create_cursor(self, request: tenants.CursorRequest) -> tenants.ReadCursor:
        """Create a cursor."""
        return self._send("POST", f"{_V1}/cursors", request, tenants.ReadCursor)

    def cursor(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> tenants.ReadCursor:
        """Where a cursor stands, and how far it is behind."""
        return self._get(_cursor(name, namespace), tenants.ReadCursor)

    def reset_cursor(
        self, name: str, to: str, *, shard: int | None = None, namespace: str = DEFAULT_NAMESPACE
    ) -> tenants.ReadCursor:
        """Put a cursor somewhere: ``earliest``, ``latest``, ``offset:N`` (of one shard), ``offset:SHARD=N,...`` (the
        others stay) or ``time:...``."""
        change = tenants.CursorChange(to=to, shard=shard)
        return self._send("PATCH", _cursor(name, namespace), change, tenants.ReadCursor)

    def commit_cursor(self, name: str, positions: Mapping[int, int], *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Say how far a reader has come, by shard: the next offset that it will read. Answered after commit."""
        request = tenants.CursorCommit(
            positions=[tenants.CommitPosition(shard=shard, offset=offset) for shard, offset in positions.items()]
        )
        self._call("POST", _cursor(name, namespace, "/commit"), request)

    def delete_cursor(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Forget a cursor; retention waits for it no longer."""
        self._call("DELETE", _cursor(name, namespace))

    # --- namespaces and clients -------------------------------------------------------------------------------------

    def namespaces(self) -> Iterator[tenants.NamespaceInfo]:
        """All namespaces."""
        return self._listing(f"{_V1}/namespaces", {}, Page[tenants.NamespaceInfo])

    def create_namespace(self, name: str, limits: Mapping[str, int | None] | None = None) -> tenants.NamespaceInfo:
        """Create a namespace."""
        request = tenants.NamespaceRequest(name=name, limits=dict(limits or {}))
        return self._send("POST", f"{_V1}/namespaces", request, tenants.NamespaceInfo)

    def namespace(self, name: str) -> tenants.NamespaceInfo:
        """One namespace."""
        return self._get(f"{_V1}/namespaces/{segment(name)}", tenants.NamespaceInfo)

    def alter_namespace(self, name: str, limits: Mapping[str, int | None]) -> tenants.NamespaceInfo:
        """Change limits of a namespace; None takes a limit away."""
        change = tenants.NamespaceChange(limits=dict(limits))
        return self._send("PATCH", f"{_V1}/namespaces/{segment(name)}", change, tenants.NamespaceInfo)

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace that has no topics and clients any more."""
        self._call("DELETE", f"{_V1}/namespaces/{segment(name)}")

    def registered_clients(self, namespace: str = DEFAULT_NAMESPACE) -> Iterator[tenants.RegisteredClient]:
        """Clients registered in a namespace."""
        return self._listing(f"{_V1}/namespaces/{segment(namespace)}/clients", {}, Page[tenants.RegisteredClient])

    def register_client(
        self, request: tenants.ClientRequest, *, namespace: str = DEFAULT_NAMESPACE
    ) -> tenants.RegisteredClient:
        """Register a client."""
        path = f"{_V1}/namespaces/{segment(namespace)}/clients"
        return self._send("POST", path, request, tenants.RegisteredClient)

    def registered_client(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> tenants.RegisteredClient:
        """One registered client."""
        return self._get(_client(name, namespace), tenants.RegisteredClient)

    def alter_client(
        self, name: str, change: tenants.ClientChange, *, namespace: str = DEFAULT_NAMESPACE
    ) -> tenants.RegisteredClient:
        """Change a registered client; running connections feel it within a second."""
        return self._send("PATCH", _client(name, namespace), change, tenants.RegisteredClient)

    def delete_client(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Take a client's registration away."""
        self._call("DELETE", _client(name, namespace))

    def acl(self, namespace: str = DEFAULT_NAMESPACE) -> tenants.AccessRules:
        """The rules of a namespace; AdminError ``not_found`` when it has none."""
        return self._get(_acl(namespace), tenants.AccessRules)

    def put_acl(self, request: tenants.AccessRequest, *, namespace: str = DEFAULT_NAMESPACE) -> tenants.AccessRules:
        """Put rules in place of all that a namespace has; running connections feel it within a second."""
        return self._send("PUT", _acl(namespace), request, tenants.AccessRules)

    def delete_acl(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Take a namespace's rules away."""
        self._call("DELETE", _acl(namespace))


def _records(name: str, shard: int, **query: str | int | None) -> str:
    """Where a partition's records are read."""
    return _topic(name, f"/partitions/{shard}/records", **query)


def _topic(name: str, rest: str = "", **query: str | int | None) -> str:
    pairs = {key: str(value) for key, value in query.items() if value is not None}
    if pairs.get("namespace") == DEFAULT_NAMESPACE:
        del pairs["namespace"]
    return f"{_V1}/topics/{segment(name)}{rest}" + (f"?{urlencode(pairs)}" if pairs else "")


def _moment(time: str | int | None) -> str | None:
    """A moment as every server reads it: of few digits it could not know what they mean."""
    return rfc3339(time) if isinstance(time, int) else time


def _cursor(name: str, namespace: str, rest: str = "") -> str:
    query = "" if namespace == DEFAULT_NAMESPACE else f"?{urlencode({'namespace': namespace})}"
    return f"{_V1}/cursors/{segment(name)}{rest}{query}"


def _client(name: str, namespace: str) -> str:
    return f"{_V1}/namespaces/{segment(namespace)}/clients/{segment(name)}"


def _acl(namespace: str) -> str:
    return f"{_V1}/namespaces/{segment(namespace)}/acl"
