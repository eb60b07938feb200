"""What a build makes, with a compiler and without; and `pip install .` into an empty environment.

`make test` installs into an empty environment, with build isolation, and names it in INSTALLED_FLOCKMQ.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from integration.support.process import FREE_PORTS, WAIT_S, BrokerProcess, environment

ROOT = Path(__file__).parents[2]
BUILD_S_MAX = 300
CONTENTS = (
    *("flockmq/py.typed", "flockmq/mqtt/scan.py", "flockmq/cli/main.py", "pyspark_flockmq/__init__.py"),
    *(f"flockmq/spark/pipelines/project/{name}" for name in ("run.py", "README.md", "spark-pipeline.yml")),
    *("flockmq/spark/pipelines/project/transformations/gold.sql",),
)
HALF_A_COMPILER = """#!/bin/sh
# Compiles what is asked of it but for one of the hot modules, as a compiler that crashes there would.
case "$*" in *___mqtt___scan.c*) exit 139;; esac
case "$*" in *" -o "*) while [ "$1" != -o ]; do shift; done; : > "$2";; esac
"""


@pytest.fixture(scope="session")
def installed() -> Path:
    """The environment that FlockMQ was installed into from a clean clone, and nothing else."""
    named = os.environ.get("INSTALLED_FLOCKMQ")
    if not named:
        if os.environ.get("CI"):
            pytest.fail("INSTALLED_FLOCKMQ is not set; `make test` sets it")
        pytest.skip("`make test-installed` makes the environment that this test looks at")
    return Path(named).absolute()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that a build reads, without anything that was built before."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(clone: Path, command: str, **variables: str) -> tuple[set[str], str]:
    """Build as pip does once it has what a build requires; the names in the archive, and all that was said."""
    done = subprocess.run(
        [sys.executable, "-c", f"import setuptools.build_meta as b; print(b.build_{command}('dist'))"],
        cwd=clone,
        env=environment(clone, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    archive = clone / "dist" / done.stdout.splitlines()[-1]
    if command == "sdist":
        with tarfile.open(archive) as opened:
            return {name.partition("/")[2].removeprefix("src/") for name in opened.getnames()}, done.stdout
    return set(zipfile.ZipFile(archive).namelist()), done.stdout


def check_plain(clone: Path, names: set[str], said: str) -> None:
    assert said.count("flockmq: WARNING: ") == 1, said
    assert names.issuperset(CONTENTS)
    assert not [name for name in names if name.endswith((".so", ".pyd"))]
    wheel = next((clone / "dist").glob("*.whl"))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flockmq", "version"],
        env=environment(clone, PYTHONPATH=str(wheel)),
        cwd=clone.parent,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert "(pure, " in done.stdout, done.stderr


# --- where compiling fails ---


def test_without_a_c_compiler_it_is_plain_python(clone: Path) -> None:
    names, said = build(clone, "wheel", CC="false")
    check_plain(clone, names, said)
    assert "no working C compiler (false)" in said


def test_an_error_that_mypyc_finds_leaves_plain_python(clone: Path) -> None:
    with (clone / "src/flockmq/mqtt/varint.py").open("a") as file:
        file.write('\nMISTAKE: int = "no number"\n')
    names, said = build(clone, "wheel")
    check_plain(clone, names, said)
    assert "the hot modules can't be compiled (SystemExit" in said


def test_a_compiler_that_fails_on_one_module_leaves_none_compiled(clone: Path) -> None:
    compiler = clone / "cc"
    compiler.write_text(HALF_A_COMPILER)
    compiler.chmod(0o755)
    stale = clone / f"build/lib.{_platform()}/flockmq/mqtt/scan.so"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier build")
    names, said = build(clone, "wheel", CC=str(compiler))
    check_plain(clone, names, said)
    assert "the hot modules can't be compiled (CompileError" in said
    assert not stale.exists()


def test_a_source_archive_has_what_a_build_reads(clone: Path) -> None:
    names, _ = build(clone, "sdist")
    assert names.issuperset((*CONTENTS, "setup.py", "pyproject.toml", "LICENSE", "README.md"))


# --- from a clean clone into an empty environment ---


def test_it_is_compiled_and_complete(installed: Path, tmp_path: Path) -> None:
    own = environment(tmp_path, PYTHONPATH="")
    command = [str(installed / "bin/flockmq"), "version"]
    said = subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout
    assert re.match(r"flockmq [0-9.]+ \(compiled, ", said)
    packages = next(installed.glob("lib/python3*/site-packages"))
    assert not [name for name in CONTENTS if not (packages / name).exists()]


def test_a_broker_of_it_serves(installed: Path, tmp_path: Path) -> None:
    program = str(installed / "bin/flockmq")
    with BrokerProcess(tmp_path, "--allow-anonymous", *FREE_PORTS, program=program, PYTHONPATH="") as broker:
        port = str(broker.port())
        said = broker.until("ready")
        assert said["build"] == "compiled"
        own = environment(tmp_path, FLOCKMQ_SERVER=broker.server, PYTHONPATH="")

        def run(*arguments: str) -> str:
            done = subprocess.run(
                [program, *arguments], env=own, capture_output=True, text=True, timeout=WAIT_S, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        run("pub", "plant/7", "21.5", "--qos", "1", "--retain", "-p", port)
        assert "21.5" in run("sub", "plant/#", "-c", "1", "-p", port)
        assert "compiled" in run("status")
        assert broker.stop() == 0


def _platform() -> str:
    return f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
