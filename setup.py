"""Builds the hot modules with mypyc where that works; where it does not, the same files run as plain Python.

```
 has_ext_modules: FLOCKMQ_PURE=1, or no C compiler ----------------> plain Python, a wheel for every machine
 build_ext.run:   mypyc writes C --> compiled --> linked ----------> compiled modules beside the source
                      |                 |           |
                      `-----------------+-----------'  any failure: compiled files removed, one warning, plain Python
```
Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext

HOT_PACKAGES = ("wire", "mqtt", "session", "routing", "node", "log", "raft")
HOT_MODULES = (
    *("peering/channels.py", "peering/forwarding.py", "peering/stream.py"),  # every message between nodes
    *(f"durable/publish/{name}.py" for name in ("appending", "answers", "batches", "entering", "lanes")),
    *("durable/publish/pausing.py", "durable/publish/unsettled.py"),
    *(f"durable/deliver/{name}.py" for name in ("decoding", "delivery", "catchup", "pacing", "shared_batches")),
    *("durable/machine/machine.py", "durable/machine/machines.py"),  # every durable message
    *("peering/node.py", "peering/exchange.py", "durable/node.py"),  # every turn
)
INTERPRETED = ("settings.py", "ports.py")  # slotted dataclasses and protocols: mypyc has nothing to add there


def hot_modules() -> list[str]:
    root = Path("src/flockmq")
    files = [path for package in HOT_PACKAGES for path in sorted((root / package).glob("*.py"))]
    files += [root / module for module in HOT_MODULES]
    return [str(path) for path in files if path.name != "__init__.py" and not path.name.endswith(INTERPRETED)]


def warn(why: str) -> None:
    """The one warning. pip shows it with -v only; `flockmq version` says at any time which build it is."""
    print(f"flockmq: WARNING: {why}; built as plain Python: slower, otherwise the same", file=sys.stderr, flush=True)


@cache
def can_compile() -> bool:
    """Try a one-line extension: a compiler without Python's headers is as good as none."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nint main(void) { return 0; }\n")
        built = Path(folder, "probe.o")
        command = [*compiler, "-c", str(source), "-o", str(built), "-I" + sysconfig.get_paths()["include"]]
        try:
            is_done = subprocess.run(command, capture_output=True, check=False).returncode == 0 and built.exists()
        except OSError:
            is_done = False
    if not is_done:
        warn(f"no working C compiler ({' '.join(compiler)})")
    return is_done


def generated() -> list[object]:
    """Have mypyc write the C of the hot modules. It ends the process when it finds an error (SystemExit)."""
    from mypyc.build import mypycify

    # Strictness is the linter's business; here only what decides the C is read.
    options = ["--config-file=", "--ignore-missing-imports", "--python-version=3.11"]
    # A file of C for each module: gcc's time grows faster than the size of a file, and several can be compiled at once.
    built: list[object] = mypycify([*options, *hot_modules()], opt_level="2", group_name="flockmq", multi_file=True)
    return built


class MaybeCompiled(Distribution):  # type: ignore[misc]  # setuptools has no types
    """Says that there are extensions before mypyc has named them: that takes half a minute, and metadata needs none."""

    def has_ext_modules(self) -> bool:
        """Whether compiling will be tried."""
        return os.environ.get("FLOCKMQ_PURE") != "1" and can_compile()


class BuildOrDoWithout(build_ext):  # type: ignore[misc]  # setuptools has no types
    """All hot modules compiled, or none of them."""

    def run(self) -> None:
        """Build; after any failure take away what was compiled, now or in an earlier build of this folder."""
        if not self.distribution.has_ext_modules():
            return
        try:
            self.distribution.ext_modules = generated()
            self.swig_opts = None  # the one option that can't be finalized twice
            self.finalize_options()
            super().run()
        except (Exception, SystemExit) as error:
            self.distribution.ext_modules = []
            self.extensions: list[object] = []
            self.remove_compiled()
            warn(f"the hot modules can't be compiled ({type(error).__name__}: {error})")

    def remove_compiled(self) -> None:
        """Compiled modules win over source of the same name, so a part of them, or old ones, would be wrong."""
        for folder in {"src", self.build_lib} if self.inplace else {self.build_lib}:
            for suffix in (".so", ".pyd"):
                for path in Path(folder).rglob(f"*{suffix}"):
                    path.unlink()

    def build_extensions(self) -> None:
        """Have the compiler object take its files from a pool of threads; setuptools compiles one after the other."""
        compiler = self.compiler
        compile_one = compiler._compile
        pool = ThreadPoolExecutor(os.cpu_count() or 1)
        running: list[Future[None]] = []

        def compile_soon(*arguments: object) -> None:
            running.append(pool.submit(compile_one, *arguments))

        def compile_all(*arguments: Any, **options: Any) -> list[str]:
            objects: list[str] = type(compiler).compile(compiler, *arguments, **options)
            try:
                for one in running:
                    one.result()
            finally:
                for one in running:
                    one.cancel()  # after the first failure the rest would be compiled for nothing
                running.clear()
            return objects

        compiler._compile = compile_soon
        compiler.compile = compile_all
        with pool:
            super().build_extensions()


setup(distclass=MaybeCompiled, cmdclass={"build_ext": BuildOrDoWithout})
