"""Talks to a broker's admin API from outside its process: what the command line is built on.

```
 AdminClient.method() --> _call(operation) --> one HTTP request, one connection, one timeout
                                                |-- nobody answers ----> UnreachableError  (is it running?)
                                                |-- {"error": ...} ----> AdminError         (code, status, sentence)
                                                `-- a body ------------> a value of flockmq.admin.model
```
Synchronous and of the standard library alone: a command starts, asks, prints and ends. Listings come as iterators
that fetch page after page, so a million sessions never lie in memory at once. Proxies named in the environment are
not used and redirects are not followed: the token goes to the server that was named and nowhere else.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from flockmq.admin import cluster_model, model
from flockmq.client.calls import segment
from flockmq.client.durable_calls import DEFAULT_NAMESPACE, DurableCalls
from flockmq.client.transport import DEFAULT_SERVER_URL, AdminError, UnreachableError

__all__ = ["DEFAULT_SERVER_URL", "AdminClient", "AdminError", "UnreachableError"]

MOVE_S_MAX: Final = 70.0


class AdminClient(DurableCalls):
    """One broker's admin API. Unless told to keep its connection it holds none, and needs no closing."""

    # --- node -------------------------------------------------------------------------------------------------------

    def node(self) -> model.Node:
        """Name, version, build, uptime and listeners of the node that answers."""
        return self._get("/api/v1/node", model.Node)

    def stats(self) -> model.Stats:
        """Gauges and counters, by name."""
        return self._get("/api/v1/stats", model.Stats)

    def config(self) -> dict[str, Any]:
        """The configuration in effect, secrets blacked out."""
        return self._get("/api/v1/config", dict[str, Any])

    def reload(self) -> model.ReloadResult:
        """Make the broker read passwords, ACL and certificates again."""
        return self._decode(self._call("POST", "/api/v1/reload"), model.ReloadResult)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI description; needs no token."""
        return self._get("/api/v1/openapi.json", dict[str, Any])

    def metrics(self) -> str:
        """Metrics in Prometheus' text format."""
        return self._call("GET", "/metrics").decode()

    def is_live(self) -> bool:
        """Whether a broker answers at all; False instead of an error when nobody does."""
        return self._probe("/health/live")

    def is_ready(self) -> bool:
        """Whether the broker takes clients now; False while it starts or stops, or when nobody answers."""
        return self._probe("/health/ready")

    # --- cluster ----------------------------------------------------------------------------------------------------

    def cluster(self) -> cluster_model.Cluster:
        """The cluster as the node that answers sees it."""
        return self._get("/api/v1/cluster", cluster_model.Cluster)

    def join(self, address: str, *, discard_data: bool = False) -> cluster_model.JoinResult:
        """Make the node a member of another node's cluster; AdminError ``refused`` says why not."""
        request = cluster_model.JoinRequest(address=address, discard_data=discard_data)
        answer = self._transport.request("POST", "/api/v1/cluster/join", request, wait_s=MOVE_S_MAX)
        return self._decode(answer.body, cluster_model.JoinResult)

    def leave(self, *, discard_data: bool = False) -> cluster_model.JoinResult:
        """Let the node take leave of the others. Takes as long as they need to take over what it stores."""
        path = f"/api/v1/cluster/leave?{urlencode({'discard_data': str(discard_data).lower()})}"
        return self._decode(self._transport.request("POST", path, wait_s=MOVE_S_MAX).body, cluster_model.JoinResult)

    def routes(self) -> Iterator[cluster_model.Route]:
        """All topic filters of the cluster with their nodes."""
        return self._listing("/api/v1/routes", {}, model.Page[cluster_model.Route])

    def explain(self, topic: str, *, publisher: str = "publisher") -> cluster_model.Explanation:
        """Who would get a message to this topic, and on which way."""
        path = f"/api/v1/explain/{segment(topic)}?{urlencode({'publisher': publisher})}"
        return self._get(path, cluster_model.Explanation)

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
        return self._listing("/api/v1/connections", query, model.NodesPage[model.Connection], unanswered)

    def connection(self, client_id: str, namespace: str | None = None, node: str | None = None) -> model.Connection:
        """One connected client, on whichever node; AdminError ``not_found`` when it is not connected."""
        return self._get(f"/api/v1/connections/{_place(client_id, namespace, node)}", model.Connection)

    def kick(self, client_id: str, namespace: str | None = None) -> None:
        """Disconnect a client (MQTT 5: reason 0x98, Administrative action). It may connect again."""
        self._call("DELETE", f"/api/v1/connections/{_place(client_id, namespace)}")

    def sessions(
        self,
        *,
        client_id_prefix: str | None = None,
        connected: bool | None = None,
        namespace: str | None = None,
        node: str | None = None,
        unanswered: list[str] | None = None,
    ) -> Iterator[model.Session]:
        """All sessions of the cluster, or those that pass every filter given. ``unanswered`` gets the names of nodes
        whose sessions are missing."""
        is_connected = None if connected is None else str(connected).lower()
        query = {"client_id": client_id_prefix, "connected": is_connected, "namespace": namespace, "node": node}
        return self._listing("/api/v1/sessions", query, model.NodesPage[model.Session], unanswered)

    def session(self, client_id: str, namespace: str | None = None, node: str | None = None) -> model.Session:
        """One session, on whichever node; AdminError ``not_found`` when there is none."""
        return self._get(f"/api/v1/sessions/{_place(client_id, namespace, node)}", model.Session)

    def delete_session(self, client_id: str, namespace: str | None = None) -> None:
        """Disconnect the client, if it is connected, and forget its subscriptions and waiting messages."""
        self._call("DELETE", f"/api/v1/sessions/{_place(client_id, namespace)}")

    def session_subscriptions(self, client_id: str, namespace: str | None = None) -> Iterator[model.Subscription]:
        """Subscriptions of one session; AdminError ``not_found`` when there is no such session."""
        path = f"/api/v1/sessions/{segment(client_id)}/subscriptions"
        return self._listing(path, {"namespace": namespace}, model.NodesPage[model.Subscription])

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
        return self._listing("/api/v1/subscriptions", query, model.NodesPage[model.Subscription], unanswered)

    # --- bans -------------------------------------------------------------------------------------------------------

    def bans(self, *, kind: model.BanKind | None = None) -> Iterator[model.Ban]:
        """Who may not connect."""
        return self._listing("/api/v1/bans", {"kind": kind}, model.Page[model.Ban])

    def ban(
        self, kind: model.BanKind, value: str, *, duration_s: int | None = None, reason: str = ""
    ) -> model.BanResult:
        """Keep a client id, user name or address out, and disconnect whom it hits; ``None`` means without end."""
        request = model.BanRequest(kind=kind, value=value, duration_s=duration_s, reason=reason)
        return self._decode(self._call("POST", "/api/v1/bans", request), model.BanResult)

    def unban(self, kind: model.BanKind, value: str) -> None:
        """Let them in again; AdminError ``not_found`` when there is no such ban."""
        self._call("DELETE", f"/api/v1/bans/{kind}/{segment(value)}")

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
            payload_base64=_base64(data),
            qos=qos,
            retain=retain,
            properties=properties,
            namespace=namespace,
        )
        return self._decode(self._call("POST", "/api/v1/publish", request), model.PublishResult)

    def retained(self, *, topic_filter: str | None = None) -> Iterator[model.Retained]:
        """All retained messages without their payloads, or those whose topic the filter matches."""
        return self._listing("/api/v1/retained", {"filter": topic_filter}, model.Page[model.Retained])

    def retained_message(self, topic: str) -> model.RetainedMessage:
        """One retained message with its payload; AdminError ``not_found`` when there is none."""
        return self._get(f"/api/v1/retained/{segment(topic)}", model.RetainedMessage)

    def delete_retained(self, topic: str) -> None:
        """Forget the retained message of a topic."""
        self._call("DELETE", f"/api/v1/retained/{segment(topic)}")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _place(client_id: str, namespace: str | None, node: str | None = None) -> str:
    """The end of a path that names one client."""
    query = {name: value for name, value in (("namespace", namespace), ("node", node)) if value is not None}
    return f"{segment(client_id)}?{urlencode(query)}" if query else segment(client_id)
