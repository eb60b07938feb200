"""``flockmq dump``: everything that the cluster agreed on, and the segments that its nodes hold."""

from __future__ import annotations

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import WithHiddenOption
from flockmq.cli.output import JsonOption, print_json


def dump(
    *, with_hidden: WithHiddenOption = False, server: ServerOption = SERVER_DEFAULT, as_json: JsonOption = False
) -> None:
    """Print cluster state and segments: the same on any node at the same index, without secrets.

    What changes by itself, such as leaders and lag, is in `flockmq cluster status`. With --json hidden topics are
    always there, marked as hidden.
    """
    found = admin_client(server).dump()
    if as_json:
        print_json(found)
        return
    from flockmq.cluster.dump import dump_text

    print(dump_text(found, with_hidden=with_hidden), end="")
