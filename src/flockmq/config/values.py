"""The values of one configuration by path, each with its origin; what was not set has its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from flockmq.config.bind import rebind
from flockmq.config.schema import KEYS, LISTENER, SECTIONS, pattern_of, section_keys
from flockmq.config.sections import DEFAULT_BINDS
from flockmq.config.sources import DEFAULT, Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

Path = tuple[str, ...]
PORT_FLAGS: Final = {
    "tcp": "--mqtt-port",
    "tls": "--mqtts-port",
    "ws": "--ws-port",
    "wss": "--wss-port",
    "admin": "--api-port",
}


@dataclass(frozen=True, slots=True)
class Value:
    """A typed value and where it came from."""

    value: Any
    origin: Origin = DEFAULT


class Values:
    """What was set, over the defaults."""

    def __init__(self, given: dict[Path, Value]) -> None:
        self.given = given
        self.asked_for = {path[:3] if path[0] == "listeners" else path[:1] for path in given}

    def value(self, path: Path) -> Value:
        """The value in force for one key."""
        found = self.given.get(path)
        if found is not None:
            return found
        if path[0] == "listeners" and path[2:] == ("default", "bind"):
            return Value((DEFAULT_BINDS[path[1]],))
        return Value(KEYS[pattern_of(path)].default)

    def section(self, path: Path) -> dict[str, Any]:
        """All values of a section, as keyword arguments of its dataclass."""
        return {key.path[-1]: self.value((*path, key.path[-1])).value for key in section_keys(pattern_of(path))}

    def listeners(self) -> list[tuple[str, str]]:
        """Kind and name of every listener that has a setting, and of the default ones."""
        found = dict.fromkeys((kind, "default") for kind in DEFAULT_BINDS)
        found.update(dict.fromkeys((path[1], path[2]) for path in self.given if path[0] == "listeners"))
        return list(found)

    def apply_ports(self, host: str | None, ports: Mapping[str, int]) -> None:
        """Let ``--host`` and the port flags change where clients, the admin API and other nodes are listened for."""
        for kind, flag in PORT_FLAGS.items():
            path = ("admin", "bind") if kind == "admin" else ("listeners", kind, "default", "bind")
            port = ports.get(kind)
            if host is None and port is None:
                continue
            flags = [name for name, value in (("--host", host), (flag, port)) if value is not None]
            self.given[path] = Value(rebind(self.value(path).value, host, port), Origin("flag", " ".join(flags)))
            if port is not None:
                self.asked_for.add(path[:3] if kind != "admin" else path[:1])
        if host is not None and ("cluster", "host") not in self.given:
            self.given["cluster", "host"] = Value(host, Origin("flag", "--host"))

    def everything(self) -> dict[Path, Value]:
        """Every key with its value: what ``flockmq config show`` prints."""
        listeners = [("listeners", kind, name) for kind, name in self.listeners()]
        paths: list[Path] = []
        for section in SECTIONS:
            if section == LISTENER:
                paths += [(*one, key.path[-1]) for one in listeners for key in section_keys(section)]
            elif section[0] != "listeners":
                paths += [key.path for key in section_keys(section)]
        overrides = [path for path in self.given if path[0] == "listeners" and path[3] == "limits"]
        return {path: self.value(path) for path in [*paths, *overrides]}
