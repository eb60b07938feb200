"""The command line: all commands in one place, and one way to fail.

```
 arguments --> start, version, --version without mistakes: run at once
          `--> typer --> command --> 0
                |           |-- FlockError: its sentence on standard error --> 1
                |           `-- UsageError: "        "        "   ----------> 2
                `-- usage: what is wrong, and where help is -----------------> 2
```
Typer takes a third of a second to load. Only the modules of the command that was asked for are loaded.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError

if TYPE_CHECKING:
    import typer

COMMANDS: Final = {
    "start": "start",
    "up": "up",
    "ps": "up",
    "down": "up",
    "cluster": "cluster",
    "node": "cluster",
    "dump": "dump",
    "topic": "topic",
    "partition": "partition",
    "cursor": "cursor",
    "group": "group",
    "namespace": "namespace",
    "vpn": "namespace",
    "acl": "acl",
    "explain": "explain",
    "doctor": "doctor",
    "status": "status",
    "pub": "pub",
    "sub": "sub",
    "client": "clients",
    "session": "sessions",
    "route": "routes",
    "subscription": "routes",
    "retained": "retained",
    "config": "configuration",
    "passwd": "passwd",
    "login": "login",
    "token": "login",
    "log": "log",
    "bench": "bench",
    "demo": "demo",
    "pipeline": "pipeline",
    "completion": "completion",
    "version": "version",
}
"""The module of each command."""


def make_app(command: str | None = None) -> typer.Typer:
    """The application with one command, or with all of them."""
    import typer

    from flockmq.cli.help import HelpfulGroup
    from flockmq.cli.version import root

    app = typer.Typer(
        name="flockmq",
        cls=HelpfulGroup,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(root)  # keeps a lone command a subcommand
    for module in dict.fromkeys(COMMANDS.values()):
        if command in COMMANDS and module != COMMANDS[command]:
            continue
        if find_spec(f"flockmq.cli.{module}") is not None:
            _register(app, import_module(f"flockmq.cli.{module}"), module)
    _take_over_help(app)
    return app


def _register(app: typer.Typer, module: ModuleType, name: str) -> None:
    """Let a module add its groups of commands; without ``register`` its commands are functions of their own names."""
    if hasattr(module, "register"):
        module.register(app)
        return
    for command in [command for command, home in COMMANDS.items() if home == name]:
        app.command(command)(getattr(module, command))


def _take_over_help(app: typer.Typer) -> None:
    """Let every command and group print the help of ``flockmq.cli.help``."""
    from flockmq.cli.help import HelpfulCommand, HelpfulGroup

    for command in app.registered_commands:
        command.cls = HelpfulCommand
    for group in app.registered_groups:
        group.cls = HelpfulGroup
        if group.typer_instance is not None:
            _take_over_help(group.typer_instance)


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    try:
        if _run_at_once(arguments):
            return 0
        app = make_app(arguments[0] if arguments else None)
        result = app(args=arguments or ["--help"], prog_name="flockmq", standalone_mode=False)
    except FlockError as error:
        return _fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output has enough; keep Python from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UnicodeEncodeError:
        return _fail("An argument is not UTF-8 text, and MQTT has no other; check the encoding of the terminal.", 2)
    except Exception as error:
        return _unexpected(error)
    return result if isinstance(result, int) else 0


def _run_at_once(arguments: list[str]) -> bool:
    """Run what needs no help in reading its arguments; False leaves it to typer."""
    if arguments[:1] == ["start"]:
        from flockmq.cli import start_options

        values = start_options.parse(arguments[1:])
        if values is not None:
            start_options.run(values)
            return True
    elif arguments in (["version"], ["version", "--json"], ["--version"]):
        from flockmq.cli.version_text import version_text

        print(version_text(as_json=len(arguments) == 2))
        return True
    return False


def _unexpected(error: Exception) -> int:
    """Usage errors of typer (whose classes differ between its versions), and our own mistakes."""
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "flockmq"
        said = error.format_message().rstrip(".").replace(": Value error, ", ": ")  # a word of a library's library
        see = " See" if said.endswith("?") else "; see"
        return _fail(f"{said}{see} `{command} --help`.", int(error.exit_code))
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


def _open_streams() -> None:
    """Open standard streams that the parent process has closed; in the order of their numbers, so that no socket gets
    one of these."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  (for good)


def main() -> None:
    """Entry point of the ``flockmq`` command."""
    _open_streams()
    sys.exit(run(sys.argv[1:]))
