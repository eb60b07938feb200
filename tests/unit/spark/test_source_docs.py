"""The page about options names all of them, and all columns."""

from __future__ import annotations

from pathlib import Path

from flockmq.spark.options import ALIASES, NAMES
from flockmq.spark.schema import COLUMNS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark-options.md"


def test_every_option_and_column_is_described() -> None:
    text = PAGE.read_text("utf-8")
    for name in [*NAMES, *ALIASES, *COLUMNS]:
        if name != "path":  # what Spark makes of load("plant")
            assert f"`{name}`" in text, name
