"""Builds the hot modules with mypyc when a C compiler is there; without one the same files run as plain Python.

FLOCKMQ_PURE=1 leaves compilation out on purpose. Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

HOT_PACKAGES = ("wire", "mqtt", "session", "routing", "node", "log", "raft")
HOT_MODULES = (
    *("peering/channels.py", "peering/forwarding.py", "peering/stream.py"),  # every message between nodes
    *("durable/appending.py", "durable/answers.py", "durable/entering.py", "durable/lanes.py", "durable/pausing.py"),
    *("durable/unsettled.py", "durable/decoding.py", "durable/delivery.py", "durable/catchup.py", "durable/pacing.py"),
    *("durable/machine.py", "durable/machines.py", "durable/consensus.py"),  # every durable message
    *("peering/node.py", "durable/node.py"),  # every turn
)
INTERPRETED = ("settings.py", "ports.py")  # slotted dataclasses and protocols: mypyc has nothing to add there


def hot_modules() -> list[str]:
    root = Path("src/flockmq")
    files = [path for package in HOT_PACKAGES for path in sorted((root / package).glob("*.py"))]
    files += [root / module for module in HOT_MODULES]
    return [str(path) for path in files if path.name != "__init__.py" and not path.name.endswith(INTERPRETED)]


def can_compile() -> bool:
    """Try a one-line extension: a compiler without Python's headers is as good as none."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nint main(void) { return 0; }\n")
        command = [*compiler, "-c", str(source), "-o", str(Path(folder, "probe.o"))]
        command += ["-I" + sysconfig.get_paths()["include"]]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False


def extensions() -> list[object]:
    if os.environ.get("FLOCKMQ_PURE") == "1":
        return []
    if not can_compile():
        print(
            "flockmq: no working C compiler; installing as plain Python (slower, otherwise the same)", file=sys.stderr
        )
        return []
    from mypyc.build import mypycify

    # Strictness is the linter's business; here dependencies need not even be installed.
    options = ["--config-file=", "--ignore-missing-imports", "--python-version=3.11"]
    # A file of C for each module: gcc's time grows faster than the size of a file, and several can be compiled at once.
    built: list[object] = mypycify([*options, *hot_modules()], opt_level="2", group_name="flockmq", multi_file=True)
    return built


class BuildInParallel(build_ext):  # type: ignore[misc]  # setuptools has no types
    """setuptools compiles the files of an extension one after the other; here are a hundred of them."""

    def build_extensions(self) -> None:
        """Have the compiler object take its files from a pool of threads."""
        compiler = self.compiler
        compile_one = compiler._compile
        pool = ThreadPoolExecutor(os.cpu_count() or 1)
        running: list[Future[None]] = []

        def compile_soon(*arguments: object) -> None:
            running.append(pool.submit(compile_one, *arguments))

        def compile_all(*arguments: Any, **options: Any) -> list[str]:
            objects: list[str] = type(compiler).compile(compiler, *arguments, **options)
            for one in running:
                one.result()
            running.clear()
            return objects

        compiler._compile = compile_soon
        compiler.compile = compile_all
        with pool:
            super().build_extensions()


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildInParallel})
