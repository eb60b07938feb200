"""Routes and the way of a message as the API shows them; the same for a node alone and for one of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.admin import cluster_model as model
from flockmq.peering.explain import explain_here

if TYPE_CHECKING:
    from flockmq.admin.paging import Entries
    from flockmq.node.broker import Broker
    from flockmq.peering.explain import Recipients


def routes(broker: Broker, name: str) -> Entries[model.Route]:
    """All filters with the nodes that they lead to; this one is called ``name``."""
    table = broker.subscriptions
    for topic_filter in sorted(table.filters()):
        entry = table.entry(topic_filter)
        if entry is None:
            yield None
            continue
        text = topic_filter.decode()
        nodes = [name] if entry.has_own() else []
        nodes += [peer.name for peer in entry.peers or ()]
        if nodes:
            yield model.Route(filter=text, share_group=None, nodes=sorted(nodes))
        for group in list(entry.groups.values()) if entry.groups is not None else ():
            nodes = [name] if group.members else []
            nodes += [peer.name for peer in group.remote or ()]
            yield model.Route(filter=text, share_group=group.name.decode(), nodes=sorted(nodes))


def explain_alone(broker: Broker, name: str, topic: bytes, publisher: str) -> model.Explanation:
    """The way of a message on a node that talks to no others."""
    steps = [step(publisher, name, "Publish", topic.decode()), *deliveries(name, explain_here(broker.node, topic))]
    notes = ["This node talks to no others."]
    return model.Explanation(topic=topic.decode(), node=name, steps=steps, misses=[], notes=notes)


def step(source: str, target: str, kind: model.StepKind, topic: str) -> model.Step:
    """One step of a message's way."""
    return model.Step(source=source, target=target, kind=kind, topic=topic, share_group=None, qos=None, note="")


def share_step(source: str, target: str, full: str) -> model.Step:
    """The step to a node with members of a shared group, given as ``$share/GROUP/FILTER``."""
    group, _, topic_filter = full.removeprefix("$share/").partition("/")
    note = "one of the group's members gets it, there or elsewhere"
    return model.Step(
        source=source, target=target, kind="Route", topic=topic_filter, share_group=group, qos=None, note=note
    )


def deliveries(node: str, found: Recipients) -> list[model.Step]:
    """The last steps: to the clients of a node."""
    steps = []
    for one in found.clients:
        note = "" if one.connected else "away: waits for it at QoS 1 and 2, is lost at QoS 0"
        if one.group:
            note = "; ".join(filter(None, ["one member of the group gets it", note]))
        steps.append(
            model.Step(
                source=node,
                target=one.client_id,
                kind="Deliver",
                topic=one.topic_filter,
                share_group=one.group or None,
                qos=one.qos,
                note=note,
            )
        )
    if found.more:
        steps.append(
            model.Step(
                source=node, target=f"{found.more} more", kind="Deliver", topic="", share_group=None, qos=None, note=""
            )
        )
    return steps
