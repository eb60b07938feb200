"""Topic templates: parts of MQTT topic names that become typed columns.

```
 plant/{site}/{line:int}/+    plant/lyon/7/temperature --> site "lyon", line 7
                              plant/lyon/x/temperature --> site "lyon", line null     (x is no int)
                              office/paris             --> null in both columns       (another shape)
```
Levels are literal, ``+`` (anything), ``{name}`` or ``{name:type}``, and at the end maybe ``#`` (any levels, also none).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from flockmq.errors import FlockError

TYPES: Final = ("string", "int", "long", "double", "boolean")
FIELDS_MAX: Final = 64
_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?::([A-Za-z]+))?\}")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
_REAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_BOUNDS: Final = {"int": 2**31, "long": 2**63}


@dataclass(frozen=True, slots=True)
class Field:
    """A level that becomes a column."""

    name: str
    kind: str
    level: int


class Template:
    """See the module."""

    def __init__(self, text: str, taken: frozenset[str] = frozenset()) -> None:
        self.text = text
        self._levels = text.split("/")
        self._is_open = self._levels[-1] == "#"
        if self._is_open:
            self._levels.pop()
        self.fields = [_field(text, level, place, taken) for place, level in enumerate(self._levels) if "{" in level]
        self.names = [field.name for field in self.fields]
        if len(set(self.names)) < len(self.names):
            raise FlockError(f"Option columns={text!r} names a column twice; give each part its own name")
        if not self.fields or len(self.fields) > FIELDS_MAX:
            raise FlockError(
                f"Option columns={text!r} names {len(self.fields)} columns; write 1 to {FIELDS_MAX} of them, "
                "like plant/{site}/{line:int}/+"
            )
        if any("#" in level or ("+" in level and level != "+") for level in self._levels):
            raise FlockError(f"Option columns={text!r}: + stands alone in its level, and # alone at the end")
        self._literals = [(at, one) for at, one in enumerate(self._levels) if one != "+" and "{" not in one]

    def parse(self, topic: str) -> tuple[Any, ...] | None:
        """The values of the columns in a topic name; None when it has another shape."""
        levels = topic.split("/")
        count = len(self._levels)
        if len(levels) < count or (len(levels) > count and not self._is_open):
            return None
        if any(levels[at] != literal for at, literal in self._literals):
            return None
        return tuple(_value(field.kind, levels[field.level]) for field in self.fields)


def _field(text: str, level: str, place: int, taken: frozenset[str]) -> Field:
    found = _PLACE.fullmatch(level)
    if found is None:
        raise FlockError(
            f"Option columns={text!r}: {level!r} is no part of a template; write {{name}} or {{name:type}}"
        )
    name, kind = found.group(1), (found.group(2) or "string").lower()
    if kind not in TYPES:
        raise FlockError(f"Option columns={text!r}: there is no type {kind!r}; there are {', '.join(TYPES)}")
    if name.lower() in taken:
        raise FlockError(f"Option columns={text!r}: every row has a column {name} already; choose another name")
    return Field(name, kind, place)


def _value(kind: str, text: str) -> Any:
    """The text as that type; None when it is none of it."""
    if kind == "string":
        return text
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower())
    if kind == "double":
        return float(text) if _REAL.fullmatch(text) else None
    if not _WHOLE.fullmatch(text):
        return None
    value = int(text)
    return value if -_BOUNDS[kind] <= value < _BOUNDS[kind] else None
