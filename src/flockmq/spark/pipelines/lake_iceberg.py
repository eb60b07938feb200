"""An Iceberg table without jars: workers write the files with Spark, `pyiceberg` makes the snapshots.

```
 append: a snapshot says flockmq-query, flockmq-batch >= ours? --> nothing to do
         files --> add_files: one snapshot with both properties           readers see all of it or nothing
```
The catalog is a SQLite file in the table's folder. Files hold all columns, those of the partition, too: Iceberg finds
the partition of a file in its statistics, not in its path.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flockmq.errors import FlockError
from flockmq.spark.pipelines.folders import FileEntry, LocalFolder, open_folder
from flockmq.spark.pipelines.lake import (
    MERGED,
    OURS,
    Compaction,
    begin_batch,
    claim,
    merge_files,
    remove_merged,
    small_groups,
    write_files,
)
from flockmq.spark.pipelines.lake_delta import needs_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMESPACE: Final = "flockmq"
QUERY: Final = "flockmq-query"
BATCH: Final = "flockmq-batch"
MARK: Final = f"{OURS}/catalog.db.name"
_COPY: Final = "in_"
"""Spark takes the columns of a partition out of its files, so copies of them name the folders."""


class IcebergLakeTable:
    """See the module."""

    def __init__(self, folder: str, partition_by: tuple[str, ...], name: str) -> None:
        needs_lake("pyiceberg")
        self.folder = folder
        self._partition_by = partition_by
        self._name = f"{NAMESPACE}.{name}"

    def append(self, frame: DataFrame, query: str, batch: int) -> bool:
        """See ParquetLakeTable."""
        place = self._place(frame.sparkSession)
        claim(place, query)
        table = self._table(frame)
        last = _last_batch(table)
        if last.get(QUERY) == query and int(last[BATCH]) >= batch:
            return False
        tag = begin_batch(place, query, batch)
        copies = {f"{_COPY}{name}": frame[name] for name in self._partition_by}
        files = write_files(frame.withColumns(copies), place, tag, list(copies))
        if files:
            properties = {QUERY: query, BATCH: str(batch)}
            urls = _urls(place, [one.entry for one in files])
            table.add_files(urls, snapshot_properties=properties, check_duplicate_files=False)
        return True

    def read(self, spark: SparkSession) -> DataFrame:
        """See ParquetLakeTable. The files of the newest snapshot, read by Spark."""
        paths = [task.file.file_path for task in self._open().scan().plan_files()]
        return spark.read.parquet(*paths)

    def small_files(self, spark: SparkSession, below: int) -> int:
        """See ParquetLakeTable."""
        return sum(entry.size < below for entry in _entries(self._place(spark), self._open()))

    def compact(self, spark: SparkSession, *, target: int, keep_ms: int) -> Compaction:
        """See ParquetLakeTable."""
        from pyiceberg.table import _parquet_files_to_data_files

        place = self._place(spark)
        table = self._open()
        before = _entries(place, table)
        by_path = {_relative(place, task.file.file_path): task.file for task in table.scan().plan_files()}
        groups = small_groups(before, target)
        if groups:
            replaced = [entry.path for group in groups for entry in group]
            place.replace(f"{MERGED}/{table.metadata.last_sequence_number + 1}.json", json.dumps(replaced))
            added = [entry for group in groups for entry in merge_files(spark, place, group, target)]
            with table.transaction() as change:
                new = _parquet_files_to_data_files(change.table_metadata, _urls(place, added), table.io)
                # The newest snapshot has to say which batch was the last: older ones are forgotten in time.
                with change.update_snapshot(snapshot_properties=_last_batch(table)).overwrite() as snapshot:
                    for path in replaced:
                        snapshot.delete_data_file(by_path[path])
                    for file in new:
                        snapshot.append_data_file(file)
            table.refresh()
        moment = datetime.now(UTC) - timedelta(milliseconds=keep_ms)
        table.maintenance.expire_snapshots().older_than(moment).commit()
        after = _entries(place, table)
        removed = remove_merged(place, keep_ms, {entry.path for entry in after})
        return Compaction.of([one.size for one in before], [one.size for one in after], removed)

    def _place(self, spark: SparkSession) -> LocalFolder:
        place = open_folder(self.folder, spark)
        if not isinstance(place, LocalFolder):
            raise FlockError(f"{self.folder} is no disk: the catalog of --format iceberg is a SQLite file, use a path.")
        return place

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        folder = Path(self.folder).absolute()
        (folder / OURS).mkdir(parents=True, exist_ok=True)
        catalog = SqlCatalog("flockmq", uri=f"sqlite:///{folder / OURS / 'catalog.db'}", warehouse=folder.as_uri())
        catalog.create_namespace_if_not_exists(NAMESPACE)
        return catalog

    def _open(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog().load_table(self._name)
        except NoSuchTableError:
            raise FlockError(f"{self.folder} holds no Iceberg table {self._name}.") from None

    def _table(self, frame: DataFrame) -> Any:
        from pyiceberg.transforms import IdentityTransform
        from pyspark.sql.pandas.types import to_arrow_schema

        catalog = self._catalog()
        if catalog.table_exists(self._name):
            return catalog.load_table(self._name)
        schema = to_arrow_schema(frame.schema.toNullable(), timezone="UTC")
        table = catalog.create_table(self._name, schema, location=Path(self.folder).absolute().as_uri())
        with table.update_spec() as spec:
            for name in self._partition_by:
                spec.add_field(name, IdentityTransform(), name)
        LocalFolder(self.folder).replace(MARK, self._name)
        return table


def _last_batch(table: Any) -> dict[str, str]:
    """Query and number of the last batch that is in."""
    for snapshot in reversed(table.snapshots()):
        if snapshot.summary is not None and snapshot.summary.get(BATCH) is not None:
            return {QUERY: str(snapshot.summary[QUERY]), BATCH: str(snapshot.summary[BATCH])}
    return {}


def _urls(place: LocalFolder, files: list[FileEntry]) -> list[str]:
    """Files as Iceberg names them: a scheme and the plain path, nothing escaped."""
    return [f"file://{place.path}/{entry.path}" for entry in files]


def _relative(place: LocalFolder, url: str) -> str:
    return url.removeprefix("file://").removeprefix(f"{place.path}/")


def _entries(place: LocalFolder, table: Any) -> list[FileEntry]:
    files = [task.file for task in table.scan().plan_files()]
    return [FileEntry(_relative(place, one.file_path), one.file_size_in_bytes, 0) for one in files]
