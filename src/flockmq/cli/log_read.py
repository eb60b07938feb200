"""``flockmq log read``: records of a durable topic, from any node, by offset or time, and as they come."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT, NamespaceOption
from flockmq.cli.output import JsonOption
from flockmq.errors import FlockError
from flockmq.server.escape import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin.durable_model import LogRecord
    from flockmq.client.admin import AdminClient

WAIT_MS: Final = 10_000
PAGE: Final = 1_000


def read(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The durable topic.")],
    *,
    shard: Annotated[int | None, typer.Option("--shard", min=0, help="Only this shard.")] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="earliest, latest, offset:N, or time:2026-03-01T12:00:00Z.")
    ] = "earliest",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Most records to print; 0 prints all.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes later, until Ctrl-C; prints all.")
    ] = False,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print committed records: shard, offset, time, topic, client and payload. With --json, one object per line."""
    client = admin_client(server)
    positions = starts(client, topic, namespace, start, shard)
    left = 0 if follow else limit
    printed = 0
    while True:
        after = dict(positions)
        for number in positions:
            printed += _drain(client, topic, namespace, number, after, left - printed if left else 0, as_json=as_json)
            if left and printed >= left:
                return
        positions = after
        if not follow:
            return
        _wait(client, topic, namespace, positions)


def starts(client: AdminClient, topic: str, namespace: str, start: str, shard: int | None) -> dict[int, int | None]:
    """Where to begin in each shard; None is the oldest that is there."""
    shards = client.topic(topic, namespace=namespace).shards
    if shard is not None and shard >= shards:
        raise FlockError(f"Topic {topic!r} has {shards} shards, counted from 0; there is no shard {shard}.")
    offsets: Sequence[int | None]
    if start.startswith("time:"):
        offsets = client.offsets_at(topic, start.removeprefix("time:"), namespace=namespace)
    elif start == "earliest":
        offsets = [None] * shards  # needs no leader, and so can be read where there is none
    elif start == "latest":
        offsets = [one.end_offset for one in client.heads(topic, namespace=namespace).heads]
    elif start.startswith("offset:") and start.removeprefix("offset:").isdigit():
        wanted = int(start.removeprefix("offset:"))
        heads = client.heads(topic, namespace=namespace).heads
        offsets = [min(max(wanted, one.first_offset), one.end_offset) for one in heads]
    else:
        raise FlockError(f"--from can't be {start!r}; use earliest, latest, offset:N or time:2026-03-01T12:00:00Z.")
    return {number: offset for number, offset in enumerate(offsets) if shard in (None, number)}


def _drain(
    client: AdminClient,
    topic: str,
    namespace: str,
    shard: int,
    positions: dict[int, int | None],
    limit: int,
    *,
    as_json: bool,
) -> int:
    """Print what a shard has from its position on; how many records."""
    printed = 0
    while True:
        most = min(PAGE, limit - printed) if limit else PAGE
        found = client.records(topic, shard, offset=positions[shard], limit=most, namespace=namespace)
        for record in found.records:
            _print(shard, record, as_json=as_json)
        printed += len(found.records)
        positions[shard] = found.next_offset
        if not found.records or found.next_offset >= found.end_offset or (limit and printed >= limit):
            return printed


def _wait(client: AdminClient, topic: str, namespace: str, positions: dict[int, int | None]) -> None:
    """Until a shard has more. Shards that are not read are compared with their ends, so they wake nobody twice."""
    sys.stdout.flush()
    heads = client.heads(topic, namespace=namespace).heads
    ends = [one.end_offset if (at := positions.get(one.shard)) is None else at for one in heads]
    client.heads(topic, after=",".join(map(str, ends)), wait_ms=WAIT_MS, namespace=namespace)


def _print(shard: int, record: LogRecord, *, as_json: bool) -> None:
    if as_json:
        import json

        import msgspec

        print(json.dumps({"shard": shard, **msgspec.to_builtins(record)}))
        return
    payload = record.payload if record.payload is not None else f"base64:{record.payload_base64}"
    fields = (f"{shard}:{record.offset}", record.timestamp_at, record.topic, record.client or "-", payload)
    print(printable("  ".join(fields)))
