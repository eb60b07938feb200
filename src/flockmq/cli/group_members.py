"""``flockmq group fetch``, ``ack``, ``nack``, ``extend`` and ``peek``: a member by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT
from flockmq.cli.group_common import CountOption, GroupArgument, LongNamespaceOption, parse_age, payload_text
from flockmq.cli.output import JsonOption, print_json, print_table, tell
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.durable_groups_model import GroupMessage, Settled

TokensArgument = Annotated[list[str], typer.Argument(metavar="TOKEN...", help="Tokens that fetch has printed.")]


def register(group: typer.Typer) -> None:
    """Add the commands."""
    group.command("peek")(peek)
    group.command("fetch")(fetch)
    group.command("ack")(ack)
    group.command("nack")(nack)
    group.command("extend")(extend)


def peek(
    name: GroupArgument,
    *,
    count: CountOption = 10,
    namespace: LongNamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the oldest records that are not settled; nothing is handed out."""
    found = admin_client(server).peek_records(name, limit=count, namespace=namespace)
    if as_json:
        print_json(found)
    elif found:
        rows = [
            [f"{one.durable_topic}/{one.shard}", one.offset, one.timestamp_at, one.deliveries, one.topic, _payload(one)]
            for one in found
        ]
        print_table(["PARTITION", "OFFSET", "CAME", "DELIVERIES", "TOPIC", "PAYLOAD"], rows)
    else:
        print(f"All records of group {name!r} are settled.")


def fetch(
    name: GroupArgument,
    *,
    count: CountOption = 10,
    wait: Annotated[str, typer.Option("--wait", metavar="AGE", help="How long to wait when there is none.")] = "0s",
    member: Annotated[str, typer.Option("--member", metavar="M", help="Name of the member.")] = "cli",
    namespace: LongNamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Take records as a member, and print them with their tokens. Settle each with ack or nack in time."""
    from flockmq.admin.durable_groups_model import FetchRequest
    from flockmq.admin.durable_model import WAIT_MS_MAX

    client = admin_client(server)
    left_ms = parse_age(wait, "--wait")
    while True:
        wait_ms = min(left_ms, WAIT_MS_MAX)
        request = FetchRequest(max=count, wait_ms=wait_ms, member=member)
        found = client.fetch_records(name, request, namespace=namespace).messages
        left_ms -= wait_ms
        if found or left_ms <= 0:
            break
    if as_json:
        print_json(found)
    elif found:
        rows = [[one.token, one.deliveries, one.topic, _payload(one)] for one in found]
        print_table(["TOKEN", "DELIVERY", "TOPIC", "PAYLOAD"], rows)
    else:
        print(f"There are no records for group {name!r} now.")


def ack(
    name: GroupArgument,
    tokens: TokensArgument,
    *,
    namespace: LongNamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Records are done; they are not delivered again."""
    settled = admin_client(server).ack_records(name, tokens, namespace=namespace)
    _print(settled, "acknowledged", as_json=as_json)


def nack(
    name: GroupArgument,
    tokens: TokensArgument,
    *,
    delay: Annotated[
        str | None,
        typer.Option("--delay", metavar="AGE", help="Wait before they are delivered again.", show_default="backoff"),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with a dead letter.")] = "",
    dead: Annotated[bool, typer.Option("--dead", help="Make them dead letters at once.")] = False,
    namespace: LongNamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Records could not be worked on: deliver them again, or make them dead letters."""
    delay_ms = None if delay is None else parse_age(delay, "--delay")
    settled = admin_client(server).nack_records(
        name, tokens, delay_ms=delay_ms, reason=reason, dead=dead, namespace=namespace
    )
    _print(settled, "made dead letters" if dead else "given back", as_json=as_json)


def extend(
    name: GroupArgument,
    tokens: TokensArgument,
    *,
    by: Annotated[str, typer.Option("--by", metavar="AGE", help="How much longer, from now on.")] = "30s",
    namespace: LongNamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Hold records longer."""
    settled = admin_client(server).extend_records(name, tokens, max(parse_age(by, "--by"), 1), namespace=namespace)
    _print(settled, f"held {by} longer", as_json=as_json)


def _print(settled: Settled, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(settled)
        return
    print(f"{counted(settled.done, 'record')} {'was' if settled.done == 1 else 'were'} {what}.")
    for one in settled.refused:
        tell(f"{one.token}: {one.reason}")


def _payload(one: GroupMessage) -> str:
    return payload_text(one.payload, one.payload_base64)
