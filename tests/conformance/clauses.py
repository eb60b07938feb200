"""The normative statements of MQTT, and the decorator that ties a test to the ones it proves.

``clauses_v5.txt`` and ``clauses_v311.txt`` hold every numbered statement: its id, who it binds, and what it demands in
our own words. ``test_index.py`` holds the tests against them: each clause that binds a server has a test, and
``docs/reference/conformance.md`` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])

HERE: Final = Path(__file__).parent
SIDES: Final = ("server", "client", "transport")


@dataclass(frozen=True, slots=True)
class Clause:
    """One normative statement."""

    version: str
    identifier: str
    side: str
    demand: str


def _read(version: str, name: str) -> dict[tuple[str, str], Clause]:
    found: dict[tuple[str, str], Clause] = {}
    for line in (HERE / name).read_text().splitlines():
        if line.startswith("#"):
            continue
        identifier, side, demand = (part.strip() for part in line.split("|", 2))
        if side not in SIDES or (version, identifier) in found:
            raise ValueError(f"{name}: {line!r} has an unknown side or stands there twice")
        found[version, identifier] = Clause(version, identifier, side, demand)
    return found


CLAUSES: Final = _read("5.0", "clauses_v5.txt") | _read("3.1.1", "clauses_v311.txt")


def clause(version: str, *identifiers: str) -> Callable[[Function], Function]:
    """Say which clauses of ``version`` the decorated test proves; a clause that does not exist is an error at once."""
    unknown = [identifier for identifier in identifiers if (version, identifier) not in CLAUSES]
    if unknown or not identifiers:
        raise ValueError(f"MQTT {version} has no clause {unknown}")

    def tie(function: Function) -> Function:
        return function

    return tie
