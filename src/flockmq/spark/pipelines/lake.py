"""Tables of a lake that streaming queries append to, exactly once, in one of three formats.

```
 foreachBatch(frame, batch) --> table.append(frame, query, batch)
     was (query, batch) committed? --> nothing to do
     workers write Parquet to _flockmq/staging --> files move to date=.../topic=.../part-TAG-n.parquet, yet unseen
     one atomic step shows them all:    parquet: Spark's own list of files    delta: a version    iceberg: a snapshot
```
Workers write in parallel whatever the format; only the commit, a few kilobytes, goes through the driver. A batch that
is repeated after a crash finds its commit, or begins anew.

Why not Spark's own file sink for Parquet: its list of files can't lose files, so small ones could never be merged.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote

from flockmq.errors import FlockError
from flockmq.spark.pipelines.folders import FileEntry, Folder, open_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flockmq.spark.pipelines.lake_delta import DeltaLakeTable
    from flockmq.spark.pipelines.lake_iceberg import IcebergLakeTable
    from flockmq.spark.pipelines.lake_parquet import ParquetLakeTable

    LakeTable: TypeAlias = ParquetLakeTable | DeltaLakeTable | IcebergLakeTable

FORMATS: Final = ("parquet", "delta", "iceberg")
OURS: Final = "_flockmq"
WRITER: Final = f"{OURS}/writer.json"
BATCH: Final = f"{OURS}/batch.json"
STAGING: Final = f"{OURS}/staging"
MERGED: Final = f"{OURS}/merged"
"""Lists of files that were replaced by bigger ones: on disk until readers that began before are through."""
_PARTITION: Final = re.compile(r"([^/=]+)=([^/]*)/")


@dataclass(frozen=True, slots=True)
class Compaction:
    """What merging small files did."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0
    """Files that no query reads any more and that are off the disk now."""

    @classmethod
    def of(cls, before: Sequence[int], after: Sequence[int], removed: int) -> Compaction:
        """From the sizes of all files."""
        return cls(len(before), len(after), sum(before), sum(after), removed)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that workers wrote, in its place."""

    entry: FileEntry
    values: dict[str, str | None]
    """Of the partition columns."""


def open_table(
    kind: str, folder: str, partition_by: Sequence[str] = ("date", "topic"), name: str = "archive"
) -> LakeTable:
    """The table in a folder; it need not exist yet. ``name`` is that of an Iceberg table in its catalog."""
    if kind == "delta":
        from flockmq.spark.pipelines.lake_delta import DeltaLakeTable

        return DeltaLakeTable(folder, tuple(partition_by))
    if kind == "iceberg":
        from flockmq.spark.pipelines.lake_iceberg import IcebergLakeTable

        return IcebergLakeTable(folder, tuple(partition_by), name)
    from flockmq.spark.pipelines.lake_parquet import ParquetLakeTable

    return ParquetLakeTable(folder, tuple(partition_by))


def find_format(folder: str, spark: SparkSession | None = None) -> str:
    """In which format the table in a folder is; a folder of plain Parquet files is one, too."""
    place = open_folder(folder, spark)
    if place.files("_delta_log"):
        return "delta"
    if place.read(f"{OURS}/catalog.db.name") is not None:
        return "iceberg"
    return "parquet"


def query_id(checkpoint: str, spark: SparkSession | None = None) -> str:
    """Id of the query that has this checkpoint. Spark writes it there before the first micro-batch."""
    text = open_folder(checkpoint, spark).read("metadata")
    if text is None:
        raise FlockError(f"{checkpoint} holds no checkpoint of Spark; it may have been removed while the query ran.")
    return str(json.loads(text)["id"])


def claim(folder: Folder, query: str) -> None:
    """A folder is one query's: another one would start from its own beginning and write everything twice."""
    known = folder.read(WRITER)
    if known is None:
        folder.create(WRITER, json.dumps({"query": query}))
    elif json.loads(known)["query"] != query:
        raise FlockError(
            f"{folder.path} was written with another checkpoint, and going on with this one could write records twice; "
            "use that checkpoint again, or another folder."
        )


def tag_of(query: str, batch: int) -> str:
    """What the files of a micro-batch are named after."""
    return f"{query[:8]}-{batch:010}"


def write_files(
    frame: DataFrame, folder: Folder, tag: str, partition_by: Sequence[str], partition: str = ""
) -> list[DataFile]:
    """Let the workers write a frame, and move the files to the folders of their partitions, or of the one named."""
    staging = f"{STAGING}/{tag}"
    session = frame.sparkSession
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame.write.mode("overwrite").partitionBy(*partition_by).parquet(f"{folder.path}/{staging}")
    found: list[DataFile] = []
    for number, staged in enumerate(one for one in folder.files(staging) if one.path.endswith(".parquet")):
        inside = partition or staged.path.removeprefix(f"{staging}/").rpartition("/")[0]
        place = f"{inside}/part-{tag}-{number:05}.parquet"
        folder.move(staged.path, place)
        found.append(DataFile(FileEntry(place, staged.size, staged.modified_ms), partition_values(place)))
    folder.remove(staging)
    return found


def partition_values(path: str) -> dict[str, str | None]:
    """``date=2026-03-01/topic=a%2Fb/part.parquet`` -> the values, as Spark escaped them."""
    values = ((name, unquote(value)) for name, value in _PARTITION.findall(path))
    return {name: None if value == "__HIVE_DEFAULT_PARTITION__" else value for name, value in values}


def small_groups(files: Sequence[FileEntry], target: int) -> list[list[FileEntry]]:
    """Files below half of the target, by partition; one alone is as good as it gets."""
    groups: dict[str, list[FileEntry]] = {}
    for entry in files:
        if entry.size < target // 2:
            groups.setdefault(entry.path.rpartition("/")[0], []).append(entry)
    return [group for group in groups.values() if len(group) > 1]


def merge_files(spark: SparkSession, folder: Folder, small: Sequence[FileEntry], target: int) -> list[FileEntry]:
    """Write the rows of small files of one partition into few big ones, in the order of the log."""
    # Named one by one they are just files: columns that only the path tells neither come nor go.
    frame = spark.read.parquet(*(f"{folder.path}/{entry.path}" for entry in small))
    order = [name for name in ("partition", "offset") if name in frame.columns]
    frame = frame.coalesce(max(1, round(sum(entry.size for entry in small) / target)))
    tag = f"merge-{time.time_ns():x}"
    inside = small[0].path.rpartition("/")[0]
    files = write_files(frame.sortWithinPartitions(*order) if order else frame, folder, tag, (), inside)
    return [one.entry for one in files]


def remove_merged(folder: Folder, keep_ms: int, listed: set[str]) -> int:
    """Remove files that were merged, that no list has, and that readers had time to finish with."""
    now_ms = time.time_ns() // 1_000_000
    removed = 0
    for record in folder.files(MERGED):
        if now_ms - record.modified_ms < keep_ms:
            continue
        for path in json.loads(folder.read(record.path) or "[]"):
            if path not in listed:  # it is, when the merge did not come to its commit
                folder.remove(path)
                removed += 1
        folder.remove(record.path)
    return removed


def begin_batch(folder: Folder, query: str, batch: int) -> str:
    """Write down that a batch is tried, after cleaning up behind an earlier try; what its files are named after."""
    tag = tag_of(query, batch)
    known = folder.read(BATCH)
    if known is not None and json.loads(known)["batch"] == batch:
        remove_leftovers(folder, tag)
    folder.replace(BATCH, json.dumps({"query": query, "batch": batch}))
    return tag


def remove_leftovers(folder: Folder, tag: str) -> None:
    """Remove files of a try that did not come to its commit; the next one may make fewer."""
    for entry in folder.files(""):
        if f"/part-{tag}-" in entry.path and not entry.path.startswith("_"):
            folder.remove(entry.path)
