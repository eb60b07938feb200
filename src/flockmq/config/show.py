"""The configuration for people and programs: every value in force, with its origin, secrets blacked out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flockmq.config.schema import KEYS, pattern_of

if TYPE_CHECKING:
    from flockmq.config.values import Value, Values

HIDDEN: Final = "(hidden)"


def shown(path: tuple[str, ...], value: Value) -> Any:
    """A value as it may be shown."""
    if KEYS[pattern_of(path)].secret and value.value:
        return HIDDEN
    return list(value.value) if isinstance(value.value, tuple) else value.value


def as_tree(values: Values) -> dict[str, object]:
    """All values as nested tables, like the TOML file."""
    tree: dict[str, Any] = {}
    for path, value in values.everything().items():
        table = tree
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = shown(path, value)
    return tree


def as_rows(values: Values) -> list[tuple[str, Any, str]]:
    """All values as rows of key, value and origin."""
    return [(".".join(path), shown(path, value), str(value.origin)) for path, value in values.everything().items()]
