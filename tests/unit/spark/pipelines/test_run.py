from __future__ import annotations

from pathlib import Path

import pytest

from flockmq.spark.pipelines.run import plain
from flockmq.spark.pipelines.summary import Summary, Table


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[STREAM_FAILED] Query failed\nTraceback:\nflockmq.errors.FlockError: No node answers.\n\nJVM: at x",
            "No node answers.",
        ),
        ("Traceback:\nflockmq.errors.OffsetGone: Records 3 to 5 are gone.\nJVM: at x", "Records 3 to 5 are gone."),
        ("flockmq.client.transport.UnreachableError: Is it running?", "Is it running?"),
        ("\n  [PATH_NOT_FOUND] Path does not exist.\nmore", "[PATH_NOT_FOUND] Path does not exist."),
        ("", "it did not say why"),
    ],
)
def test_errors_of_spark_become_one_sentence(text: str, sentence: str) -> None:
    assert plain(text) == sentence


def test_a_summary_for_programs(tmp_path: Path) -> None:
    summary = Summary("archive")
    summary.add("rows a second", 3)
    summary.tables.append(Table("By topic", ["Topic", "Bytes (MB)"], [["a", 1.5]]))
    summary.files.append(str(tmp_path))
    assert summary.to_json() == {
        "title": "archive",
        "rows_a_second": 3,
        "tables": {"by_topic": [{"topic": "a", "bytes_mb": 1.5}]},
        "files": [str(tmp_path)],
    }
