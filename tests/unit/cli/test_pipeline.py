from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flockmq.cli.main import run
from flockmq.spark.pipelines.registry import MODULES


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLOCKMQ_SERVER", "FLOCKMQ_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_the_list_says_what_each_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in MODULES)
    assert run(["pipeline", "list", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert tuple(found) == MODULES
    assert {"name": "lake", "kind": "path", "default": None, "required": True, "choices": []}.items() <= next(
        one for one in found["archive"]["parameters"] if one["name"] == "lake"
    ).items()


def test_help_of_a_pipeline_shows_its_own_options_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "run", "archive", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "--master" in printed
    assert "--format parquet|delta|iceberg" in printed
    assert "Default: parquet." in printed
    assert "Folder or URL of the table. Required." in printed
    assert run(["pipeline", "run", "--help"]) == 0
    assert "--checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name the pipeline first"),
        (["--format", "delta", "archive"], "name the pipeline first"),
        (["archive"], "--lake PATH is missing"),
        (["archive", "--lake", "lake", "--fromat", "delta"], "did you mean --format?"),
        (["archive", "--lake", "lake", "--format", "detla"], "did you mean delta?"),
        (["archive", "--lake", "lake", "--every", "soon"], "a duration like"),
        (["archive", "--lake", "lake", "lake"], "'lake' belongs to no option"),
        (["archive", "--lake", "lake", "--conf", "spark.cores.max"], "--conf: 'spark.cores.max' is not KEY=VALUE"),
        (["archive", "--lake", "lake", "--option", "ca"], "--option: 'ca' is not KEY=VALUE"),
        (["archive", "--lake", "lake", "--once", "--for", "10"], "give it or --for, not both"),
        (["archive", "--lake", "lake", "--for", "ever"], "--for can't be 'ever'"),
        (["archive", "--lake", "lake", "--master", "local", "--remote", "sc://x"], "give one of them"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "run", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["archvie"], "There is no pipeline 'archvie'; did you mean archive?"),
    ],
)
def test_what_can_not_run_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "run", *arguments]) == 1
    assert sentence in capsys.readouterr().err


def test_without_spark_there_is_a_list_and_a_hint(tmp_path: Path) -> None:
    """A Python that has no pyspark: the one that runs this, told so."""
    program = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'pyspark': raise ModuleNotFoundError(name)\n"
        "import importlib.util\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'pyspark' else real(name, *rest)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "from flockmq.cli.main import run\n"
        "print(run(['pipeline', 'list']), run(['pipeline', 'run', 'archive', '--topic', 't', '--lake', 'lake']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.rstrip().endswith("0 1")
    assert "pip install 'flockmq[spark]'" in done.stderr
    assert list(tmp_path.iterdir()) == []
