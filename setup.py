"""Builds the hot modules with mypyc when a C compiler is there; without one the same files run as plain Python.

FLOCKMQ_PURE=1 leaves compilation out on purpose. Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import setup

HOT_PACKAGES = ("wire", "mqtt", "session", "routing", "node", "log", "raft")
HOT_MODULES = ("peering/channels.py", "peering/forwarding.py", "peering/stream.py")  # what every message between nodes passes
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
    built: list[object] = mypycify([*options, *hot_modules()], opt_level="2", group_name="flockmq")
    return built


setup(ext_modules=extensions())
