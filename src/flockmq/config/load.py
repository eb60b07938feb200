"""From files, environment and flags to one checked ``Config``.

```
 file < environment < flags        settings, each with its origin
          |  known key? right type?           every problem is collected, so that one run shows all
          v
   values by path, last one wins
          |  defaults that follow others, contradictions refused (build.py)
          v
   Loaded: Config for the server, values with origins for `flockmq config show`
```
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flockmq.config.build import build
from flockmq.config.schema import KEYS, SECTIONS, pattern_of
from flockmq.config.sections import LISTENER_KINDS
from flockmq.config.sources import PREFIX, Setting, read_environment, read_file, unknown_variables
from flockmq.config.values import Value, Values
from flockmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flockmq.config.sections import Config

_KINDS: Final = {(kind,) for kind in LISTENER_KINDS}
_PATH_ENDINGS: Final = ("_file", "_dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line says. ``host`` and ``ports`` change the default listeners and keep the rest of them."""

    settings: tuple[Setting, ...] = ()
    host: str | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    """Port by listener kind, or ``admin``."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configuration and where each value of it came from."""

    config: Config
    values: Values


def load(file: Path | None, environ: Mapping[str, str], flags: Flags | None = None) -> Loaded:
    """Read and check everything; a ConfigError holds one sentence a line, one line a problem."""
    flags = flags or Flags()
    settings = [*(read_file(file) if file else []), *read_environment(environ), *flags.settings]
    values = Values(_typed(settings, file.parent if file else Path()))
    values.apply_ports(flags.host, flags.ports)
    notes = tuple(_ignored(name) for name in unknown_variables(environ))
    return Loaded(replace(build(values), notes=notes), values)


def _ignored(name: str) -> str:
    """What to say about a variable that is no setting: one underscore stands where two belong, perhaps."""
    plain = name.removeprefix(PREFIX).lower()
    known = [".".join(path) for path in _known_paths(("",))]
    meant = next((path for path in known if path.replace(".", "_") == plain), None)
    hint = f"; did you mean {PREFIX}{meant.upper().replace('.', '__')}?" if meant else ""
    return f"{name} is not a setting and is ignored{hint}"


def _typed(settings: list[Setting], folder: Path) -> dict[tuple[str, ...], Value]:
    typed: dict[tuple[str, ...], Value] = {}
    problems = []
    for setting in settings:
        if setting.value == {} and _is_section(setting.path):
            continue
        try:
            typed[setting.path] = Value(_convert(setting, folder), setting.origin)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return typed


def _is_section(path: tuple[str, ...]) -> bool:
    """Whether a table of this name may stand in the file: an empty one sets nothing."""
    return path in SECTIONS or path == ("listeners",) or (path[0] == "listeners" and path[1:] in _KINDS)


def _convert(setting: Setting, folder: Path) -> object:
    key = KEYS.get(pattern_of(setting.path))
    if key is None or (key.path[0] == "listeners" and setting.path[1] not in LISTENER_KINDS):
        raise ConfigError(_unknown(setting))
    try:
        value = key.convert(setting.value)
    except ValueError as error:
        shown = "what it is" if key.secret else repr(setting.value)
        raise ConfigError(f"{named(setting)} can't be {shown}: {error}.") from None
    if setting.path[-1].endswith(_PATH_ENDINGS) and isinstance(value, str) and value:
        base = folder if setting.origin.kind == "file" else Path()
        return str((base / Path(value).expanduser()).absolute())
    return value


def named(setting: Setting) -> str:
    """The setting as its author wrote it: the variable, the flag, or the key and its line in the file."""
    if setting.origin.kind == "file":
        return f"{'.'.join(setting.path)} ({setting.origin.where})"
    return setting.origin.where


def _unknown(setting: Setting) -> str:
    known = [".".join(path) for path in _known_paths(setting.path)]
    dotted = ".".join(setting.path)
    if setting.value == {}:  # a table without keys
        known = [".".join(path) for path in SECTIONS]
    similar = _similar(dotted, known) or _same_key(setting.path[-1], known)
    if not similar and setting.origin.kind == "env":  # FLOCKMQ_NODE__DATA__DIR: two underscores where one belongs
        similar = [path for path in known if path.replace(".", "_") == dotted.replace(".", "_")][:1]
    hint = "`flockmq config show` lists all settings"
    if similar:
        hint = f"did you mean {_as_written(similar[0], setting)}?"
    return f"{named(setting)} is not a setting; {hint}{'' if similar else '.'}"


def _known_paths(path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All key paths, with the listener of ``path`` (its kind corrected) in place of the stars."""
    kind, name = "tcp", "default"
    if path[0] == "listeners" and len(path) > 2:
        kind = (get_close_matches(path[1], LISTENER_KINDS, n=1, cutoff=0.3) or [kind])[0]
        name = path[2] if len(path) > 3 else name
    return [(key[0], kind, name, *key[3:]) if key[0] == "listeners" else key for key in KEYS]


def _similar(dotted: str, known: list[str]) -> list[str]:
    """The path that looks like this one. Its last name must, too: a long section makes all of its keys look alike."""
    name = dotted.rpartition(".")[2]
    likely = get_close_matches(dotted, known, n=3, cutoff=0.75)
    return [path for path in likely if get_close_matches(name, [path.rpartition(".")[2]])][:1]


def _same_key(name: str, known: list[str]) -> list[str]:
    """The right key in the wrong section, or almost."""
    by_name = {path.rpartition(".")[2]: path for path in reversed(known)}
    return [by_name[match] for match in get_close_matches(name, by_name, n=1, cutoff=0.8)]


def _as_written(path: str, setting: Setting) -> str:
    return PREFIX + path.upper().replace(".", "__") if setting.origin.kind == "env" else path
