"""What may be set: every key with its type and unit, read off the section dataclasses so that nothing is said twice.

A key's path is as in the TOML file. ``*`` stands for the kind and the name of a listener:
``listeners.*.*.limits.packet_bytes_max``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Final, get_type_hints

from flockmq.config.sections import (
    AdminConfig,
    ClusterConfig,
    ListenerConfig,
    LogConfig,
    NodeConfig,
    RetainedConfig,
    TlsConfig,
)
from flockmq.config.units import COUNT, parse_number, unit_of
from flockmq.discovery.settings import SECTIONS as DISCOVERY_SECTIONS
from flockmq.log.settings import StoreSettings
from flockmq.node.settings import SHARED_STRATEGIES, BrokerSettings, Limits
from flockmq.security.settings import SecuritySettings

LISTENER: Final = ("listeners", "*", "*")
SECTIONS: Final[dict[tuple[str, ...], type]] = {
    ("node",): NodeConfig,
    ("cluster",): ClusterConfig,
    **{("discovery", name): section for name, section in DISCOVERY_SECTIONS.items()},
    ("mqtt",): BrokerSettings,
    ("retained",): RetainedConfig,
    ("store",): StoreSettings,
    ("limits",): Limits,
    LISTENER: ListenerConfig,
    (*LISTENER, "limits"): Limits,
    ("tls",): TlsConfig,
    ("security",): SecuritySettings,
    ("admin",): AdminConfig,
    ("log",): LogConfig,
}
_ELSEWHERE: Final = {("mqtt", "node_name"), ("mqtt", "limits")}  # set as node.name and in [limits]
_CHOICES: Final[dict[tuple[str, ...], tuple[str, ...]]] = {("mqtt", "shared_strategy"): SHARED_STRATEGIES}
_RANGES: Final[dict[str, tuple[int, int]]] = {  # what the MQTT wire formats can say
    "packet_bytes_max": (16, 268_435_460),
    "keep_alive_s_max": (0, 65_535),
    "inflight_max": (1, 65_535),
    "receive_max": (1, 65_535),
    "topic_bytes_max": (1, 65_535),
    "topic_aliases_max": (0, 65_535),
    "session_expiry_s_max": (0, 4_294_967_295),
    "port": (0, 65_535),
    "bootstrap_expect": (0, 1_000),
}
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_SECRET_WORDS: Final = frozenset({"password", "secret", "token", "key"})


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that may be set."""

    path: tuple[str, ...]
    type: object
    default: object
    choices: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other spellings of choices."""

    @property
    def unit(self) -> str:
        """Unit of a number, from the key's name."""
        return unit_of(self.path[-1]) if self.type is int else COUNT

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown. A file's name may."""
        words = self.path[-1].split("_")
        return words[-1] not in ("file", "dir", "bytes", "max") and not _SECRET_WORDS.isdisjoint(words)

    def convert(self, value: object) -> object:
        """The value in this key's own type; ValueError tells what was expected."""
        converted = self._convert(value)
        if self.choices and converted not in self.choices:
            raise ValueError(f"expected one of {', '.join(choice or repr(choice) for choice in self.choices)}")
        return converted

    def _convert(self, value: object) -> object:
        if self.type is bool:
            return _to_bool(value)
        if self.type is int:
            return self._to_int(value)
        if self.type == tuple[str, ...]:
            return _to_texts(value)
        if self.type == (str | None) and value == "":
            return None
        if self.aliases and str(value).lower() in self.aliases:
            return self.aliases[str(value).lower()]
        if not isinstance(value, str):
            raise ValueError("expected text")  # noqa: TRY004  (all that is wrong with a value is a ValueError here)
        return value

    def _to_int(self, value: object) -> int:
        if isinstance(value, str):
            number = parse_number(value, self.unit)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        else:
            raise ValueError("expected a whole number")  # noqa: TRY004
        least, most = _RANGES.get(self.path[-1], (0, 2**63 - 1))
        if not least <= number <= most:
            raise ValueError(f"expected {least} to {most}" if number > most or least else "expected 0 or more")
        return number


def _to_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
        return value.strip().lower() in _TRUE
    raise ValueError("expected true or false")


def _to_texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError("expected text, or a list of texts")


def section_keys(path: tuple[str, ...]) -> list[Key]:
    """The keys of one section."""
    section = SECTIONS[path]
    hints = get_type_hints(section)
    keys = []
    for item in fields(section):
        key_path = (*path, item.name)
        if key_path in _ELSEWHERE:
            continue
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        choices = item.metadata.get("choices") or _CHOICES.get(key_path, ())
        keys.append(Key(key_path, hints[item.name], default, choices, item.metadata.get("aliases", {})))
    return keys


KEYS: Final[dict[tuple[str, ...], Key]] = {key.path: key for path in SECTIONS for key in section_keys(path)}


def pattern_of(path: tuple[str, ...]) -> tuple[str, ...]:
    """A path with the kind and name of a listener replaced by ``*``."""
    return (*LISTENER, *path[3:]) if len(path) > 2 and path[0] == "listeners" else path
