"""A query as a named cursor in the cluster: its lag is seen there, and retention waits for it.

```
 option cursor=NAME, one topic     --> cursor NAME
                     more topics   --> cursor NAME.TOPIC for each: a cursor is over one topic
 first start --> created where the query starts; each micro-batch that is done --> the cursor moves
```
Spark's checkpoint decides where a query goes on; the cursor follows it. A move that fails is made good by the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from flockmq.admin.durable_tenants_model import ReadCursor
from flockmq.client.log_client import LogClient
from flockmq.errors import FlockError, NotFound
from flockmq.spark.options import ReadOptions
from flockmq.spark.planning import Offsets, Reach, firsts

PAUSE_S: Final = 5.0
"""After a cursor could not be moved."""
COMMIT_RETRY_S: Final = 2.0
"""How long a micro-batch waits for a commit; a query does not stand still for it."""
ASKED_MAX: Final = 3
"""How often nodes are asked where a cursor stands while a shard has no leader."""
logger = logging.getLogger("flockmq.spark")


def cursor_name(options: ReadOptions, topic: str) -> str:
    """The name of the query's cursor over a topic."""
    alone = not options.pattern and len(options.topics) + len(options.assigned) == 1
    return options.cursor if alone else f"{options.cursor}.{topic}"


def positions_of(options: ReadOptions, client: LogClient, reach: Reach) -> Offsets | None:
    """Where the query's cursors stand; the start of a shard that they were not put in yet. None when there is none.

    FlockError while no node can say: a query that began at the start of a shard would read everything again.
    """
    if not options.cursor:
        return None
    found = firsts(reach)
    is_known = False
    for topic in reach:
        try:
            cursor = _known(client, cursor_name(options, topic))
        except NotFound:
            continue
        _check_topic(cursor.name, cursor.topic, topic)
        is_known = True
        for position in cursor.positions:
            if position.offset is not None and position.shard in found[topic]:
                found[topic][position.shard] = max(position.offset, found[topic][position.shard])
    return found if is_known else None


def _known(client: LogClient, name: str) -> ReadCursor:
    """A cursor whose every position is known. Nodes wait a while for leaders, each time that they are asked."""
    for _ in range(ASKED_MAX):
        cursor = client.cursor(name)
        if all(position.known for position in cursor.positions):
            return cursor
    raise FlockError(f"Cursor {name!r}: {cursor.problem} Then start the query again")


def _check_topic(name: str, actual: str, topic: str) -> None:
    if actual != topic:
        raise FlockError(
            f"Cursor {name!r} is over topic {actual!r}, and this query reads {topic!r}; choose another name in option "
            "cursor"
        )


class QueryCursors:
    """The cursors of a stream."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client = options.servers.new_client(retry_s=COMMIT_RETRY_S)
        self._known: set[str] = set()
        self._done: Offsets = {}
        self._again_at_s = 0.0

    def create(self, topics: Sequence[str]) -> None:
        """Create the cursors that are missing; an existing one stays where it stands."""
        for topic in topics:
            if topic in self._known:
                continue
            name = cursor_name(self._options, topic)
            hold = self._options.cursor_hold
            if hold is None and not self._exists(name):
                hold = True
            # An existing cursor holds as the operator has said since, unless the query says otherwise.
            cursor = self._client.create_cursor(name, topic, hold=hold)
            _check_topic(name, cursor.topic, topic)
            self._known.add(topic)

    def _exists(self, name: str) -> bool:
        try:
            self._client.cursor(name)
        except NotFound:
            return False
        return True

    def move(self, positions: Offsets) -> None:
        """Say how far the query has come; what it said before is not said again."""
        if positions == self._done or time.monotonic() < self._again_at_s:
            return
        try:
            self.create(list(positions))
            for topic, shards in positions.items():
                if shards and shards != self._done.get(topic):
                    self._client.commit(cursor_name(self._options, topic), shards)
            self._done = positions
        except FlockError as error:
            self._again_at_s = time.monotonic() + PAUSE_S
            logger.warning(
                "The cursor %r could not be moved (%s); it will be later",
                self._options.cursor,
                error,
            )
