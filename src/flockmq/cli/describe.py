"""What a command takes, read off the command itself: for its help, for the reference page and for completion.

Typer's classes differ between its versions, so attributes are looked for where any of them has them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

_SENTENCE: Final = re.compile(r"(?<=[.!?]) ")
_CHOICES_WIDTH_MAX: Final = 24
"""Longest list of choices that stands in place of a value's name; longer ones are told in the text."""


class Parameter(NamedTuple):
    """An argument or an option."""

    names: list[str]
    """``--filter`` before ``-f``; the only name of an argument."""
    metavar: str
    """What stands for its value; empty for a switch."""
    text: str
    """What it is about, with its range, choices, variable and default."""
    choices: list[str]
    is_required: bool


def arguments(command: Any) -> list[Parameter]:
    """What stands without a name behind a command."""
    return [_argument(one) for one in command.params if one.param_type_name == "argument"]


def options(command: Any) -> list[Parameter]:
    """The options of a command, but for ``--help``."""
    found = [one for one in command.params if one.param_type_name == "option" and not getattr(one, "hidden", False)]
    return [_option(one) for one in found]


def subcommands(command: Any) -> dict[str, Any]:
    """The commands of a group by name; none of anything else."""
    return dict(getattr(command, "commands", None) or {})


def text_of(command: Any) -> str:
    """The help of a command: paragraphs, each on one line."""
    text = inspect.cleandoc(command.help or "").replace("``", "`")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def summary(command: Any) -> str:
    """The first sentence of a command's help."""
    return _SENTENCE.split(text_of(command).split("\n\n")[0])[0]


def usage(path: str, command: Any) -> str:
    """How a command is written."""
    if subcommands(command):
        return f"{path} COMMAND [OPTIONS]"
    pieces = [one.metavar if one.is_required else f"[{one.metavar}]" for one in arguments(command)]
    return " ".join([path, *pieces, "[OPTIONS]"])


def walk(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it."""
    yield path, command
    for name, below in subcommands(command).items():
        yield from walk((*path, name), below)


def _argument(one: Any) -> Parameter:
    metavar = str(one.metavar or one.name.upper()).strip("[]")
    choices = _choices(one)
    return Parameter([metavar], metavar, _text(one, choices), choices, bool(one.required))


def _option(one: Any) -> Parameter:
    names = sorted([*one.opts, *one.secondary_opts], key=lambda name: not name.startswith("--"))
    choices = _choices(one)
    metavar = ""
    if not _is_switch(one):
        listed = "|".join(choices)
        kind = _kind(one)
        plain = "N" if kind in (int, float) else "FILE" if kind is Path else "TEXT"
        metavar = str(one.metavar or (listed if 0 < len(listed) <= _CHOICES_WIDTH_MAX else "") or plain)
        if choices and metavar == "TEXT":
            metavar = "ONE"
    return Parameter(names, metavar, _text(one, choices, metavar), choices, bool(one.required))


def _text(one: Any, choices: list[str], metavar: str = "") -> str:
    text = str(getattr(one, "help", None) or "")
    if choices and metavar == "ONE":
        text += f" One of {', '.join(choices)}."
    text += _range(one)
    variable = getattr(one, "envvar", None)
    if variable:
        text += f" Variable: {variable}."
    shown = getattr(one, "show_default", None)
    default = shown if isinstance(shown, str) else one.default
    if default not in (None, "", False, (), []) and isinstance(default, (str, int, float)):
        text += f" Default: {default}."
    return text.strip()


def _range(one: Any) -> str:
    least, most = (getattr(one, name, getattr(_type(one), name, None)) for name in ("min", "max"))
    said = re.findall(r"\d+", str(getattr(one, "help", None) or ""))
    if least is not None and most is not None:
        return "" if {str(least), str(most)} <= {*said} else f" From {least} to {most}."
    return f" At least {least}." if least and str(least) not in said else ""


def _is_switch(one: Any) -> bool:
    return bool(getattr(one, "is_flag", False))


def _choices(one: Any) -> list[str]:
    listed = getattr(_type(one), "choices", None)
    if listed is None and get_origin(_annotation(one)) is Literal:
        listed = get_args(_annotation(one))
    return [str(choice) for choice in listed or ()]


def _kind(one: Any) -> type | None:
    annotation = _annotation(one)
    if annotation is None:
        name = str(getattr(_type(one), "name", ""))
        return int if "integer" in name else float if "float" in name else Path if name in ("path", "file") else None
    if get_origin(annotation) in (list, tuple):
        annotation = get_args(annotation)[0]
    return annotation if isinstance(annotation, type) else None


def _type(one: Any) -> Any:
    return getattr(one, "type", None)


def _annotation(one: Any) -> Any:
    return getattr(getattr(one, "type_descriptor", None), "annotation", None)
