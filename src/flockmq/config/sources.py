"""Where settings come from: a TOML file, the environment, flags. Each setting keeps its origin for messages.

```
 file    [limits]                                       packet_bytes_max = "1MB"
 env     FLOCKMQ_LIMITS__PACKET_BYTES_MAX=1MB           two underscores part section and key; without them: no setting
 flag    --mqtt-port 1883                               wins over both
```
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flockmq.config.lines import key_lines, line_of
from flockmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PREFIX: Final = "FLOCKMQ_"
NOT_SETTINGS: Final = frozenset(
    {
        "FLOCKMQ_CONFIG",  # path of the file itself
        "FLOCKMQ_COOKIE",
        "FLOCKMQ_CREDENTIALS",
        "FLOCKMQ_DEBUG",
        "FLOCKMQ_HYPOTHESIS",
        "FLOCKMQ_PASSWORD",
        "FLOCKMQ_PURE",
        "FLOCKMQ_SERVER",
        "FLOCKMQ_TOKEN",
    }
)
# Kubernetes puts the address of a service called "flockmq" into every pod's environment under these names.
_KUBERNETES: Final = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from; ``kind`` is one of default, file, env, flag."""

    kind: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where}".rstrip()


DEFAULT: Final = Origin("default")


@dataclass(frozen=True, slots=True)
class Setting:
    """One raw value on its way into the configuration. Text from the environment is not typed yet."""

    path: tuple[str, ...]
    value: object
    origin: Origin


def read_file(path: Path) -> list[Setting]:
    """All settings of a TOML file."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"The configuration file {path} can't be read: {error.strerror}; check --config.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The configuration file {path} is not UTF-8 text; save it as UTF-8.") from None
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The configuration file {path} is not valid TOML: {error}.") from None
    lines = key_lines(text)
    return [
        Setting(key, value, Origin("file", f"{path}:{line}" if (line := line_of(lines, key)) else str(path)))
        for key, value in _leaves((), tree)
    ]


def _leaves(prefix: tuple[str, ...], tree: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in tree.items():
        path = (*prefix, key)
        if isinstance(value, dict) and value:
            yield from _leaves(path, value)
        elif value == {} and path[0] == "listeners" and len(path) == 3:
            yield (*path, "enabled"), True  # a listener that is named and has no settings is wanted all the same
        else:
            yield path, value


def read_environment(environ: Mapping[str, str]) -> list[Setting]:
    """All settings of the environment, in the order of their names."""
    settings = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and "__" in name:
            path = tuple(part.lower() for part in name.removeprefix(PREFIX).split("__"))
            settings.append(Setting(path, environ[name], Origin("env", name)))
    return settings


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that begin like settings and are none, nor anything else that is known here."""
    return [
        name
        for name in sorted(environ)
        if name.startswith(PREFIX) and "__" not in name and name not in NOT_SETTINGS and not _KUBERNETES.fullmatch(name)
    ]
