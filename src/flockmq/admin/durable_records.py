"""Batches as records for people: names are read once per batch, the columns once each, then row by row."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flockmq.admin.durable_model import LogRecord
from flockmq.admin.model import UserProperty
from flockmq.admin.moments import rfc3339
from flockmq.cluster.filters import namespace_prefix
from flockmq.log.batch import DATA, BatchView
from flockmq.log.columns import QOS_MASK, RETAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flockmq.cluster.wanted_names import WantedNames
    from flockmq.log.columns import Columns


def batch_views(data: bytes) -> Iterator[BatchView]:
    """The batches that lie end to end in ``data``."""
    position = 0
    while position < len(data):
        view = BatchView(data, position)
        yield view
        position = view.end


def records_of(
    namespace: str, views: Iterable[BatchView], offset: int, limit: int, wanted: WantedNames | None = None
) -> list[LogRecord]:
    """Records from an offset on, at most ``limit``, of wanted names."""
    prefix = namespace_prefix(namespace)
    found: list[LogRecord] = []
    for view in views:
        if view.kind == DATA and view.count:
            first = max(offset - view.base_offset, 0)
            rows = list(range(view.count)) if wanted is None else view.select(wanted.wants)
            rows = [row for row in rows if row >= first]
            found += _rows(view, rows[: limit - len(found)], prefix)
        if len(found) >= limit:
            break
    return found


def _rows(view: BatchView, wanted: Iterable[int], prefix: bytes) -> list[LogRecord]:
    columns = view.columns()
    data, spans = columns.data, columns.spans
    count = view.count
    topics = [_text(name.removeprefix(prefix)) for name in view.topics()]
    clients = [_text(name.removeprefix(prefix)) for name in view.clients()]
    topic = struct.unpack_from(f"<{count}i", data, spans["topic"][0])
    client = struct.unpack_from(f"<{count}i", data, spans["client"][0])
    times = view.timestamps()
    flags = spans["flags"][0]
    payloads = _Binary(columns, "payload", count)
    keys = _Binary(columns, "key", count) if "key.validity" in spans else None
    users = _Users(columns, count) if "user.offsets" in spans else None
    rows = []
    for at in wanted:
        payload = payloads.item(at)
        text = _utf8(payload)
        has_key = keys is not None and bool(data[spans["key.validity"][0] + (at >> 3)] >> (at & 7) & 1)
        rows.append(
            LogRecord(
                offset=view.base_offset + at,
                timestamp_at=rfc3339(times[at]),
                topic=topics[topic[at]],
                client=clients[client[at]],
                qos=data[flags + at] & QOS_MASK,
                retain=bool(data[flags + at] & RETAIN),
                key=_text(keys.item(at)) if has_key and keys is not None else None,
                payload=text,
                payload_base64=None if text is not None else base64.b64encode(payload).decode("ascii"),
                user_properties=users.item(at) if users is not None else [],
            )
        )
    return rows


class _Binary:
    """A column of byte strings."""

    def __init__(self, columns: Columns, name: str, count: int) -> None:
        self._data = columns.data
        self._start = columns.spans[name + ".bytes"][0]
        self._ends: tuple[int, ...] = struct.unpack_from(
            f"<{count + 1}i", columns.data, columns.spans[name + ".offsets"][0]
        )

    def item(self, at: int) -> bytes:
        return self._data[self._start + self._ends[at] : self._start + self._ends[at + 1]]


class _Users:
    """The column of user properties."""

    def __init__(self, columns: Columns, count: int) -> None:
        self._ends: tuple[int, ...] = struct.unpack_from(
            f"<{count + 1}i", columns.data, columns.spans["user.offsets"][0]
        )
        pairs = self._ends[-1]
        self._names = _Binary(columns, "user.key", pairs)
        self._values = _Binary(columns, "user.value", pairs)

    def item(self, at: int) -> list[UserProperty]:
        pairs = range(self._ends[at], self._ends[at + 1])
        return [UserProperty(_text(self._names.item(pair)), _text(self._values.item(pair))) for pair in pairs]


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
