"""``flockmq node remove``: a node that is gone for good is taken out of the cluster at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import YesOption, confirm
from flockmq.cli.output import JsonOption, print_json
from flockmq.errors import FlockError, NotFound
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.cluster_model import NodeRemoval
    from flockmq.client.admin import AdminClient

LOOK_S: Final = 0.5
WAIT_S_DEFAULT: Final = 60.0


def remove(
    node: Annotated[str, typer.Argument(metavar="NAME|ID", help="The node, as `flockmq node list` shows it.")],
    *,
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss",
            help="Partitions without a majority of their copies begin anew, empty. Should the node come back, its "
            "copies of them are removed.",
        ),
    ] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0.0, help="Seconds to wait until nothing depends on the node; 0: don't.")
    ] = WAIT_S_DEFAULT,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Take a dead node out of the cluster: its copies are made anew on other nodes, and its vote goes to another.

    A node that is alive is refused: `flockmq cluster leave` lets it go. If a removed node comes back, it joins as new.
    """
    question = f"Take the node {node} out of the cluster for good?"
    if accept_data_loss:
        question += " Partitions without a majority of their copies begin anew: what they hold is lost."
    confirm(question, yes=yes)
    client = admin_client(server)
    found = client.remove_node(node, accept_data_loss=accept_data_loss)
    if not found.done and wait:
        found = _follow(client, found, wait, as_json=as_json)
    if as_json:
        print_json(found)
    elif found.done:
        print(f"The node {found.name} ({found.id}) is no part of the cluster any more.")
    else:
        print(_progress(found))
        if wait:
            raise FlockError("That is not done yet. It goes on by itself; repeat the command to see how far it is.")


def _follow(client: AdminClient, found: NodeRemoval, seconds: float, *, as_json: bool) -> NodeRemoval:
    """Wait until nothing depends on the node; a line each time something has changed."""
    until = time.monotonic() + seconds
    shown = ""
    while not found.done and time.monotonic() < until:
        line = _progress(found)
        if line != shown and not as_json:
            print(line, flush=True)
            shown = line
        time.sleep(LOOK_S)
        found = _look(client, found)
    return found


def _look(client: AdminClient, found: NodeRemoval) -> NodeRemoval:
    import msgspec

    try:
        return client.remove_node(found.id)
    except NotFound:
        pass
    return msgspec.structs.replace(found, partitions_left=0, votes=False, done=True)


def _progress(found: NodeRemoval) -> str:
    parts = [f"copies of {counted(found.partitions_left, 'partition')} to be made elsewhere"]
    if found.votes:
        parts.append("its vote to be taken over")
    return f"{found.name}: {', '.join(parts)}."
