"""A folder of Parquet files whose list is Spark's own: plain ``spark.read.parquet(folder)`` sees whole batches only.

```
 _spark_metadata/41.compact  all files of the table: what readers that begin now read
 _spark_metadata/42.compact  created only if it is new: an append (41 + files) or a merge (41 - small files + big ones)
 _flockmq/batch.json         {query, batch, commit 42}, written before commit 42: tells a repeated batch that it is in
 _flockmq/merged/42.json     files that 42 replaced: on disk until readers that began before are through (--keep)
```
Every commit writes the whole list, which Spark calls a compacted log with interval 1. Two writers (an archive, and a
merge in another process) can't make the same commit: the second begins anew on top of the first.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from flockmq.errors import FlockError
from flockmq.spark.pipelines.folders import FileEntry, Folder, open_folder
from flockmq.spark.pipelines.lake import (
    BATCH,
    MERGED,
    Compaction,
    claim,
    merge_files,
    remove_leftovers,
    remove_merged,
    small_groups,
    tag_of,
    write_files,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTS: Final = "_spark_metadata"
LISTS_KEPT: Final = 10
COMMITS_MAX: Final = 100
"""Attempts to commit while others commit, too."""


class ParquetLakeTable:
    """See the module."""

    def __init__(self, folder: str, partition_by: tuple[str, ...]) -> None:
        self.folder = folder
        self._partition_by = partition_by

    def append(self, frame: DataFrame, query: str, batch: int) -> bool:
        """Add a micro-batch; False when it was there already."""
        place = open_folder(self.folder, frame.sparkSession)
        claim(place, query)
        tag = tag_of(query, batch)
        mark = json.loads(place.read(BATCH) or "{}")
        if mark and (mark["batch"] > batch or (mark["batch"] == batch and self._is_in(place, mark["commit"], tag))):
            return False
        if mark.get("batch") == batch:
            remove_leftovers(place, tag)
        place.replace(BATCH, json.dumps({"query": query, "batch": batch, "commit": latest_list(place) + 1}))
        added = [one.entry for one in write_files(frame, place, tag, self._partition_by)]
        if added:
            self._commit(place, added, set(), mark={"query": query, "batch": batch})
        return True

    def read(self, spark: SparkSession) -> DataFrame:
        """All rows."""
        return spark.read.parquet(self.folder)

    def small_files(self, spark: SparkSession, below: int) -> int:
        """How many files are smaller than that."""
        place = open_folder(self.folder, spark)
        return sum(entry.size < below for entry in list_files(place))

    def compact(self, spark: SparkSession, *, target: int, keep_ms: int) -> Compaction:
        """Merge small files of each partition into some of the target size, without disturbing readers."""
        place = open_folder(self.folder, spark)
        before = list_files(place)
        added: list[FileEntry] = []
        replaced: set[str] = set()
        for small in small_groups(before, target):
            added += merge_files(spark, place, small, target)
            replaced |= {entry.path for entry in small}
        if replaced:
            self._commit(place, added, replaced)
        after = list_files(place)
        removed = remove_merged(place, keep_ms, {entry.path for entry in after})
        return Compaction.of([one.size for one in before], [one.size for one in after], removed)

    def _commit(
        self, place: Folder, added: list[FileEntry], removed: set[str], mark: dict[str, Any] | None = None
    ) -> None:
        for _attempt in range(COMMITS_MAX):
            latest = latest_list(place)
            before = read_list(place, latest)
            if not removed <= {entry.path for entry in before}:
                raise FlockError(f"Files of {place.path} were merged by another process just now; nothing was done.")
            if mark is not None:
                place.replace(BATCH, json.dumps({**mark, "commit": latest + 1}))
            if removed:
                place.replace(f"{MERGED}/{latest + 1}.json", json.dumps(sorted(removed)))
            files = [entry for entry in before if entry.path not in removed] + added
            if place.create(f"{LISTS}/{latest + 1}.compact", _list_text(place, files)):
                _forget_lists(place, latest + 1)
                return
        raise FlockError(f"Other processes commit to {place.path} all the time; run one archive and one merge of it.")

    @staticmethod
    def _is_in(place: Folder, commit: int, tag: str) -> bool:
        """Whether the commit that a batch was to make is its own. An earlier one of that number lists no such file."""
        return any(f"/part-{tag}-" in entry.path for entry in read_list(place, commit))


def latest_list(place: Folder) -> int:
    """Number of the newest list; -1 when there is none."""
    return max((number for number, _path in _lists(place)), default=-1)


def list_files(place: Folder) -> list[FileEntry]:
    """Files of the table as it is now."""
    return read_list(place, latest_list(place))


def read_list(place: Folder, number: int) -> list[FileEntry]:
    """Files of the table after that commit."""
    text = place.read(f"{LISTS}/{number}.compact") if number >= 0 else None
    base = unquote(urlsplit(place.url("")).path).rstrip("/") + "/"
    found = []
    for line in (text or "").splitlines()[1:]:
        entry = json.loads(line)
        path = unquote(urlsplit(entry["path"]).path).removeprefix(base)
        found.append(FileEntry(path, entry["size"], entry["modificationTime"]))
    return found


def _list_text(place: Folder, files: list[FileEntry]) -> str:
    """A list as Spark's FileStreamSinkLog reads it."""
    lines = [
        json.dumps(
            {
                "path": place.url(entry.path),
                "size": entry.size,
                "isDir": False,
                "modificationTime": entry.modified_ms,
                "blockReplication": 1,
                "blockSize": 33_554_432,
                "action": "add",
            }
        )
        for entry in files
    ]
    return "\n".join(["v1", *lines])


def _lists(place: Folder) -> list[tuple[int, str]]:
    named = (
        (entry.path.removeprefix(f"{LISTS}/").removesuffix(".compact"), entry.path) for entry in place.files(LISTS)
    )
    return [(int(name), path) for name, path in named if name.isdigit()]


def _forget_lists(place: Folder, latest: int) -> None:
    """Readers use the newest list; the batch in progress may ask for the one that it made."""
    mark = json.loads(place.read(BATCH) or "{}")
    oldest = min(latest, mark.get("commit", latest)) - LISTS_KEPT
    for number, path in _lists(place):
        if number < oldest:
            place.remove(path)
