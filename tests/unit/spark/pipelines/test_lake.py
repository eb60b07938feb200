"""What tables decide without Spark: lists of files, what is merged, who may write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flockmq.errors import FlockError
from flockmq.spark.pipelines.folders import FileEntry, LocalFolder, open_folder
from flockmq.spark.pipelines.lake import (
    MERGED,
    begin_batch,
    claim,
    find_format,
    partition_values,
    query_id,
    remove_merged,
    small_groups,
)
from flockmq.spark.pipelines.lake_parquet import LISTS, ParquetLakeTable, latest_list, list_files


@pytest.fixture
def place(tmp_path: Path) -> LocalFolder:
    return LocalFolder(str(tmp_path / "a lake"))


def test_files_appear_whole_and_only_once(place: LocalFolder) -> None:
    assert place.read("x/one") is None
    assert place.files("") == []
    assert place.create("x/one", "1")
    assert not place.create("x/one", "2")
    place.replace("x/two", "22")
    place.replace("x/two", "333")
    place.move("x/two", "y=a%2Fb/two")
    assert [(entry.path, entry.size) for entry in place.files("")] == [("x/one", 1), ("y=a%2Fb/two", 3)]
    assert place.url("y=a%2Fb/two").endswith("/a%20lake/y%3Da%252Fb/two")
    place.remove("y=a%2Fb")
    place.remove("nothing")
    assert [entry.path for entry in place.files("")] == ["x/one"]


def test_a_url_needs_a_driver() -> None:
    with pytest.raises(FlockError, match="Spark Connect"):
        open_folder("s3a://bucket/lake")
    assert isinstance(open_folder("file:///tmp/a%20b"), LocalFolder)
    assert open_folder("file:///tmp/a%20b").path == "/tmp/a b"


def test_a_commit_takes_files_on_and_off_the_list(place: LocalFolder) -> None:
    table = ParquetLakeTable(place.path, ("date",))
    first, second, merged = (FileEntry(f"date=1/topic=a%2Fb/{name}", 10, 5) for name in ("1", "2", "m"))
    table._commit(place, [first], set())
    table._commit(place, [second], set())
    assert list_files(place) == [first, second]
    table._commit(place, [merged], {first.path, second.path})
    assert list_files(place) == [merged]
    with pytest.raises(FlockError, match="another process"):
        table._commit(place, [merged], {first.path})
    assert latest_list(place) == 2
    text = place.read(f"{LISTS}/2.compact") or ""
    assert text.splitlines()[0] == "v1"
    assert json.loads(text.splitlines()[1])["action"] == "add"


def test_old_lists_are_forgotten_but_not_the_one_of_the_batch(place: LocalFolder) -> None:
    table = ParquetLakeTable(place.path, ("date",))
    for number in range(15):
        table._commit(place, [FileEntry(f"date=1/{number}", 1, 1)], set(), mark={"query": "q", "batch": number})
    assert len(place.files(LISTS)) == 11
    for number in range(15, 40):  # merges by others; the batch has not been told yet that it is in
        table._commit(place, [FileEntry(f"date=1/{number}", 1, 1)], set())
    assert place.read(f"{LISTS}/14.compact") is not None


def test_small_files_are_merged_by_partition() -> None:
    files = [FileEntry(path, size, 0) for path, size in (("a/1", 10), ("a/2", 49), ("a/3", 50), ("b/1", 1))]
    assert [[entry.path for entry in group] for group in small_groups(files, 100)] == [["a/1", "a/2"]]


def test_merged_files_stay_for_a_while(place: LocalFolder) -> None:
    place.replace("a/1", "")
    place.replace("a/2", "")
    place.replace(f"{MERGED}/7.json", json.dumps(["a/1", "a/2"]))
    assert remove_merged(place, 3_600_000, set()) == 0
    assert remove_merged(place, 0, {"a/2"}) == 1
    assert [entry.path for entry in place.files("")] == ["a/2"]


def test_a_second_try_of_a_batch_finds_nothing_of_the_first(place: LocalFolder) -> None:
    tag = begin_batch(place, "query-1", 3)
    place.replace(f"date=1/part-{tag}-00000.parquet", "")
    place.replace("date=1/part-query-1-0000000002-00000.parquet", "")
    assert begin_batch(place, "query-1", 3) == tag
    assert [entry.path for entry in place.files("date=1")] == ["date=1/part-query-1-0000000002-00000.parquet"]


def test_a_table_is_one_querys(place: LocalFolder) -> None:
    claim(place, "one")
    claim(place, "one")
    with pytest.raises(FlockError, match="another checkpoint"):
        claim(place, "two")


def test_the_id_of_a_query_is_in_its_checkpoint(place: LocalFolder) -> None:
    with pytest.raises(FlockError, match="no checkpoint"):
        query_id(place.path)
    place.replace("metadata", '{"id":"1-2-3"}')
    assert query_id(place.path) == "1-2-3"


def test_values_of_partitions() -> None:
    path = "date=2026-03-01/topic=a%2Fb c/part-1.parquet"
    assert partition_values(path) == {"date": "2026-03-01", "topic": "a/b c"}
    assert partition_values("date=__HIVE_DEFAULT_PARTITION__/x") == {"date": None}


def test_formats_are_known_by_their_files(place: LocalFolder) -> None:
    assert find_format(place.path) == "parquet"
    place.replace("_delta_log/0.json", "")
    assert find_format(place.path) == "delta"
