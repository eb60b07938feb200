"""``flockmq explain``: which clients would get a message to a topic, through which node, and which nodes get none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.mqtt_options import TopicArgument
from flockmq.cli.output import JsonOption, print_json
from flockmq.server.escape import printable

if TYPE_CHECKING:
    from flockmq.admin.cluster_model import DurablePlace

GETS: Final = {
    "now": "gets it now:",
    "later": "gets it when its client returns:",
    "maybe": "may get it:",
    "no": "does not get it:",
}

TAKES: Final = {"yes": "takes it.", "maybe": "may take it.", "no": "does not take it."}


def explain(
    topic: TopicArgument,
    *,
    publisher: Annotated[str, typer.Option("--from", help="Name of the publisher in the trace.")] = "publisher",
    client: Annotated[
        str | None, typer.Option("--client", metavar="CLIENT_ID", help="Say why this client's session gets it, or not.")
    ] = None,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Trace the way that a message to a topic would take, published at the node of --server. Nothing is published."""
    found = admin_client(server).explain(topic, publisher=publisher, client_id=client)
    if as_json:
        print_json(found)
        return
    for step in found.steps:
        arrow = "->" if step.kind == "Publish" else "-->"
        where = f"$share/{step.share_group}/{step.topic}" if step.share_group else step.topic
        note = f"   ({step.note})" if step.note else ""
        print(printable(f"{step.source}{arrow}{step.target}: {step.kind}[{where}]{note}"))
    if not any(step.kind == "Deliver" for step in found.steps):
        print("No client would get it.")
    if found.misses or found.notes or found.durable is not None:
        print()
    if found.durable is not None:
        print(printable(_kept(found.durable)))
    for miss in found.misses:
        print(printable(f"not {miss.node}: {miss.reason}"))
    for note in found.notes:
        print(printable(note))
    for group in found.groups:
        print(printable(f"consumer group {group.group} {TAKES[group.takes]} {' '.join(group.reasons)}".rstrip()))
    if found.session is not None:
        print()
        print(printable(f"{found.session.client_id} {GETS[found.session.gets]}"))
        for reason in found.session.reasons:
            print(printable(f"  {reason}"))


def _kept(place: DurablePlace) -> str:
    topic = place.topic if place.namespace == "default" else f"{place.namespace}/{place.topic}"
    if place.shard is None:
        return f"kept in durable topic {topic}; its key decides the shard"
    leader = f"which {place.leader} leads" if place.leader else "which has no leader now"
    return f"kept in durable topic {topic}, shard {place.shard} (group {place.group}), {leader}; delivered after commit"
