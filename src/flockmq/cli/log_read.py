"""``flockmq log read``: records of a durable topic, from any node, by offset or time, and as they come.

```
 where to begin in each shard --> print what is there --> --follow: wait until a shard has more, or the topic one more
                                     ^---------------------------------------------------------------------|
```
A node that goes away meanwhile is no reason to end: offsets mean the same on all of them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flockmq.cli.api import SERVER_DEFAULT, ServerOption, admin_client, log_client
from flockmq.cli.durable_options import NAMESPACE_DEFAULT, WHERE_HELP, NamespaceOption, parse_where
from flockmq.cli.output import JsonOption
from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError, OffsetGone
from flockmq.server.escape import printable
from flockmq.wording import no_shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flockmq.admin.durable_model import Head, LogRecord
    from flockmq.client.log_client import Batches, LogClient
    from flockmq.log.starts import Start

WAIT_MS: Final = 10_000
READ_BYTES: Final = 1 << 20
RETRY_S: Final = 5.0
RETRY_S_FOLLOWING: Final = 60.0
"""A command that follows a log runs for long, and nodes are restarted one after the other meanwhile."""


def read(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The durable topic.")],
    *,
    shard: Annotated[int | None, typer.Option("--shard", min=0, help="Only this shard.")] = None,
    start: Annotated[str, typer.Option("--from", metavar="WHERE", help=WHERE_HELP)] = "earliest",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Most records to print; 0 prints all.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes later, until Ctrl-C; prints all.")
    ] = False,
    namespace: NamespaceOption = NAMESPACE_DEFAULT,
    server: ServerOption = SERVER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print committed records: shard, offset, time, topic, client and payload. With --json, one object per line."""
    where = parse_where(start, "--from", shard)
    # Asked once and by itself: where no node answers there is nothing to wait for.
    shards = admin_client(server).topic(topic, namespace=namespace).shards
    with log_client(server, namespace, retry_s=RETRY_S_FOLLOWING if follow else RETRY_S) as client:
        positions = starts(client, topic, shards, where, shard)
        left = 0 if follow else limit
        printed = 0
        while True:
            for number, offset in list(positions.items()):
                count, positions[number] = _drain(
                    client, topic, number, offset, left - printed if left else 0, as_json=as_json
                )
                printed += count
                if left and printed >= left:
                    return
            if not follow:
                return
            _wait(client, topic, positions, is_whole=shard is None)


def starts(client: LogClient, topic: str, shards: int, start: Start, shard: int | None) -> dict[int, int | None]:
    """Where to begin in each shard; None is the oldest that is there."""
    from flockmq.log.starts import EARLIEST, TIME

    if shard is not None and shard >= shards:
        raise FlockError(f"{no_shard(topic, shards, shard)}.")
    problem = "" if shard is not None and start.by_shard is None else start.refusal(shards)
    if problem:
        hint = ", or choose a shard with --shard" if start.by_shard is None else ""
        raise UsageError(f"--from can't be used: {problem}{hint}.")
    offsets: Sequence[int | None]
    if start.what == TIME:
        offsets = client.offsets_at(topic, start.value)
    elif start.what == EARLIEST:
        offsets = [None] * shards  # needs no leader, and so can be read where there is none
    else:
        return {one.shard: _offset(start, one) for one in client.heads(topic).heads if shard in (None, one.shard)}
    return {number: offset for number, offset in enumerate(offsets) if shard in (None, number)}


def _offset(start: Start, head: Head) -> int:
    from flockmq.log.starts import OFFSET

    begin = start.of_shard(head.shard)
    if begin.what == OFFSET and begin.value > head.end_offset:
        raise FlockError(
            f"Shard {head.shard} ends at offset {head.end_offset}, and {begin.value} is beyond that; use --from "
            "latest to begin at its end."
        )
    return start.offset_in(head.shard, head.first_offset, head.end_offset)


def _drain(
    client: LogClient, topic: str, shard: int, offset: int | None, limit: int, *, as_json: bool
) -> tuple[int, int]:
    """Print what a shard has from an offset on: how many records, and where to read on."""
    from flockmq.admin.durable_records import records_of

    printed = 0
    while True:
        found = _oldest(client, topic, shard) if offset is None else _read(client, topic, shard, offset)
        most = limit - printed if limit else sys.maxsize
        records = records_of(client.namespace, found.views, found.offset, most)
        for record in records:
            _print(shard, record, as_json=as_json)
        printed += len(records)
        offset = records[-1].offset + 1 if len(records) == most else found.next_offset
        if not found.views or offset >= found.end_offset or len(records) == most:
            return printed, offset


def _read(client: LogClient, topic: str, shard: int, offset: int) -> Batches:
    return client.read(topic, shard, offset, max_bytes=READ_BYTES)


def _oldest(client: LogClient, topic: str, shard: int) -> Batches:
    """What is first in a shard. Retention may remove that while it is asked for."""

    offset = 0
    while True:
        try:
            return _read(client, topic, shard, offset)
        except OffsetGone as gone:
            offset = max(gone.first, offset + 1)


def _wait(client: LogClient, topic: str, positions: dict[int, int | None], *, is_whole: bool) -> None:
    """Until a shard has more. Shards that are not read are compared with their ends, so they wake the reader once.

    A reader of the whole topic reads shards that were added meanwhile, from their beginning.
    """
    sys.stdout.flush()
    heads = client.heads(topic).heads
    added = [one.shard for one in heads if one.shard not in positions] if is_whole else []
    if added:
        client.metadata(topic, fresh=True)
        positions.update(dict.fromkeys(added))
        return
    ends = [one.end_offset if (at := positions.get(one.shard)) is None else at for one in heads]
    client.heads(topic, after=",".join(map(str, ends)), wait_ms=WAIT_MS)


def _print(shard: int, record: LogRecord, *, as_json: bool) -> None:
    if as_json:
        import json

        import msgspec

        print(json.dumps({"shard": shard, **msgspec.to_builtins(record)}))
        return
    payload = record.payload if record.payload is not None else f"base64:{record.payload_base64}"
    fields = (f"{shard}:{record.offset}", record.timestamp_at, record.topic, record.client or "-", payload)
    print(printable("  ".join(fields)))
