"""The home of Spark without its zip: all that starts it, and nothing to import from."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest

from flockmq.spark import home


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path


def test_it_has_programs_and_jars_and_no_python(cache: Path) -> None:
    found = home.home()
    assert found is not None
    assert found.is_relative_to(cache)
    assert (found / "bin" / "spark-submit").is_file()
    assert (found / "jars").resolve() == Path(pyspark.__file__).parent / "jars"
    assert not (found / "python").exists()
    assert home.home() == found
    assert [one.name for one in found.parent.iterdir()] == [found.name], "nothing half made is left"


def test_a_home_that_the_user_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    home.use()
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_without_a_place_to_write_there_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    home.use()
    assert "SPARK_HOME" not in os.environ
