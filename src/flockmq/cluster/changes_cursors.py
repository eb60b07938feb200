"""Commands about cursors: named readers of a topic, whose positions are state of the topic's partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from flockmq.cluster.changes_topics import topic_of_users
from flockmq.cluster.checks import CURSORS_MAX, check_name
from flockmq.cluster.commands import EXISTS, LIMIT, RefusedError
from flockmq.cluster.model import CursorRecord
from flockmq.cluster.tables import key_of

if TYPE_CHECKING:
    from flockmq.cluster.commands import CreateCursor, DeleteCursor
    from flockmq.cluster.tables import Tables


def create_cursor(tables: Tables, command: CreateCursor, wall_ms: int) -> CursorRecord:
    """A named reader of a topic."""
    check_name("cursor", command.name)
    tables.namespace(command.namespace)
    topic_of_users(tables, command.namespace, command.topic)
    key = key_of(command.namespace, command.name)
    known = tables.cursors.get(key)
    if known is not None and known.topic != command.topic:
        raise RefusedError(
            EXISTS, f"The cursor {command.name} reads the topic {known.topic}; choose another name, or delete it."
        )
    if known is None and len(tables.cursors) >= CURSORS_MAX:
        raise RefusedError(LIMIT, f"There are {CURSORS_MAX} cursors, which is the most; delete one first.")
    hold = command.hold
    if hold is None:
        hold = known is not None and known.hold
    created_ms, created_index = (wall_ms, tables.index) if known is None else (known.created_ms, known.created_index)
    record = CursorRecord(command.namespace, command.name, command.topic, hold, created_ms, created_index)
    if record != known:
        tables.cursors[key] = record
        tables.versions = replace(tables.versions, cursors=tables.index)
    return record


def delete_cursor(tables: Tables, command: DeleteCursor) -> CursorRecord:
    """The reader will not come back."""
    known = tables.cursor(command.namespace, command.name)
    del tables.cursors[key_of(command.namespace, command.name)]
    tables.versions = replace(tables.versions, cursors=tables.index)
    return known
