"""``flockmq log``: look into the log of a node on its own disk, without a broker; ``read`` asks a running one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from flockmq.cli.log_read import read
from flockmq.cli.output import JsonOption, print_change, print_fields, print_json, print_table
from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError

if TYPE_CHECKING:
    from flockmq.log.batch import Record
    from flockmq.log.group import GroupLog
    from flockmq.log.recovery import Loaded

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A broker's data folder, or the folder of its log in there.")
]
_READ_BYTES: Final = 1 << 20


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        help="Logs: what a folder on disk holds, whether all of it can be read, and records of a running cluster."
    )
    group.command("inspect")(inspect)
    group.command("verify")(verify)
    group.command("read")(read)
    group.command("accept-loss")(accept_loss)
    app.add_typer(group, name="log")


def inspect(
    folder: FolderArgument,
    *,
    group: Annotated[int | None, typer.Option("--group", help="Show the segments of this group.")] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", help="With --group: show records from this offset on.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="With --offset: how many records.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show what a log holds: its groups, the segments of one group, or records."""
    from flockmq.log.settings import StoreSettings

    loaded = _load(folder, StoreSettings().verify_bytes)
    if group is None:
        if offset is not None:
            raise UsageError("--offset needs --group: offsets count within a group.")
        _show_store(loaded, as_json=as_json)
        return
    log = loaded.store.groups.get(group)
    if log is None:
        raise FlockError(f"There is no group {group} in {folder}; `flockmq log inspect {folder}` lists them.")
    if offset is None:
        _show_segments(log, as_json=as_json)
    else:
        _show_records(log, offset, limit, as_json=as_json)


def verify(folder: FolderArgument, *, as_json: JsonOption = False) -> None:
    """Read every batch, record and snapshot, and check that it is what was written."""
    from flockmq.log.errors import DamageError
    from flockmq.log.recovery import EVERYTHING

    loaded = _load(folder, EVERYTHING)
    problems = list(loaded.store.notes)
    rows = []
    for log in loaded.store.groups.values():
        try:
            log.load_snapshot()
        except DamageError as error:
            problems.append(str(error))
        rows.append(_group(log))
    if as_json:
        print_json({"sound": not problems, "torn": loaded.store.torn, "problems": problems, "groups": rows})
    else:
        for problem in problems:
            print(problem)
        batches = sum(log.last_index() - log.first_index() + 1 for log in loaded.store.groups.values())
        print(f"{len(rows):,} groups, {batches:,} batches, {sum(row['bytes'] for row in rows):,} bytes.")
        if loaded.store.torn:
            print("The last write did not finish; it was never acknowledged and will be cut at the next start.")
    if problems:
        raise FlockError(
            f"{folder} is damaged (problems: {len(problems)}). Start the node in its cluster: it does not vote until "
            "the others have refilled it."
        )


def accept_loss(
    folder: Annotated[Path, typer.Argument(metavar="DATA_DIR", help="The data folder of a node that does not run.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Let a node that is alone start though its store is gone, older or another one: what it held is given up.

    Its next start goes on with what the store holds; if that is nothing, with the same topics, and empty logs. A node
    of many needs none of this: the others refill it.
    """
    from flockmq.server.store_opening import accept_loss as accept

    if not (folder / "node_id").exists():
        raise FlockError(f"{folder} is not the data folder of a node; give the one that its message names.")
    if _is_running(folder):
        raise FlockError("The node runs, so nothing is lost that it could start without; stop it first.")
    accept(folder)
    said = "The next start of this node goes on without what its store does not hold."
    print_change(said, as_json=as_json, accepted=True)


def _load(folder: Path, verify_bytes: int) -> Loaded:
    from flockmq.drivers.disk import FileDisk
    from flockmq.log.recovery import load_store
    from flockmq.log.settings import StoreSettings
    from flockmq.log.work import MANIFESTS
    from flockmq.server.data_dir import STORE_FOLDER

    for root in (folder, folder / STORE_FOLDER):
        if any((root / name).exists() for name in (*MANIFESTS, "groups")):
            break
    else:
        raise FlockError(f"There is no log in {folder}; give the data folder of a broker that has durable topics.")
    if _is_running(root):
        print("flockmq: a broker is using this log; what it is writing right now may look torn.", file=sys.stderr)
    loaded = load_store(FileDisk(root), StoreSettings(), verify_bytes)
    if loaded is None:
        raise FlockError(f"There is no log in {root}.")
    return loaded


def _is_running(root: Path) -> bool:
    """Whether a broker holds the lock of the data folder."""
    import fcntl

    for lock in (root / "lock", root.parent / "lock"):
        if lock.exists():
            with lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
    return False


def _group(log: GroupLog) -> dict[str, Any]:
    damage = log.damage
    snapshot = log.snapshot
    return {
        "group": log.group,
        "first_index": log.first_index(),
        "last_index": log.last_index(),
        "first_offset": log.first_offset,
        "next_offset": log.next_offset(),
        "segments": len(log.segments),
        "bytes": log.size(),
        "term": log.term,
        "vote": log.vote,
        "commit": log.commit,
        "snapshot_index": None if snapshot is None else snapshot.index,
        "damage": None
        if damage is None
        else {"first": damage.first, "last": damage.last, "everything": damage.everything, "reason": damage.reason},
    }


def _show_store(loaded: Loaded, *, as_json: bool) -> None:
    store = loaded.store
    rows = [_group(store.groups[group]) for group in sorted(store.groups)]
    facts: dict[str, object] = {
        "store": f"{store.identity:016x}",
        "journal": store.journal,
        "journal_position": store.position,
        "next_sequence": store.sequence,
        "records_since_checkpoint": len(loaded.scan.records),
        "torn": store.torn,
        "notes": store.notes,
    }
    if as_json:
        print_json({**facts, "groups": rows})
        return
    print_fields((name.replace("_", " "), value) for name, value in facts.items() if name != "notes")
    for note in store.notes:
        print(note)
    if rows:
        columns = ["group", "first_index", "last_index", "first_offset", "next_offset", "segments", "bytes", "term"]
        print()
        print_table(
            [*(name.replace("_", " ").upper() for name in columns), "DAMAGED FROM"],
            [[*(row[name] for name in columns), row["damage"]["first"] if row["damage"] else None] for row in rows],
        )


def _show_segments(log: GroupLog, *, as_json: bool) -> None:
    rows = [
        {
            "file": f"{log.folder}/{segment.file_name()}",
            "base_offset": segment.base_offset,
            "first_index": segment.first_index,
            "last_index": segment.next_index - 1,
            "bytes": segment.length,
            "bytes_in_file": segment.flushed,
            "latest_timestamp_ms": segment.latest_timestamp,
        }
        for segment in log.segments
    ]
    if as_json:
        print_json({**_group(log), "segments": rows})
    elif rows:
        print_table([name.replace("_", " ").upper() for name in rows[0]], [list(row.values()) for row in rows])
    else:
        print(f"Group {log.group} has no entries.")


def _show_records(log: GroupLog, offset: int, limit: int, *, as_json: bool) -> None:
    records: list[Record] = []
    while len(records) < limit:
        batches = log.read(offset, log.last_index(), _READ_BYTES)
        if not batches:
            break
        for batch in batches:
            view = _view(batch)
            records += [view.record(at) for at in range(max(offset - view.base_offset, 0), view.count)]
            offset = view.next_offset
    rows = [_record(record) for record in records[:limit]]
    if as_json:
        print_json(rows)
    elif rows:
        columns = ["offset", "timestamp_ms", "topic", "client", "qos", "payload"]
        print_table([name.upper() for name in columns], [[row[name] for name in columns] for row in rows])
    else:
        print(f"Group {log.group} has no records from offset {offset} on.")


def _view(batch: bytes) -> Any:
    from flockmq.log.batch import BatchView

    return BatchView(batch)


def _record(record: Record) -> dict[str, Any]:
    from flockmq.log.columns import QOS_MASK, RETAIN

    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "topic": _text(record.topic),
        "client": _text(record.client),
        "qos": record.flags & QOS_MASK,
        "retain": bool(record.flags & RETAIN),
        "key": None if record.key is None else _text(record.key),
        "payload": _text(record.payload),
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
