"""Parameters of pipelines: what may be given, how it is written, and what it means.

```
 ["--format", "delta", "--compact"] --> parse_arguments --> Values: job.values.text("format"), .flag("compact")
                                             `-- ParameterError: one sentence, with the nearest right name
```
Defaults are written as people would write them, so help shows what is meant and one parser reads both. Nothing here
needs Spark: parameters are listed and checked where it isn't installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Final

from flockmq.config.units import BYTES, MILLISECONDS, parse_number
from flockmq.errors import FlockError

Value = str | int | float | bool | tuple[str, ...] | None


class ParameterError(FlockError):
    """A parameter is unknown, missing or can't be read: the command line is wrong."""


class Kind(Enum):
    """How a parameter is written; its value is what help shows."""

    TEXT = "TEXT"
    INTEGER = "NUMBER"
    NUMBER = "DECIMAL"
    DURATION = "DURATION"
    """``250ms``, ``30s``, ``1h30m``; milliseconds inside."""
    SIZE = "SIZE"
    """``64MB``, ``1GiB``; bytes inside."""
    FLAG = ""
    CHOICE = "CHOICE"
    PATH = "PATH"
    """A folder or file; absolute inside, since workers of a Spark cluster stand elsewhere. URLs stay as they are."""
    LIST = "LIST"
    """Separated by commas, or the option repeated."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One option of a pipeline: ``--name``. Without a default (None) it may stay away, unless it is required."""

    name: str
    kind: Kind
    default: str | None
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    minimum: float | None = None

    @property
    def metavar(self) -> str:
        """What help shows in the place of a value."""
        return "|".join(self.choices) if self.choices else self.kind.value

    def parse(self, text: str) -> Value:
        """The value that a text means; ParameterError says what would do."""
        try:
            value = _PARSERS[self.kind](text)
        except ValueError as error:
            raise ParameterError(f"--{self.name} can't be {text!r}: {error}") from None
        if self.choices and value not in self.choices:
            near = get_close_matches(text, self.choices, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ParameterError(f"--{self.name} can't be {text!r}: it is one of {', '.join(self.choices)}{hint}")
        if self.minimum is not None and isinstance(value, (int, float)) and value < self.minimum:
            raise ParameterError(f"--{self.name} can't be {text!r}: it is at least {self.minimum:g}")
        return value


class Values:
    """Parameters by name, in their types. Asking for one in another type is a mistake of the pipeline."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) not in (None, (), "")

    def text(self, name: str) -> str:
        """A text, choice or path; empty when it was not given."""
        value = self._values[name]
        assert value is None or isinstance(value, str), name
        return value or ""

    def texts(self, name: str) -> tuple[str, ...]:
        """A list."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def integer(self, name: str) -> int:
        """A whole number; durations in milliseconds, sizes in bytes."""
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        """A decimal number."""
        value = self._values[name]
        assert isinstance(value, (int, float)), name
        return float(value)

    def flag(self, name: str) -> bool:
        """A flag."""
        return bool(self._values[name])


def defaults(parameters: Sequence[Parameter]) -> dict[str, Value]:
    """What parameters are when nothing is given."""
    return {one.name: _default(one) for one in parameters}


def make_values(parameters: Sequence[Parameter], given: Mapping[str, str | bool | Sequence[str]]) -> Values:
    """Values from texts by name, for programs; as the command line would read them."""
    arguments: list[str] = []
    for name, value in given.items():
        if isinstance(value, bool):
            arguments.append(f"--{name}" if value else f"--no-{name}")
        else:
            arguments += [f"--{name}={one}" for one in ([value] if isinstance(value, str) else value)]
    return parse_arguments(parameters, arguments)


def parse_arguments(parameters: Sequence[Parameter], arguments: Sequence[str]) -> Values:
    """Values from ``--name value``, ``--name=value``, ``--flag`` and ``--no-flag``."""
    known = {one.name: one for one in parameters}
    found: dict[str, Value] = {}
    rest = list(arguments)
    while rest:
        name, parameter, text = _next(known, rest)
        value = (name == parameter.name) if text is None else parameter.parse(text)
        if isinstance(value, tuple):
            before = found.get(parameter.name, ())
            value = (*before, *value) if isinstance(before, tuple) else value
        elif parameter.name in found:
            raise ParameterError(f"--{parameter.name} was given twice; give it once.")
        found[parameter.name] = value
    for one in parameters:
        if one.required and one.name not in found:
            raise ParameterError(f"--{one.name} {one.metavar} is missing: {one.help}")
    return Values({**defaults(parameters), **found})


def _next(known: Mapping[str, Parameter], rest: list[str]) -> tuple[str, Parameter, str | None]:
    """Take the next option off: its name, its parameter, and the text of its value (None for a flag)."""
    word = rest.pop(0)
    if not word.startswith("--"):
        raise ParameterError(f"{word!r} belongs to no option; options are written --name VALUE.")
    name, equals, text = word[2:].partition("=")
    parameter = known.get(name) or _negated(known, name)
    if parameter is None:
        raise ParameterError(_unknown(known, name))
    if parameter.kind is Kind.FLAG:
        if equals:
            raise ParameterError(f"--{name} is a flag and takes no value.")
        return name, parameter, None
    if not equals:
        if not rest:
            raise ParameterError(f"--{name} needs a value: {parameter.help}")
        text = rest.pop(0)
    return name, parameter, text


def _negated(known: Mapping[str, Parameter], name: str) -> Parameter | None:
    parameter = known.get(name.removeprefix("no-"))
    return parameter if parameter is not None and parameter.kind is Kind.FLAG else None


def _unknown(known: Mapping[str, Parameter], name: str) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"There is no option --{name}; did you mean --{near[0]}?"
    return f"There is no option --{name}; this pipeline has {', '.join(f'--{one}' for one in known) or 'none'}."


def _default(parameter: Parameter) -> Value:
    if parameter.kind is Kind.FLAG:
        return parameter.default == "true"
    if parameter.default is None:
        return () if parameter.kind is Kind.LIST else None
    return parameter.parse(parameter.default)


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _integer(text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise ValueError("expected a whole number") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("expected a number")
    return value


def _list(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise ValueError("it is empty")
    return found


def absolute(path: str) -> str:
    """A path that means the same wherever it is read; one with a scheme (``s3a://``) already does."""
    return path if "://" in path else str(Path(path).expanduser().absolute())


_PARSERS: Final[dict[Kind, Callable[[str], Value]]] = {
    Kind.TEXT: _text,
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.DURATION: lambda text: parse_number(text, MILLISECONDS),
    Kind.SIZE: lambda text: parse_number(text, BYTES),
    Kind.CHOICE: _text,
    Kind.PATH: lambda text: absolute(_text(text)),
    Kind.LIST: _list,
}
