"""The command line: all commands in one place, and one way to fail.

```
 arguments --> typer --> command --> 0
                |           `-- FlockError: its sentence on standard error --> 1
                `-- usage: what is wrong, and where help is -----------------> 2
```
A module is loaded when its command runs, so that starting a broker or asking for the version waits for nothing else.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import typer

from flockmq.cli import (
    clients,
    configuration,
    login,
    passwd,
    pub,
    retained,
    routes,
    sessions,
    start,
    status,
    sub,
    version,
)
from flockmq.errors import FlockError

_MODULES: Final = (start, status, pub, sub, clients, sessions, routes, retained, configuration, passwd, login, version)
_OPTIONAL: Final = ("flockmq.cli.bench", "flockmq.cli.demo")


def make_app() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="flockmq",
        help="FlockMQ: an MQTT broker in Python. Start one with `flockmq start`.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for module in _MODULES:
        module.register(app)
    for name in _OPTIONAL:
        if find_spec(name) is not None:
            import_module(name).register(app)
    return app


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    try:
        result = make_app()(args=arguments or ["--help"], prog_name="flockmq", standalone_mode=False)
    except FlockError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever reads our output has enough; keep Python from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _unexpected(error)
    return result if isinstance(result, int) else 0


def _unexpected(error: Exception) -> int:
    """Usage errors of typer (whose classes differ between its versions), and our own mistakes."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "flockmq"
        return _fail(f"{error.format_message().rstrip('.')}; see `{command} --help`.", int(error.exit_code))
    if type(error).__name__ == "Abort":
        return _fail("Stopped.", 1)
    if os.environ.get("FLOCKMQ_DEBUG") == "1":
        raise error
    return _fail(
        f"This is a mistake in FlockMQ ({error!r}); please report it. FLOCKMQ_DEBUG=1 shows where it happened.", 1
    )


def _fail(sentence: str, code: int) -> int:
    for line in sentence.splitlines():
        print(f"flockmq: {line}", file=sys.stderr)
    return code


def main() -> None:
    """Entry point of the ``flockmq`` command."""
    sys.exit(run(sys.argv[1:]))
