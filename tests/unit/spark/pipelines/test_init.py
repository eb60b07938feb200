"""The project that ``flockmq pipeline init`` makes, without Spark."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from flockmq.errors import FlockError
from flockmq.spark.pipelines.init import TEMPLATE, make_project
from flockmq.spark.pipelines.project_run import settings


def test_a_project_has_a_readme_a_program_a_spec_and_transformations(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "plant"
    files = make_project(folder)
    names = {str(path.relative_to(folder)) for path in files}
    assert {
        "README.md",
        "run.py",
        "spark-pipeline.yml",
        "transformations/bronze.py",
        "transformations/gold.sql",
    } <= names
    assert all(path.is_file() for path in files)
    assert not [path for path in files if "@NAME@" in path.read_text() or "@STORAGE@" in path.read_text()]
    for path in files:
        if path.suffix == ".py":
            ast.parse(path.read_text())


def test_the_spec_has_absolute_paths_and_settings_for_every_transformation(tmp_path: Path) -> None:
    make_project(tmp_path / "plant")
    spec = yaml.safe_load((tmp_path / "plant" / "spark-pipeline.yml").read_text())
    assert spec["name"] == "plant"
    assert spec["storage"] == f"file://{tmp_path}/plant/state"
    assert all(isinstance(value, str) for value in spec["configuration"].values())
    code = "".join(path.read_text() for path in (tmp_path / "plant" / "transformations").iterdir())
    for name in spec["configuration"]:
        assert f'"{name}"' in code or f"${{{name}}}" in code, name


def test_tables_and_their_catalog_are_in_the_folder_wherever_it_is_run_from(tmp_path: Path) -> None:
    told = settings(tmp_path)
    assert told["spark.sql.catalogImplementation"] == "hive"
    assert told["spark.sql.warehouse.dir"] == f"file://{tmp_path}/tables"
    assert str(tmp_path / "catalog") in told["spark.hadoop.javax.jdo.option.ConnectionURL"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(FlockError, match="not empty"):
        make_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["my plant", "100%", "größe"])
def test_a_path_that_spark_would_write_in_another_way_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FlockError, match="letters, digits"):
        make_project(tmp_path / name / "plant")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FlockError, match="can't be written"):
        make_project(tmp_path / "file" / "inside")


def test_the_template_is_there_for_packages() -> None:
    assert (TEMPLATE / "spark-pipeline.yml").is_file()
