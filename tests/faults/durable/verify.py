"""After all faults: what clients were promised, held against what HTTP serves and what lies on the disks.

| rule | broken when |
| --- | --- |
| nothing lost | an acknowledged message is in no log |
| no phantom | a record is there that nobody sent, or that was refused |
| order | of one publisher and key, a message stands for the first time behind one with a higher number |
| offsets | they are not dense, or a record is in another shard than that of its key |
| replicas | two disks hold different bytes |
| delivery | what a subscriber got from a shard while it was connected is not a piece of the log without gap or repeat |
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path

from faults.durable.memory import Memory
from flockmq.admin.durable_model import LogRecord
from flockmq.drivers.disk import FileDisk
from flockmq.log.batch import DATA, BatchView
from flockmq.log.group import GroupLog
from flockmq.log.header import size_of
from flockmq.log.recovery import EVERYTHING, load_store
from flockmq.log.settings import StoreSettings

READ_BYTES = 1 << 20

Record = tuple[bytes, bytes]
"""Topic and payload; its place in the list is its offset."""


def from_json(page: Sequence[LogRecord]) -> list[Record]:
    """Records as HTTP serves them to people."""
    for offset, one in enumerate(page):
        assert one.offset == offset, f"over HTTP offset {one.offset} comes where {offset} should"
    return [(one.topic.encode(), _payload(one)) for one in page]


def _payload(one: LogRecord) -> bytes:
    text = one.payload_base64
    return base64.b64decode(text) if text is not None else str(one.payload).encode()


def from_batches(data: bytes, first: int) -> list[Record]:
    """Records from offset ``first`` on, of batches that lie end to end; checksums and offsets are verified."""
    found: list[Record] = []
    at = 0
    while at < len(data):
        size = size_of(data, at)
        view = BatchView(data[at : at + size])
        if at == 0 and view.kind == DATA:  # the batch that holds the asked offset comes whole
            found += _records(view, view.base_offset)[first - view.base_offset :]
        else:
            found += _records(view, first + len(found))
        at += size
    return found


def _records(view: BatchView, offset: int) -> list[Record]:
    view.verify()
    if view.kind != DATA:
        return []
    assert view.base_offset == offset, f"a batch starts at {view.base_offset}, not at {offset}"
    return [(record.topic, record.payload) for record in view.records()]


def store_folder(data: Path) -> Path:
    """Where in its data folder a node keeps its logs."""
    found = [path.parent for path in sorted(data.rglob("journal*")) if path.is_file()]
    folder = found[0]
    return folder.parent if folder.name == "journal" else folder


def read_disk(data: Path, groups: Sequence[int]) -> dict[int, list[bytes]]:
    """All entries of these groups on a dead node's disk; everything is verified, nothing is changed."""
    disk = FileDisk(store_folder(data))
    try:
        loaded = load_store(disk, StoreSettings(), EVERYTHING)
        assert loaded is not None, f"{data} holds no logs"
        return {group: list(_entries(loaded.store.groups[group])) for group in groups}
    finally:
        disk.close()


def _entries(log: GroupLog) -> Iterator[bytes]:
    assert log.damage is None, f"group {log.group} is damaged: {log.damage}"
    index = log.first_index()
    while index <= log.last_index():
        for batch in log.entries(index, log.last_index() + 1, READ_BYTES):
            yield batch
            index += 1


def check_replicas(group: int, copies: Sequence[list[bytes]]) -> list[Record]:
    """All copies are the same; the records. At the end one may lack what it was about to write when it was killed."""
    longest = max(copies, key=len)
    for number, copy in enumerate(copies):
        for entry, mine in enumerate(copy):
            assert mine == longest[entry], f"group {group}: replica {number + 1} differs from another at entry {entry}"
    majority = sorted(map(len, copies))[len(copies) // 2]
    alone = [view for view in map(BatchView, longest[majority:]) if view.kind == DATA]
    assert not alone, f"group {group}: {sum(view.count for view in alone)} records are on one disk alone"
    found: list[Record] = []
    offset = 0
    for batch in longest:
        view = BatchView(batch)
        assert view.base_offset == offset, f"group {group}: an entry starts at {view.base_offset}, not at {offset}"
        offset = view.next_offset
        found += _records(view, len(found))
    return found


def check_promises(memory: Memory, logs: dict[int, list[Record]]) -> dict[str, int]:
    """All but the last rule of the table; figures. ``logs``: shard -> records."""
    placed: set[bytes] = set()
    repeats = 0
    for shard, log in logs.items():
        highest: dict[bytes, int] = {}
        for offset, (topic, payload) in enumerate(log):
            where = f"shard {shard}, offset {offset}: {payload[:40]!r}"
            assert memory.sent.get(payload) == shard, f"{where} was never sent to this shard"
            assert memory.shard_of(topic) == shard, f"{where} has key {topic!r} of another shard"
            assert payload not in memory.refused, f"{where} was refused with {memory.refused[payload]:#x}"
            if payload in placed:
                assert payload in memory.attempts, f"{where} is there twice, but was sent once"
                repeats += 1
                continue
            placed.add(payload)
            number = int(payload.split(b" ")[2])
            assert number > highest.get(topic, 0), f"{where} stands behind number {highest[topic]}"
            highest[topic] = number
    lost = [payload for payload in memory.acknowledged if payload not in placed]
    assert not lost, f"{len(lost)} acknowledged messages are lost, such as {sorted(lost)[:5]}"
    return {
        "sent": len(memory.sent),
        "acknowledged": len(memory.acknowledged),
        "in the logs": sum(map(len, logs.values())),
        "of these sent again": repeats,
        "refused": len(memory.refused),
    }


def check_deliveries(memory: Memory, logs: dict[int, list[Record]]) -> int:
    """The last rule of the table; how many deliveries were looked at."""
    payloads = {shard: [payload for _, payload in log] for shard, log in logs.items()}
    places: dict[int, dict[bytes, list[int]]] = {shard: {} for shard in logs}
    for shard, some in payloads.items():
        for offset, payload in enumerate(some):
            places[shard].setdefault(payload, []).append(offset)
    count = 0
    for seen in memory.seen:
        for shard, came in seen.items():
            starts = places[shard].get(came[0], [])
            log = payloads[shard]
            assert any(_is_piece(came, log, start) for start in starts), (
                f"shard {shard}: {_difference(came, log, starts)}"
            )
            count += len(came)
    return count


def _is_piece(came: list[bytes], log: list[bytes], start: int) -> bool:
    """Whether somebody who gets one publisher's messages got all of them from ``start`` on."""
    publisher = came[0].split(b" ")[0] + b" "
    wanted = (payload for payload in log[start:] if payload.startswith(publisher))
    return all(next(wanted, None) == payload for payload in came)


def _difference(came: list[bytes], log: list[bytes], starts: list[int]) -> str:
    if not starts:
        return f"{came[0][:40]!r} was delivered and is in no log"
    publisher = came[0].split(b" ")[0] + b" "
    wanted = [payload for payload in log[starts[0] :] if payload.startswith(publisher)]
    for number, (one, other) in enumerate(zip(came, wanted, strict=False)):
        if one != other:
            return f"delivery {number}: {one[:40]!r} came, {other[:40]!r} should"
    return f"{len(came)} were delivered, the log has {len(wanted)}"
