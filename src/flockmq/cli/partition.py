"""``flockmq partition``: where the shards of durable topics are and how they do."""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import (
    AnyNamespaceOption,
    WithHiddenOption,
    YesOption,
    check_namespace,
    confirm,
    size_text,
)
from flockmq.cli.output import LIMIT_DEFAULT, JsonOption, LimitOption, print_fields, print_json, print_made, print_table
from flockmq.cli.topic import print_partitions
from flockmq.errors import FlockError
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.client.admin import AdminClient

POLL_S: Final = 0.5


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Partitions: the shards of durable topics, each a replicated log.")
    group.command("list")(list_partitions)
    group.command("show")(show)
    group.command("scrub")(scrub)
    group.command("accept-loss")(accept_loss)
    app.add_typer(group, name="partition")


def list_partitions(
    *,
    topic: Annotated[str | None, typer.Option("--topic", help="Only those of this topic.")] = None,
    namespace: AnyNamespaceOption = None,
    unhealthy: Annotated[
        bool, typer.Option("--unhealthy", help="Only those that are not healthy, also hidden.")
    ] = False,
    with_hidden: WithHiddenOption = False,
    limit: LimitOption = LIMIT_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List partitions with leaders, replicas, offsets and lag."""
    client = admin_client(server)
    found = client.partitions(namespace=namespace, topic=topic, unhealthy=unhealthy, with_hidden=with_hidden)
    partitions = list(itertools.islice(found, limit or None))
    if not partitions:
        _check_topic(client, namespace, topic, with_hidden=with_hidden)
    if as_json:
        print_json(partitions)
    elif partitions:
        print_partitions(partitions, with_topic=True)
    else:
        print("All partitions are healthy." if unhealthy else "There are no partitions.")


def _check_topic(client: AdminClient, namespace: str | None, topic: str | None, *, with_hidden: bool) -> None:
    """Nothing was found: is that because there is no such topic?"""
    check_namespace(client, namespace)
    topics = client.topics(namespace=namespace, with_hidden=with_hidden)
    if topic is not None and all(one.name != topic for one in topics):
        where = "" if namespace is None else f" in namespace {namespace!r}"
        raise FlockError(f"There is no topic {topic!r}{where}; see `flockmq topic list`.")


def accept_loss(
    group: Annotated[int, typer.Argument(metavar="GROUP", min=1, help="The partition's group, as list shows it.")],
    *,
    without_absent: Annotated[
        bool, typer.Option("--without-absent", help="Though replicas that do not answer may have more.")
    ] = False,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Let a partition go on whose data is gone with the stores of most replicas. What is missing is given up.

    The replica that has most leads from then on, and the others are made anew from it. If no replica has anything, the
    log begins again at offset 0. It is refused while most replicas have what they had, or may have it.
    """
    confirm(f"Give up the records of group {group} that no replica has any more?", yes=yes)
    found = admin_client(server).accept_loss(group, without_absent=without_absent)
    print_made(found, f"Group {group} of {found.namespace}/{found.topic} goes on with what is left.", as_json=as_json)


def show(
    group: Annotated[int, typer.Argument(metavar="GROUP", min=1, help="The partition's group, as list shows it.")],
    *,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one partition and each of its replicas."""
    found = admin_client(server).partition(group)
    if as_json:
        print_json(found)
        return
    print_fields(
        [
            ("group", found.group),
            ("topic", f"{found.namespace}/{found.topic}"),
            ("shard", found.shard),
            ("leader", found.leader),
            ("preferred leader", found.preferred),
            ("term", found.term),
            ("first offset", found.first_offset),
            ("end offset", found.end_offset),
            ("size", size_text(found.bytes)),
            ("moving to", " ".join(found.target) or None),
            ("state", found.problem or "healthy"),
        ]
    )
    print()
    rows = [
        [one.node, one.role, one.end_offset, one.lag, one.damaged or None, one.scrubbed_at, one.api, one.id]
        for one in found.replicas
    ]
    print_table(["NODE", "ROLE", "END", "LAG", "DAMAGED", "SCRUBBED", "API", "ID"], rows)


def scrub(
    *,
    topic: Annotated[str | None, typer.Option("--topic", help="Only the partitions of this topic.")] = None,
    namespace: AnyNamespaceOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all is read.")] = True,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Read and verify all replicas on their disks now, and compare them; damage is mended from other replicas."""
    client = admin_client(server)
    check_namespace(client, namespace)
    begun = client.scrub(topic, namespace=namespace)
    if begun.silent:
        print(f"No answer from {', '.join(begun.silent)}: replicas there are not read.", file=sys.stderr)
    found = list(client.partitions(namespace=namespace, topic=topic, with_hidden=True))
    while wait and (left := sum(replica.scrubbing for one in found for replica in one.replicas)):
        if not as_json:
            print(f"{counted(begun.replicas, 'replica')}, {left:,} to be read", file=sys.stderr)
        time.sleep(POLL_S)
        found = list(client.partitions(namespace=namespace, topic=topic, with_hidden=True))
    if as_json:
        print_json(begun)
        return
    unwell = [one for one in found if any(replica.damaged for replica in one.replicas)]
    text = f"{counted(len(unwell), 'partition')} with damage; see `flockmq partition list --unhealthy`."
    print(f"{counted(begun.replicas, 'replica')} {'read' if wait else 'to be read'}. " + (text if unwell else ""))
