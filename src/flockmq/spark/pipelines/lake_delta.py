"""A Delta table without jars: workers write the files with Spark, `deltalake` writes the log.

```
 append: version of (query) in the log >= batch? --> nothing to do
         files --> one commit: add actions + transaction (query, batch)          readers see all of it or nothing
```
Reading back and merging are those of `deltalake`, too: Spark has no Delta reader of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flockmq.errors import FlockError
from flockmq.spark.pipelines.folders import open_folder
from flockmq.spark.pipelines.lake import Compaction, DataFile, begin_batch, claim, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DeltaLakeTable:
    """See the module."""

    def __init__(self, folder: str, partition_by: tuple[str, ...]) -> None:
        self.folder = folder
        self._partition_by = partition_by
        needs_lake("deltalake")

    def append(self, frame: DataFrame, query: str, batch: int) -> bool:
        """See ParquetLakeTable."""
        place = open_folder(self.folder, frame.sparkSession)
        claim(place, query)
        table = self._table()
        known = None if table is None else table.transaction_version(query)
        if known is not None and known >= batch:
            return False
        tag = begin_batch(place, query, batch)
        files = write_files(frame, place, tag, self._partition_by)
        if files:
            self._commit(frame, table, [_action(one) for one in files], query, batch)
        return True

    def read(self, spark: SparkSession) -> DataFrame:
        """See ParquetLakeTable. The files of the newest version, read by Spark."""
        table = self._table()
        if table is None:
            raise FlockError(f"{self.folder} holds no Delta table.")
        base = open_folder(self.folder, spark).path
        return spark.read.option("basePath", base).parquet(*table.file_uris())

    def small_files(self, _spark: SparkSession, /, below: int) -> int:
        """See ParquetLakeTable."""
        return sum(size < below for size in self._sizes())

    def compact(self, _spark: SparkSession, /, *, target: int, keep_ms: int) -> Compaction:
        """See ParquetLakeTable."""
        from datetime import timedelta

        table = self._table()
        if table is None:
            return Compaction()
        before = self._sizes()
        table.optimize.compact(target_size=target)
        hours = timedelta(milliseconds=keep_ms) // timedelta(hours=1)
        removed = table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)
        after = self._sizes()
        return Compaction.of(before, after, len(removed))

    def _commit(self, frame: DataFrame, table: Any, actions: list[Any], query: str, batch: int) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import create_table_with_add_actions
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = Schema.from_arrow(to_arrow_schema(frame.schema.toNullable(), timezone="UTC"))
        once = CommitProperties(app_transactions=[Transaction(query, batch)])
        keys = list(self._partition_by)
        if table is None:
            create_table_with_add_actions(self.folder, schema, actions, "error", keys, commit_properties=once)
        else:
            table.create_write_transaction(actions, "append", schema, keys, commit_properties=once)

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.folder) if DeltaTable.is_deltatable(self.folder) else None

    def _sizes(self) -> list[int]:
        import pyarrow as pa

        table = self._table()
        if table is None:
            return []
        sizes: list[int] = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()
        return sizes


def _action(file: DataFile) -> Any:
    from deltalake.transaction import AddAction

    entry = file.entry
    return AddAction(entry.path, entry.size, file.values, entry.modified_ms, data_change=True, stats=json.dumps({}))


def needs_lake(package: str) -> None:
    """Refuse with what to do where a library isn't installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise FlockError(f"This format needs {package}, which is not there; get it with: pip install 'flockmq[lake]'")
