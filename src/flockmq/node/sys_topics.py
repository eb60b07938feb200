"""``$SYS/#``: the node's own figures as retained messages, for operators with nothing but an MQTT client."""

from __future__ import annotations

from flockmq.mqtt.run import make_run
from flockmq.node.delivering import route
from flockmq.node.state import NodeState


def figures(node: NodeState, now: int, version: str) -> list[tuple[str, str]]:
    """Topic (below ``$SYS/broker/``) and value of everything published; the names are those people know."""
    stats = node.stats
    received = stats.publishes_in_qos0 + stats.publishes_in_qos1 + stats.publishes_in_qos2
    sent = stats.publishes_out_qos0 + stats.publishes_out_qos1 + stats.publishes_out_qos2
    return [
        ("version", f"flockmq {version}"),
        ("node", node.settings.node_name),
        ("uptime", str((now - node.started_at) // 1000)),
        ("clients/connected", str(node.online)),
        ("clients/disconnected", str(len(node.sessions) - node.online)),
        ("clients/total", str(len(node.sessions))),
        ("connections/count", str(len(node.connections))),
        ("subscriptions/count", str(node.table.count)),
        ("subscriptions/shared/count", str(node.table.count_shared)),
        ("retained/count", str(node.retained.usage.count)),
        ("retained/bytes", str(node.retained.usage.bytes)),
        ("delayed/count", str(len(node.delayed))),
        ("messages/received", str(received)),
        ("messages/sent", str(sent)),
        ("messages/dropped", str(stats.dropped_slow + stats.dropped_queue)),
        ("bytes/received", str(stats.bytes_in)),
        ("bytes/sent", str(stats.bytes_out)),
    ]


def publish_figures(node: NodeState, now: int, version: str) -> None:
    """Bring all ``$SYS`` topics up to date."""
    for name, value in figures(node, now, version):
        topic = b"$SYS/broker/" + name.encode()
        run = make_run(4, 0, False, topic, value.encode())
        node.retained.put_system(topic, make_run(4, 0, True, topic, value.encode()).alone(), now)
        plan = node.table.plan(topic)
        if plan.targets or plan.groups:
            route(node, plan, run, None, now)
