"""What ``--help`` prints: plain text that fits the terminal and cuts nothing.

```
 Usage: flockmq topic create NAME [OPTIONS]

   What it does.

 Arguments:
   NAME                  ...
 Options:
   -n, --namespace N     ...
       --json            a switch has no value
```
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from flockmq.cli.describe import Parameter, arguments, options, subcommands, summary, text_of, usage
from flockmq.cli.table import wrap

WIDTH_MAX: Final = 100
"""Longer lines are hard to read."""
WIDTH_MIN: Final = 40
NAMES_WIDTH_MAX: Final = 28
"""Longer names of options stand on a line of their own."""
INDENT: Final = "  "
HELP: Final = Parameter(["--help", "-h"], "", "Show this text.", [], is_required=False)
SECTIONS: Final = {
    "Run brokers": ("start", "up", "ps", "down", "demo"),
    "Look after a cluster": ("status", "cluster", "node", "doctor", "dump", "namespace", "vpn", "acl"),
    "Topics and what they keep": ("topic", "partition", "group", "cursor", "log", "retained", "pipeline"),
    "Clients and routes": ("client", "session", "subscription", "route", "explain"),
    "Publish, subscribe, measure": ("pub", "sub", "bench"),
    "Settings and credentials": ("config", "passwd", "login", "token", "completion", "version"),
}
"""The commands as ``flockmq --help`` groups them; any other stands below "Commands"."""


class HelpfulCommand(TyperCommand):
    """A command whose help is ours."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(help_text(ctx.command_path, self, terminal_columns()))


class HelpfulGroup(TyperGroup):
    """A group of commands whose help is ours."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(help_text(ctx.command_path, self, terminal_columns()))


def terminal_columns() -> int:
    """How wide help is printed."""
    return min(max(shutil.get_terminal_size().columns, WIDTH_MIN), WIDTH_MAX)


def help_text(path: str, command: Any, width: int) -> str:
    """All that is to be said about a command."""
    lines = [*_wrapped("Usage: ", usage(path, command), width), ""]
    for paragraph in text_of(command).split("\n\n"):
        lines += [*_wrapped(INDENT, paragraph, width), ""]
    below = subcommands(command)
    for title, names in _sections(path, below).items():
        rows = [(name, summary(below[name])) for name in names]
        lines += [f"{title}:", *_rows(rows, width), ""]
    if not below:
        taken = [(one.metavar, one.text) for one in arguments(command)]
        if taken:
            lines += ["Arguments:", *_rows(taken, width), ""]
    own = options(command)
    if not any("--help" in one.names for one in own):
        own.append(HELP)
    lines += ["Options:", *_rows([(_names(one), one.text) for one in own], width)]
    if below:
        lines += ["", *_wrapped("", f"`{path} COMMAND --help` tells more about a command.", width)]
    return "\n".join(lines) + "\n"


def _sections(path: str, below: dict[str, Any]) -> dict[str, list[str]]:
    if not below:
        return {}
    if " " in path:
        return {"Commands": list(below)}
    found = {title: [name for name in names if name in below] for title, names in SECTIONS.items()}
    listed = {name for names in found.values() for name in names}
    found["Commands"] = [name for name in below if name not in listed]
    return {title: names for title, names in found.items() if names}


def _names(option: Parameter) -> str:
    """Short names first, so that long ones stand below each other."""
    short = [name for name in option.names if not name.startswith("--")]
    long = [name for name in option.names if name.startswith("--")]
    joined = ", ".join([*short, " / ".join(long)]) if long else ", ".join(short)
    return f"{joined if short else INDENT * 2 + joined} {option.metavar}".rstrip()


def _rows(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    wide = max((len(name) for name, _ in rows if len(name) <= NAMES_WIDTH_MAX), default=0)
    for name, text in rows:
        lines = list(wrap(text, width - wide - 2 * len(INDENT)))
        if len(name) > wide:
            yield f"{INDENT}{name}"
        else:
            yield f"{INDENT}{name:<{wide}}{INDENT}{lines.pop(0)}".rstrip()
        for line in lines:
            yield f"{INDENT}{'':<{wide}}{INDENT}{line}".rstrip()


def _wrapped(start: str, text: str, width: int) -> list[str]:
    lines = list(wrap(text, width - len(start)))
    return [f"{start}{lines[0]}".rstrip(), *(f"{' ' * len(start)}{line}" for line in lines[1:])]
