"""``flockmq group dead NAME ...``: dead letters of a group are listed, shown, redriven and dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT, YesOption, confirm
from flockmq.cli.group_common import CountOption, GroupArgument, LongNamespaceOption, payload_text, properties_text
from flockmq.cli.output import JsonOption, print_fields, print_json, print_table, tell
from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.admin.durable_groups_model import DeadLetterInfo, DeadOutcome, RefusedToken
    from flockmq.client.admin import AdminClient

What = Literal["list", "show", "redrive", "drop"]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("dead")(dead)


def dead(
    name: GroupArgument,
    what: Annotated[What, typer.Argument(metavar="list|show|redrive|drop", help="What to do.")] = "list",
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[TOKEN...]", help="Dead letters, as list prints them: SHARD:OFFSET.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
    count: CountOption = 10,
    namespace: LongNamespaceOption = NAMESPACE_DEFAULT,
    yes: YesOption = False,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List or show dead letters of a group, publish them again where they came from, or drop them.

    ``drop`` without tokens drops all. What was redriven or dropped is listed no more; the topic for dead letters keeps
    it as long as its retention says.
    """
    client = admin_client(server)
    if what in ("list", "show"):
        if every:
            raise UsageError(f"--all goes with redrive and drop; {what} takes -n.")
        _look(client, name, namespace, ids or [], count, as_json=as_json, is_full=what == "show")
        return
    if what == "drop":
        every = every or not ids
    if every == bool(ids):
        raise UsageError(f"Name dead letters to {what}, or say --all; see `flockmq group dead {name} list`.")
    if what == "drop":
        which = "all dead letters" if every else counted(len(ids or []), "dead letter")
        confirm(f"Drop {which} of group {name!r}?", yes=yes)
    ask = client.redrive_dead if what == "redrive" else client.drop_dead
    done, refused = _settle(lambda: ask(name, ids or [], every=every, namespace=namespace), every=every)
    if as_json:
        print_json({"done": done, "refused": [{"token": one.token, "reason": one.reason} for one in refused]})
    else:
        word = "published again" if what == "redrive" else "dropped"
        print(f"{counted(done, 'dead letter')} {'was' if done == 1 else 'were'} {word}.")
        for one in refused:
            tell(f"{one.token}: {one.reason}")
    if refused and not done:
        raise FlockError(f"No dead letter was {'redriven' if what == 'redrive' else 'dropped'}.")


def _settle(ask: Callable[[], DeadOutcome], *, every: bool) -> tuple[int, list[RefusedToken]]:
    """Ask until none is left that this can change."""
    done = 0
    refused: dict[str, RefusedToken] = {}
    while True:
        outcome = ask()
        done += outcome.done
        refused |= {one.token: one for one in outcome.refused}
        if not every or not outcome.left or not outcome.done:
            return done, list(refused.values())


def _look(
    client: AdminClient, name: str, namespace: str, ids: list[str], count: int, *, as_json: bool, is_full: bool
) -> None:
    found = client.dead_letters(name, limit=1_000 if ids else count, namespace=namespace)
    items = [one for one in found.items if not ids or one.id in ids]
    missing = [one for one in ids if one not in {item.id for item in items}]
    if missing:
        raise FlockError(
            f"Among the oldest 1,000 dead letters of group {name!r} there is none {missing[0]!r}; see `flockmq group "
            f"dead {name} list`."
        )
    if as_json:
        print_json(items)
    elif not items:
        print(f"Group {name!r} has no dead letters that wait; they would be in the topic {found.dead_letter!r}.")
    elif is_full:
        for index, one in enumerate(items):
            if index:
                print()
            print_fields(_fields(one))
    else:
        rows = [[one.id, one.dead_at, one.deliveries, one.topic, one.reason, _payload(one)] for one in items]
        print_table(["TOKEN", "DEAD SINCE", "DELIVERIES", "TOPIC", "REASON", "PAYLOAD"], rows)
        if found.total is not None and found.total > len(found.items):
            tell(f"There are {found.total:,}; show more with -n.")


def _fields(one: DeadLetterInfo) -> list[tuple[str, object]]:
    return [
        ("token", one.id),
        ("topic", one.topic),
        ("reason", one.reason),
        ("deliveries", one.deliveries),
        ("last member", one.member),
        ("was in", f"{one.durable_topic}/{one.shard} at offset {one.offset}"),
        ("dead since", one.dead_at),
        ("client", one.client),
        ("properties", properties_text(one.user_properties)),
        ("payload", one.payload if one.payload is not None else f"base64:{one.payload_base64}"),
    ]


def _payload(one: DeadLetterInfo) -> str:
    return payload_text(one.payload, one.payload_base64)
