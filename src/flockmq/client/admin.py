"""Talks to a broker's admin API from outside its process: what the command line is built on.

```
 AdminClient.method() --> one HTTP request, one connection, one timeout
                             |-- no broker answers --> UnreachableError      (is it running?)
                             |-- {"error": ...} -----> the class of flockmq.errors that the broker raised
                             `-- a body -------------> a value of flockmq.admin.model
```
Synchronous and of the standard library alone: a command starts, asks, prints and ends. Listings come as iterators
that fetch page after page, so a million sessions never lie in memory at once. Proxies named in the environment are
not used and redirects are not followed: the token goes to the server that was named and nowhere else.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from flockmq.admin import model
from flockmq.client.calls import v1
from flockmq.client.cluster_calls import ClusterCalls
from flockmq.client.tenant_calls import TenantCalls
from flockmq.client.topic_calls import DEFAULT_NAMESPACE, TopicCalls
from flockmq.client.transport import DEFAULT_SERVER_URL, UnreachableError

__all__ = ["DEFAULT_SERVER_URL", "AdminClient", "UnreachableError"]


class AdminClient(TopicCalls, ClusterCalls, TenantCalls):
    """One broker's admin API. Unless told to keep its connection it holds none, and needs no closing."""

    # --- node -------------------------------------------------------------------------------------------------------

    def node(self) -> model.Node:
        """Name, version, build, uptime and listeners of the node that answers."""
        return self._get(v1("node"), model.Node)

    def stats(self) -> model.Stats:
        """Gauges and counters, by name."""
        return self._get(v1("stats"), model.Stats)

    def config(self) -> dict[str, Any]:
        """The configuration in effect, secrets blacked out."""
        return self._get(v1("config"), dict[str, Any])

    def reload(self) -> model.ReloadResult:
        """Make the broker read passwords, ACL and certificates again."""
        return self._send("POST", v1("reload"), model.ReloadResult)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description; needs no token."""
        return self._get(v1("openapi.json"), dict[str, Any])

    def metrics(self) -> str:
        """Metrics in Prometheus' text format."""
        return self.transport.request("GET", "/metrics").body.decode()

    def is_live(self) -> bool:
        """Whether a broker answers at all; False instead of an error when none does."""
        return self._probe("/health/live")

    def is_ready(self) -> bool:
        """Whether the broker takes clients now; False while it starts or stops, or when no broker answers."""
        return self._probe("/health/ready")

    # --- clients ----------------------------------------------------------------------------------------------------

    def connections(
        self,
        *,
        client_id_prefix: str | None = None,
        username: str | None = None,
        peer: str | None = None,
        namespace: str | None = None,
        node: str | None = None,
        unanswered: list[str] | None = None,
    ) -> Iterator[model.Connection]:
        """All connected clients of the cluster, or those that pass every filter given. ``unanswered`` gets the names of
        nodes whose clients are missing."""
        query = {
            "client_id": client_id_prefix,
            "username": username,
            "peer": peer,
            "namespace": namespace,
            "node": node,
        }
        return self._listing(v1("connections"), model.NodesPage[model.Connection], query, unanswered)

    def connection(self, client_id: str, namespace: str | None = None, node: str | None = None) -> model.Connection:
        """One connected client, on whichever node; NotFound when it is not connected."""
        return self._get(v1("connections", client_id, namespace=namespace, node=node), model.Connection)

    def kick(self, client_id: str, namespace: str | None = None) -> None:
        """Disconnect a client (MQTT 5: reason 0x98, Administrative action). It may connect again."""
        self._delete(v1("connections", client_id, namespace=namespace))

    def sessions(
        self,
        *,
        client_id_prefix: str | None = None,
        connected: bool | None = None,
        namespace: str | None = None,
        username: str | None = None,
        lag_min: int | None = None,
        disconnected_s_min: int | None = None,
        node: str | None = None,
        unanswered: list[str] | None = None,
    ) -> Iterator[model.Session]:
        """All sessions of the cluster, or those that pass every filter given. ``unanswered`` gets the names of nodes
        whose sessions are missing."""
        query = {
            "client_id": client_id_prefix,
            "connected": connected,
            "namespace": namespace,
            "username": username,
            "lag_min": lag_min,
            "disconnected_s_min": disconnected_s_min,
            "node": node,
        }
        return self._listing(v1("sessions"), model.NodesPage[model.Session], query, unanswered)

    def session(self, client_id: str, namespace: str | None = None, node: str | None = None) -> model.Session:
        """One session, on whichever node; NotFound when there is none."""
        return self._get(v1("sessions", client_id, namespace=namespace, node=node), model.Session)

    def delete_session(self, client_id: str, namespace: str | None = None) -> None:
        """Disconnect the client, if it is connected, and forget its subscriptions and waiting messages."""
        self._delete(v1("sessions", client_id, namespace=namespace))

    def session_subscriptions(self, client_id: str, namespace: str | None = None) -> Iterator[model.Subscription]:
        """Subscriptions of one session; NotFound when there is no such session."""
        path = v1("sessions", client_id, "subscriptions")
        return self._listing(path, model.NodesPage[model.Subscription], {"namespace": namespace})

    def subscriptions(
        self,
        *,
        client_id: str | None = None,
        topic_filter: str | None = None,
        match: str | None = None,
        node: str | None = None,
        unanswered: list[str] | None = None,
    ) -> Iterator[model.Subscription]:
        """All subscriptions of the cluster; of one client, of one exact filter, or those that a topic name would reach.
        ``unanswered`` gets the names of nodes whose subscriptions are missing."""
        query = {"client_id": client_id, "filter": topic_filter, "match": match, "node": node}
        return self._listing(v1("subscriptions"), model.NodesPage[model.Subscription], query, unanswered)

    # --- bans -------------------------------------------------------------------------------------------------------

    def bans(self, *, kind: model.BanKind | None = None) -> Iterator[model.Ban]:
        """Which clients may not connect."""
        return self._listing(v1("bans"), model.Page[model.Ban], {"kind": kind})

    def ban(
        self, kind: model.BanKind, value: str, *, duration_s: int | None = None, reason: str = ""
    ) -> model.BanResult:
        """Keep a client id, user name or address out, and disconnect such clients; ``None`` means without end."""
        request = model.BanRequest(kind=kind, value=value, duration_s=duration_s, reason=reason)
        return self._send("POST", v1("bans"), model.BanResult, request)

    def unban(self, kind: model.BanKind, value: str) -> None:
        """Let them in again; NotFound when there is no such ban."""
        self._delete(v1("bans", kind, value))

    # --- messages ---------------------------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: model.MessageProperties | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> model.PublishResult:
        """Publish one message; the result says how many subscribers it was routed to."""
        data = payload.encode() if isinstance(payload, str) else payload
        request = model.PublishRequest(
            topic=topic,
            payload_base64=base64.b64encode(data).decode("ascii"),
            qos=qos,
            retain=retain,
            properties=properties,
            namespace=namespace,
        )
        return self._send("POST", v1("publish"), model.PublishResult, request)

    def retained(self, *, topic_filter: str | None = None) -> Iterator[model.Retained]:
        """All retained messages without their payloads, or those whose topic the filter matches."""
        return self._listing(v1("retained"), model.Page[model.Retained], {"filter": topic_filter})

    def retained_message(self, topic: str) -> model.RetainedMessage:
        """One retained message with its payload; NotFound when there is none."""
        return self._get(v1("retained", topic), model.RetainedMessage)

    def delete_retained(self, topic: str) -> None:
        """Forget the retained message of a topic."""
        self._delete(v1("retained", topic))
