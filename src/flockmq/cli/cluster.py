"""``flockmq cluster`` and ``flockmq node``: the members, and joining or leaving them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client, one_server
from flockmq.cli.durable_options import YesOption, confirm
from flockmq.cli.node_remove import remove
from flockmq.cli.output import JsonOption, print_fields, print_json, print_table
from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.cluster_model import Cluster, Decisions, JoinResult, Member
    from flockmq.admin.durable_tenants_model import Rebalance
    from flockmq.client.admin import AdminClient

COLUMNS: Final = (
    "NODE",
    "STATE",
    "ROLE",
    "ADDRESS",
    "LINK",
    "RTT MS",
    "CLOCK MS",
    "CLIENTS",
    "ROUTES",
    "LEADS",
    "COPIES",
    "LAG",
    "VERSION",
    "ID",
)
ZONE_AT: Final = 3
"""Where zones are shown, if any node has one."""
WATCH_S: Final = 1.0
_OUTCOMES: Final = {
    ("move", True): "would move",
    ("move", False): "moves",
    ("done", True): "stays",
    ("done", False): "stays",
    ("refused", True): "refused",
    ("refused", False): "refused",
}
Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="Any node of the cluster: host, host:port or name@host.")
]
Discard = Annotated[
    bool, typer.Option("--discard-data", help="Join though this node loses its topics or sessions by it.")
]
DiscardLeaving = Annotated[
    bool, typer.Option("--discard-data", help="Leave though no node takes over what this node stores.")
]


def register(app: typer.Typer) -> None:
    """Add the groups."""
    cluster = typer.Typer(help="The nodes together.")
    cluster.command("status")(status)
    cluster.command("join")(join)
    cluster.command("leave")(leave)
    cluster.command("rebalance")(rebalance)
    app.add_typer(cluster, name="cluster")
    nodes = typer.Typer(help="The nodes one by one.")
    nodes.command("list")(list_nodes)
    nodes.command("remove")(remove)
    app.add_typer(nodes, name="node")


def status(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """Show the cluster as one node sees it: members, links, clocks, voters, leaders, copies and their lag."""
    found = admin_client(server).cluster()
    if as_json:
        print_json(found)
        return
    print_fields(summary(found))
    if found.members:
        print()
        print_members(found.members)


def summary(found: Cluster) -> list[tuple[str, object]]:
    """The cluster in a few lines."""
    states = [member.state for member in found.members]
    counts = [f"{states.count(state)} {state}" for state in ("alive", "suspect", "dead", "left") if state in states]
    fields: list[tuple[str, object]] = [
        ("cluster", found.id),
        ("seen from", found.node),
        ("state", found.state),
        ("nodes", ", ".join(counts) or "none"),
    ]
    if found.reason:
        fields.append(("waits for" if found.state == "waiting" else "alone because", found.reason))
    if found.decisions is not None:
        fields += _decisions(found.decisions)
    return fields


def _decisions(found: Decisions) -> list[tuple[str, object]]:
    partitions = f"{found.partitions:,} of {counted(found.topics, 'durable topic')}"
    hidden = hidden_warning(found)
    counts = (
        (found.hidden_partitions, "hidden"),
        (found.without_leader, "without leader"),
        (found.stopped, "with a stopped replica"),
        (found.replica_away, "with a replica away"),
        (found.few_copies, "with too few copies"),
        (found.moving, "moving"),
    )
    notes = [f"{count:,} {what}" for count, what in counts if count]
    return [
        ("state index", found.index),
        ("decided by", found.leader),
        ("voters", " ".join(found.voters) or None),
        *([("learners", " ".join(found.learners))] if found.learners else []),
        ("partitions", ", ".join([partitions, *notes])),
        *[("warning", text) for text in (found.warning, hidden) if text],
    ]


def hidden_warning(found: Decisions) -> str:
    """Which partitions of hidden topics have no leader, and what that means; empty when all have one."""
    names = found.hidden_without_leader
    if not names:
        return ""
    return (
        f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no leader: persistent sessions that are kept there "
        "wait until a majority of the copies is up."
    )


def print_members(members: list[Member]) -> None:
    """A table of nodes."""
    with_zone = any(member.zone for member in members)
    rows = [
        [
            member.name,
            member.state,
            member.role,
            *([member.zone or None] if with_zone else []),
            f"[{member.host}]:{member.port}" if ":" in member.host else f"{member.host}:{member.port}",
            "itself" if member.is_self else "up" if member.linked else "down",
            member.rtt_ms,
            member.clock_offset_ms,
            member.clients,
            member.routes,
            member.leads,
            member.replicas,
            member.lag,
            member.version,
            member.id,
        ]
        for member in members
    ]
    print_table([*COLUMNS[:ZONE_AT], *(["ZONE"] if with_zone else []), *COLUMNS[ZONE_AT:]], rows)


def list_nodes(*, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False) -> None:
    """List the nodes of the cluster."""
    found = admin_client(server).cluster()
    if as_json:
        print_json(found.members)
    else:
        print_members(found.members)


def join(
    address: Address,
    *,
    discard_data: Discard = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make the node at --server a member of another node's cluster."""
    result = admin_client(one_server(server, "one node is to join")).join(address, discard_data=discard_data)
    if as_json:
        print_json(result)
    elif result.changed:
        print(f"The node is a member of cluster {result.id} now.")
        _tell_where(result)
    else:
        print(f"The node was a member of cluster {result.id} before.")


def leave(
    *,
    discard_data: DiscardLeaving = False,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Let the node at --server take leave of the others. It goes on alone, in a cluster of its own.

    The others take over all that it stores first. Its clients are told to use another server.
    """
    url = one_server(server, "one node is to leave")
    client = admin_client(url)
    if sys.stdin.isatty() and not yes:
        found = client.cluster()
        confirm(f"Take {found.node} out of its cluster?", yes=yes, details=_what_leaving_does(found, discard_data))
    else:
        confirm(f"Take the node at {url} out of its cluster?", yes=yes)
    result = client.leave(discard_data=discard_data)
    if as_json:
        print_json(result)
    elif result.changed:
        print(f"The node has left and is a cluster of its own now, {result.id}. Its own admin token opens it.")
        _tell_where(result)
    else:
        print(f"The node was a cluster of its own before, {result.id}.")


def _what_leaving_does(found: Cluster, discard_data: bool) -> str:
    me = next((one for one in found.members if one.is_self), None)
    others = sum(1 for one in found.members if one.state == "alive" and not one.is_self)
    if not others:
        return (
            f"{found.node} sees no other node alive. It will begin anew in a cluster of its own, with an empty store."
        )
    clients = counted(me.clients, "client") if me is not None and me.clients else "Clients"
    copies = counted(me.replicas, "replica") if me is not None and me.replicas else "sessions and retained messages"
    stored = (
        f"What it stores ({copies}) is set aside on its disk, whether other nodes have copies or not."
        if discard_data
        else f"{counted(others, 'other node')} take over what it stores ({copies}) first."
    )
    return (
        f"{clients} of {found.node} will be told to use another server. {stored} Then it is alone in a cluster of its "
        "own, with an empty store."
    )


def _tell_where(result: JoinResult) -> None:
    if result.set_aside:
        print(f"What it stored before is on the node in {result.set_aside}; remove that when it is not missed.")


def rebalance(
    *,
    moves: Annotated[int, typer.Option("--moves", min=1, max=1000, help="Most moves to have under way at once.")] = 10,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until nothing is left to move, and show it.")] = False,
    advice: Annotated[
        Path | None,
        typer.Option("--advice", metavar="FILE", help="Do what this file advises, as `pipeline run traffic` makes it."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --advice: show what would be done.")] = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Spread the copies and leaders of partitions evenly over nodes and zones, while everything goes on.

    A copy is moved by making the new one first. Without --watch one round of moves is begun. With --advice copies and
    leaders go where the file says and stay there until this command is used without it.
    """
    if dry_run and advice is None:
        raise UsageError("--dry-run goes with --advice FILE; `flockmq cluster status` shows how things are.")
    client = admin_client(server)
    if advice is not None:
        if not _apply(client, advice, dry_run=dry_run, as_json=as_json):
            raise typer.Exit(1)
        if watch and not dry_run:
            _follow(client, as_json=as_json)
        return
    found = client.rebalance(moves)
    if watch:
        found = _watch(client, found, moves, as_json=as_json)
    if as_json:
        print_json(found)
    elif watch:
        print("Copies and leaders are where they should be.")
    else:
        print(_progress(found))


def _apply(client: AdminClient, file: Path, *, dry_run: bool, as_json: bool) -> bool:
    """Follow an advice, and show what came of it; False when it had something to say and all of that was refused."""
    import msgspec

    from flockmq.cluster.advice import Advice

    try:
        advice = msgspec.json.decode(file.read_bytes(), type=Advice)
    except OSError as error:
        raise FlockError(f"The advice {file} can't be read ({error.strerror}); check its path") from error
    except msgspec.DecodeError as error:
        raise FlockError(f"{file} is no advice ({error}); `flockmq pipeline run traffic` makes one") from error
    found = client.apply_advice(advice, dry_run=dry_run)
    is_followed = found.refused < len(found.steps) or not found.steps
    if as_json:
        print_json(found)
        return is_followed
    if found.steps:
        rows = [
            [
                one.namespace,
                one.topic,
                one.shard,
                one.what,
                one.from_node,
                one.to_node,
                _OUTCOMES[one.outcome, dry_run],
                one.reason or one.why,
            ]
            for one in found.steps
        ]
        print_table(["NAMESPACE", "TOPIC", "SHARD", "WHAT", "FROM", "TO", "OUTCOME", "WHY"], rows)
        print()
    made = f" (measured {found.made_at})" if found.made_at else ""
    done = "would be moved" if dry_run else "are on their way"
    print(f"Of {counted(len(found.steps), 'piece')} of advice {found.moves:,} {done}, {found.refused:,} refused{made}.")
    return is_followed


def _follow(client: AdminClient, *, as_json: bool) -> None:
    """Wait until all is where it should be; a line each time something has changed."""
    shown = ""
    while True:
        found = client.rebalance_progress()
        line = _progress(found)
        if line != shown and not as_json:
            print(line, flush=True)
            shown = line
        if found.settled:
            return
        time.sleep(WATCH_S)


def _watch(client: AdminClient, found: Rebalance, moves: int, *, as_json: bool) -> Rebalance:
    """Begin round after round until nothing is left; a line each time something has changed."""
    shown = ""
    remaining = found.remaining or 0
    begun = found.begun
    while True:
        line = _progress(found, remaining)
        if line != shown and not as_json:
            print(line, flush=True)
            shown = line
        if found.settled and not remaining and not begun:
            return found
        time.sleep(WATCH_S)
        if found.settled or not found.moves_left:
            found = client.rebalance(moves)
            remaining, begun = found.remaining or 0, found.begun
        else:
            found = client.rebalance_progress()


def _progress(found: Rebalance, remaining: int | None = None) -> str:
    left = found.remaining if remaining is None else remaining
    parts = [
        f"{counted(found.moves_left, 'partition')} moving",
        f"{counted(found.leaders_left, 'leader')} not in place",
    ]
    if left:
        parts.append(f"{left:,} more to begin")
    if found.unknown:
        parts.append(f"{counted(found.unknown, 'partition')} without an answer")
    return ", ".join(parts) + "."
