"""The cluster state and its segments as plain data, and as text: the same on every node at the same index.

```
 index: 823                      {"index": 823,
 namespaces: <                    "namespaces": [
   name: "default"                  {"name": "default",
   topics: <                         "topics": [
     name: "my-topic"                  {"name": "my-topic",
```
What changes by itself (suspicion, leaders, lag) is not here. Secrets are replaced by a word. Records are sorted by name
or id, so that two dumps can be compared line by line. Hidden topics and their segments are marked; the text leaves them
out unless they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from flockmq.cluster.filters import user_filter
from flockmq.cluster.model import ACK_NAMES, BY_PROPERTY, KEY_NAMES, ROLE_NAMES, STATE_NAMES, is_hidden
from flockmq.cluster.quoting import quoted

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import AclRecord, BanRecord, ClientRecord, NodeRecord, PartitionRecord, TopicRecord
    from flockmq.cluster.tables import Tables

Plain = str | int | bool | list["Plain"] | dict[str, "Plain"]

REDACTED: Final = "redacted"
_SECRET_WORDS: Final = ("secret", "token", "password", "key", "hash")


class SegmentReport(Struct, frozen=True, array_like=True):
    """A segment file as the node that has it tells."""

    node: int
    group: int
    base_offset: int
    end_offset: int
    """The offset after its last record."""
    size_bytes: int


def dump(state: Tables, segments: list[SegmentReport]) -> dict[str, Plain]:
    """The state and the segments that nodes told of."""
    return {**dump_state(state), "segments": _segments(state, segments)}


def dump_state(state: Tables) -> dict[str, Plain]:
    """The state alone."""
    return {
        "index": state.index,
        "cluster_id": hex_id(state.cluster_id),
        "namespaces": [_namespace(state, name) for name in sorted(state.namespaces)],
        "nodes": [_node(state.nodes[node]) for node in sorted(state.nodes)],
        "settings": [
            {"name": name, "value": REDACTED if _is_secret(name) else state.settings[name]}
            for name in sorted(state.settings)
        ],
        "bans": [_ban(state.bans[key]) for key in sorted(state.bans)],
    }


def hex_id(number: int) -> str:
    """An id as people see it."""
    return f"{number:016x}"


def dump_text(dumped: dict[str, Plain], *, with_hidden: bool = False) -> str:
    """A dump for people."""
    state = {name: value for name, value in dumped.items() if name != "segments"}
    lines = ["=== Cluster state ===", *_lines(state, "", with_hidden)]
    lines += ["", "=== Segments ===", *_lines({"segments": dumped.get("segments", [])}, "", with_hidden)]
    return "\n".join(lines) + "\n"


def _namespace(state: Tables, name: str) -> dict[str, Plain]:
    topics = sorted([topic.name for topic in state.topics.values() if topic.namespace == name])
    clients = sorted([client.name for client in state.clients.values() if client.namespace == name])
    groups = sorted([group.name for group in state.groups.values() if group.namespace == name])
    cursors = sorted([cursor.name for cursor in state.cursors.values() if cursor.namespace == name])
    dumped: dict[str, Plain] = {
        "name": name,
        "topics": [_topic(state.topics[f"{name}/{each}"]) for each in topics],
        "cursors": [_cursor(state, f"{name}/{each}") for each in cursors],
        "consumer_groups": [_group(state.groups[f"{name}/{each}"]) for each in groups],
        "clients": [_client(state.clients[f"{name}/{each}"]) for each in clients],
        "limits": {limit: value for limit, value in asdict(state.namespaces[name].limits).items() if value},
    }
    acl = state.acls.get(name)
    if acl is not None:
        dumped["acl"] = _acl(acl)
    return dumped


def _topic(topic: TopicRecord) -> dict[str, Plain]:
    key = topic.key_property if topic.key == BY_PROPERTY else KEY_NAMES[topic.key]
    return {
        "name": topic.name,
        **_mark(topic),
        "shards": topic.shards,
        "replication_factor": topic.replication_factor,
        "retention": {"milliseconds": topic.retention_ms, "bytes": topic.retention_bytes},
        "default_exchange_type": topic.exchange,
        "filters": [user_filter(topic.namespace, each) for each in topic.filters],
        "ack": ACK_NAMES[topic.ack],
        "key": key,
        "created_ms": topic.created_ms,
        "partitions": [_partition(partition) for partition in topic.partitions],
    }


def _mark(topic: TopicRecord) -> dict[str, Plain]:
    return {"hidden": True} if is_hidden(topic.name) else {}


def _partition(partition: PartitionRecord) -> dict[str, Plain]:
    dumped: dict[str, Plain] = {
        "shard": partition.shard,
        "group": partition.group,
        "replicas": [hex_id(node) for node in partition.replicas],
        "preferred_leader": hex_id(partition.preferred),
    }
    if partition.is_moving:
        dumped["target"] = [hex_id(node) for node in partition.target]
    if partition.is_advised:
        dumped["advised"] = True
    return dumped


def _cursor(state: Tables, key: str) -> dict[str, Plain]:
    cursor = state.cursors[key]
    return {"name": cursor.name, "topic": cursor.topic, "hold": cursor.hold, "created_ms": cursor.created_ms}


def _group(group: ConsumerGroup) -> dict[str, Plain]:
    return {
        "name": group.name,
        "id": group.id,
        "bindings": [
            {"topic_name": each.topic, "exchange_type": each.type, "key": each.key} for each in group.bindings
        ],
        "mode": group.mode,
        "ack_wait_ms": group.ack_wait_ms,
        "max_deliver": group.max_deliver,
        "backoff_ms": group.backoff_ms,
        "backoff_max_ms": group.backoff_max_ms,
        "max_in_flight": group.max_in_flight,
        "dead_letter": group.dead_letter,
        "start": group.start,
        "hold": group.hold,
        "paused": group.paused,
        "generation": group.generation,
        "reset_to": group.reset_to,
        "made_by_share": group.made_by_share,
        "linger_ms": group.linger_ms,
        "created_ms": group.created_ms,
    }


def _client(client: ClientRecord) -> dict[str, Plain]:
    return {
        "name": client.name,
        "secret": REDACTED if client.secret else "",
        "superuser": client.superuser,
        "publish": [*client.publish],
        "publish_deny": [*client.publish_deny],
        "subscribe": [*client.subscribe],
        "subscribe_deny": [*client.subscribe_deny],
    }


def _acl(acl: AclRecord) -> dict[str, Plain]:
    return {
        "default": "allow" if acl.default_allow else "deny",
        "rules": [
            {"allow": rule.allow, "who": [*rule.who], "action": rule.action, "topics": [*rule.topics]}
            for rule in acl.rules
        ],
    }


def _ban(ban: BanRecord) -> dict[str, Plain]:
    return {
        "kind": ban.kind,
        "value": ban.value,
        "reason": ban.reason,
        "since_ms": ban.since_ms,
        "until_ms": ban.until_ms,
    }


def _node(node: NodeRecord) -> dict[str, Plain]:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return {
        "id": hex_id(node.id),
        "name": node.name,
        "address": f"{host}:{node.port}",
        "api": node.api,
        "role": ROLE_NAMES[node.role],
        "zone": node.zone,
        "version": node.version,
        "state": STATE_NAMES[node.state],
    }


def _segments(state: Tables, reports: list[SegmentReport]) -> list[Plain]:
    """Segments that are the same on several nodes, once, with these nodes; those of deleted topics are left out."""
    nodes: dict[tuple[int, int, int, int], list[int]] = {}
    for report in reports:
        if report.group in state.places:
            same = nodes.setdefault((report.group, report.base_offset, report.end_offset, report.size_bytes), [])
            if report.node not in same:
                same.append(report.node)
    dumped: list[Plain] = []
    for group, base_offset, end_offset, size_bytes in sorted(nodes):
        key, shard = state.places[group]
        topic = state.topics[key]
        dumped.append(
            {
                "namespace": topic.namespace,
                "topic": topic.name,
                **_mark(topic),
                "shard": shard,
                "group": group,
                "base_offset": base_offset,
                "end_offset": end_offset,
                "size_bytes": size_bytes,
                "replicas": [hex_id(node) for node in sorted(nodes[group, base_offset, end_offset, size_bytes])],
            }
        )
    return dumped


def _is_secret(name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in _SECRET_WORDS)


def _lines(fields: dict[str, Plain], indent: str, with_hidden: bool) -> list[str]:
    """Fields as text: a list as its field again and again, what is empty not at all."""
    lines: list[str] = []
    for name, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                inner = _lines(each, indent + "  ", with_hidden)
                if inner and (with_hidden or "hidden" not in each):
                    lines += [f"{indent}{name}: <", *inner, f"{indent}>"]
            elif each != "":
                lines.append(f"{indent}{name}: {_scalar(name, each)}")
    return lines


def _scalar(name: str, value: Plain) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and name != "state":
        return quoted(value)
    return str(value)
