"""What a task does: reads its ranges from whichever replica serves them, and hands Arrow to Spark.

```
 FlockPartition: range, range, ... --> LogClient.read(from offset on) --> Decoder --> RecordBatch --> Spark
                                          |-- a replica is away, behind: the client goes on with another
                                          |-- OffsetGone: failOnDataLoss says whether that is an error
                                          `-- BeyondEnd: this is another log than the one that was planned
```
What comes next is fetched while Spark takes what came before.
Connections stay open between the tasks of a worker process.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from flockmq.admin.durable_model import READ_BYTES_MAX
from flockmq.client.failover import Patience
from flockmq.client.log_client import LogClient
from flockmq.cluster.filters import namespace_prefix
from flockmq.errors import BeyondEnd, FlockError, OffsetGone
from flockmq.mqtt.topics import matches
from flockmq.spark.arrow import Decoder
from flockmq.spark.options import ReadOptions
from flockmq.spark.planning import FlockPartition, Range
from flockmq.spark.schema import arrow_schema
from flockmq.spark.servers import RETRY_S

RECORD_BYTES: Final = 160
"""How long a record is taken to be before one was seen."""
READ_BYTES_MIN: Final = 128 * 1024
WAIT_MS: Final = 1_000
"""How long a replica may take to have what others have."""
logger = logging.getLogger("flockmq.spark")


class Fetched(NamedTuple):
    """Batches of a range from an offset on, as a node sent them."""

    range: Range
    offset: int
    data: bytes


class TaskReader:
    """What the readers of streams and of tables have in common: Spark pickles them into tasks, which ``read``."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self._schema = schema
        self.want(())

    def want(self, names: tuple[str, ...]) -> None:
        """Read only these topic names, where there are any: of predicates that were pushed down."""
        self._filters = names or self.options.filters
        self._decoder = Decoder(
            arrow_schema(self._schema),
            prefix=namespace_prefix(self.options.servers.namespace),
            wanted=wanted_names(self.options.filters, names),
            template=self.options.template,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        if not isinstance(partition, FlockPartition):
            return  # Spark's own, where there is nothing to read
        _settle()
        with plain_errors():
            for found in ahead(self._fetch(self.options.servers.client(), partition.ranges)):
                yield from self._decoder.decode(found.data, found.offset, found.range.end, found.range)

    def _fetch(self, client: LogClient, ranges: Sequence[Range]) -> Iterator[Fetched]:
        """The batches of all ranges, as many at once as a range needs or an answer may hold."""
        for one in ranges:
            offset = one.start
            record_bytes = float(RECORD_BYTES)
            patience: Patience | None = None
            while offset < one.end:
                wanted = int((one.end - offset) * record_bytes * 1.1)
                try:
                    found = client.read(
                        one.topic,
                        one.shard,
                        offset,
                        max_bytes=min(READ_BYTES_MAX, max(READ_BYTES_MIN, wanted)),
                        wait_ms=WAIT_MS,
                        filters=self._filters,
                        read_from=self.options.read_from,
                    )
                except OffsetGone as error:
                    report_loss(self.options, one.topic, one.shard, offset, min(error.first, one.end))
                    offset = error.first if error.first > offset else one.end
                    continue
                except BeyondEnd as error:
                    raise error.telling(_stuck(one, offset, error.end)) from None
                if found.data:
                    yield Fetched(one, offset, found.data)
                    record_bytes = len(found.data) / max(1, found.next_offset - found.views[0].base_offset)
                if found.next_offset > offset:
                    offset = found.next_offset
                    patience = None
                    continue
                if patience is None:
                    patience = Patience(self.options.servers.retries * RETRY_S)
                elif patience.is_over():
                    raise BeyondEnd(found.end_offset).telling(_stuck(one, offset, found.end_offset))


def ahead(items: Iterator[Fetched]) -> Iterator[Fetched]:
    """The same items; each is made in a thread while the one before it is worked on."""
    item = next(items, None)
    if item is None:
        return
    with ThreadPoolExecutor(1, "ahead") as thread:
        while item is not None:
            following = thread.submit(next, items, None)
            yield item
            item = following.result()


def wanted_names(filters: tuple[str, ...], names: tuple[str, ...]) -> Callable[[str], bool] | None:
    """Which topic names come out of a query; None for all."""
    if not filters and not names:
        return None
    encoded = [one.encode() for one in filters]
    exact = frozenset(names)

    def wanted(name: str) -> bool:
        if exact and name not in exact:
            return False
        topic = name.encode()
        return not encoded or any(matches(one, topic) for one in encoded)

    return wanted


def report_loss(options: ReadOptions, topic: str, shard: int, start: int, end: int) -> None:
    """Records are gone that the query should have read: an error, or a line in the log."""
    sentence = (
        f"Records {start:,} to {end - 1:,} of shard {shard} of topic {topic!r} are gone, {end - start:,} in all: "
        "retention removed them before this query read them"
    )
    if options.fail_on_data_loss:
        raise OffsetGone(end).telling(
            f"{sentence}; to go on without them set failOnDataLoss=false, and to keep it from happening give the topic "
            "a longer retention or the query a cursor, which holds retention"
        )
    logger.warning("%s; going on at %s as failOnDataLoss=false says", sentence, f"{end:,}")


def _stuck(one: Range, offset: int, end_offset: int) -> str:
    return (
        f"Shard {one.shard} of topic {one.topic!r} ends at offset {end_offset:,} and the query wants to read from "
        f"{offset:,} to {one.end:,}: the topic was deleted and created again, or its nodes lost their disks; start the "
        "query anew with another checkpoint"
    )


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Let people read our sentence and not where in our code it was raised. The process ends with such an error."""
    try:
        yield
    except FlockError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error from None


_settled = False


def _settle() -> None:
    """Once per worker process: what was imported is never garbage; looking at it again and again took 80 ms a task."""
    global _settled  # noqa: PLW0603
    if not _settled:
        _settled = True
        gc.freeze()
