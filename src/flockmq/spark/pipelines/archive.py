"""``archive``: durable topics to a lake, partitioned by date and topic, exactly once, small files merged.

```
 topics --> readStream("flockmq") --> date of each record --> foreachBatch: table.append(frame, query, batch)
                                                                   `-- many small files: table.compact, in between
```
How the formats commit is in lake.py. Merging runs between two micro-batches of the same query, so it waits for none.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.spark.pipelines.lake import FORMATS, open_table, query_id
from flockmq.spark.pipelines.parameters import Kind, Parameter
from flockmq.spark.pipelines.registry import Pipeline
from flockmq.spark.pipelines.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flockmq.spark.pipelines.lake import LakeTable
    from flockmq.spark.pipelines.run import Job

COMPACT: Final = ("auto", "never", "only")
PARAMETERS: Final = (
    Parameter("topic", Kind.LIST, None, "Durable topics to archive, separated by commas."),
    Parameter("lake", Kind.PATH, None, "Folder or URL of the table.", required=True),
    Parameter("format", Kind.CHOICE, "parquet", "Format of the table.", choices=FORMATS),
    Parameter("filter", Kind.TEXT, None, "Only MQTT topic names that match these filters."),
    Parameter("columns", Kind.TEXT, None, "Template whose parts become columns, like plant/{site}/{line:int}/+."),
    Parameter("from", Kind.CHOICE, "earliest", "Where a first run begins.", choices=("earliest", "latest")),
    Parameter("cursor", Kind.TEXT, None, "Name of a cursor that shows its lag and holds retention."),
    Parameter("every", Kind.DURATION, "10s", "Time between commits while it runs."),
    Parameter("batch-size", Kind.SIZE, "256MB", "Most bytes of one commit."),
    Parameter("compact", Kind.CHOICE, "auto", "Merge small files: as they gather, not at all, or only that.", COMPACT),
    Parameter("file-size", Kind.SIZE, "128MB", "Size that files are merged to."),
    Parameter("small-files", Kind.INTEGER, "50", "Merge when so many small files have gathered.", minimum=2),
    Parameter("keep", Kind.DURATION, "1h", "How long merged files stay on disk for queries that read them."),
)


class Committer:
    """What is done with each micro-batch. It may run in another process (Spark Connect): plain values only."""

    def __init__(self, table: LakeTable, checkpoint: str, *, small_files: int, file_size: int, keep_ms: int) -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._small_files = small_files
        self._file_size = file_size
        self._keep_ms = keep_ms
        self._since = small_files  # the first batch of a run looks: runs may be short

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Append, and merge when enough small files have gathered."""
        spark = frame.sparkSession
        self._table.append(frame, query_id(self._checkpoint, spark), batch)
        self._since += 1
        if not self._small_files or self._since < self._small_files // 4:
            return  # a batch adds few files; counting them all reads the whole list
        self._since = 0
        if self._table.small_files(spark, self._file_size // 2) >= self._small_files:
            self._table.compact(spark, target=self._file_size, keep_ms=self._keep_ms)


def run(job: Job) -> Summary:
    """See the module."""
    from pyspark.sql import functions as F  # noqa: N812  (PySpark's usual name)

    values = job.values
    out = values.text("lake")
    table = open_table(values.text("format"), out)
    if values.text("compact") == "only":
        return _compact_only(job, table)
    if "topic" not in values:
        raise FlockError("Name what to archive with --topic; `flockmq topic list` shows the durable topics.")
    options = {
        "subscribe": ",".join(values.texts("topic")),
        "startingOffsets": values.text("from"),
        "maxBytesPerTrigger": str(values.integer("batch-size")),
        **{
            option: values.text(name)
            for option, name in (("topicFilter", "filter"), ("columns", "columns"), ("cursor", "cursor"))
            if name in values
        },
    }
    frame = job.read_stream(**options).withColumn("date", F.to_date("timestamp"))
    committer = Committer(
        table,
        job.checkpoint("archive", beside=out),
        small_files=values.integer("small-files") if values.text("compact") == "auto" else 0,
        file_size=values.integer("file-size"),
        keep_ms=values.integer("keep"),
    )
    query = job.start(
        frame.writeStream.foreachBatch(committer), "archive", beside=out, every_ms=values.integer("every")
    )
    tally = job.follow(query)[0]
    summary = Summary(f"Archived {tally.rows:,} records of {options['subscribe']} to {out}")
    summary.add("records", tally.rows)
    summary.add("batches", tally.batches)
    summary.add("lag", tally.lag)
    summary.add("seconds", round(job.elapsed_s, 1))
    summary.add("trigger ms (median)", tally.trigger_ms_median)
    summary.files.append(out)
    return summary


def _compact_only(job: Job, table: LakeTable) -> Summary:
    begun_s = time.monotonic()
    job.say(f"Merging small files of {table.folder} ...")
    done = table.compact(job.spark, target=job.values.integer("file-size"), keep_ms=job.values.integer("keep"))
    summary = Summary(f"Merged small files of {table.folder}")
    summary.add("files before", done.files_before)
    summary.add("files after", done.files_after)
    summary.add("bytes before", done.bytes_before)
    summary.add("bytes after", done.bytes_after)
    summary.add("old files removed", done.removed)
    summary.add("seconds", round(time.monotonic() - begun_s, 1))
    summary.files.append(table.folder)
    return summary


PIPELINE: Final = Pipeline(
    name="archive",
    summary="Durable topics to a lake: Parquet, Delta or Iceberg by date and topic, exactly once.",
    parameters=PARAMETERS,
    run=run,
    example="flockmq pipeline run archive --topic factory --lake lake --once",
)
