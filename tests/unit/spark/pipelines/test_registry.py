from __future__ import annotations

import subprocess
import sys

import pytest

from flockmq.errors import FlockError
from flockmq.spark.pipelines.parameters import defaults
from flockmq.spark.pipelines.registry import find, pipelines

HEAVY = ("pyspark", "pyarrow", "pandas", "matplotlib", "deltalake", "pyiceberg")


def test_pipelines_describe_themselves_without_spark() -> None:
    program = (
        "import sys; from flockmq.spark.pipelines.registry import pipelines; names = [p.name for p in pipelines()];"
        f"print(names, sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "'archive'" in printed
    assert printed.rstrip().endswith("[]"), f"a pipeline imports these at its top: {printed}"


def test_names_and_defaults_make_sense() -> None:
    for pipeline in pipelines():
        assert find(pipeline.name) is pipeline
        names = [one.name for one in pipeline.parameters]
        assert len(names) == len(set(names))
        assert all(name == name.lower() and "_" not in name for name in names)
        assert defaults(pipeline.parameters).keys() == set(names)
        assert all(one.help.endswith(".") for one in pipeline.parameters)
        assert pipeline.summary.endswith(".")


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(FlockError, match="did you mean archive"):
        find("archiv")
    with pytest.raises(FlockError, match="there are archive"):
        find("xyzzy")
