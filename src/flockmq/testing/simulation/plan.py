"""What a run is made of: the cluster, and what goes wrong in it when. Text that can be printed, read back and cut down.

```
 nodes=3 shards=2 copies=3 ms=12000; 1200 kill 2; 1900 start 2; 2000 split 1|2,3; 5000 join; 6000 pause L0 2500
 `------------- the cluster --------' ^ ms  ^ what  ^ with
```
A plan is drawn from a seed, or given. A kept plan means the same for ever, whatever later versions draw from its seed.
Chance inside a fault comes from the seed and the fault's own text, so a fault can be left out and the others stay.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from flockmq.errors import FlockError


class PlanError(FlockError):
    """A plan can't be read; the sentence says where."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that goes wrong."""

    at_ms: int
    kind: str
    words: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return " ".join((str(self.at_ms), self.kind, *self.words))

    def number(self, position: int) -> int:
        """The word at a position as a number."""
        return int(self.words[position])

    def numbers(self, position: int) -> tuple[int, ...]:
        """The word at a position as numbers between commas; none when the word is missing."""
        if position >= len(self.words):
            return ()
        return tuple(int(word) for word in self.words[position].split(","))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is decided before a run begins; all else follows from the plan and the seed."""

    LAYER: ClassVar[str]
    """The layer that runs such plans."""
    duration_ms: int = 10_000
    """How long faults happen. Afterwards all are healed, and the cluster must work again."""
    faults: tuple[Fault, ...] = ()

    def head(self) -> str:
        """The cluster, as text."""
        raise NotImplementedError

    def with_faults(self, faults: list[Fault]) -> Self:
        """The same cluster with other faults."""
        return replace(self, faults=tuple(faults))

    def __str__(self) -> str:
        return "; ".join((self.head(), *map(str, self.faults)))


def split_plan(text: str, kinds: Collection[str]) -> tuple[dict[str, str], tuple[Fault, ...]]:
    """The words of a plan's cluster, and its faults, each of one of these kinds; PlanError when one is not."""
    head, _, rest = text.partition(";")
    faults = []
    for part in rest.split(";"):
        words = part.split()
        if not words:
            continue
        if len(words) < 2 or not words[0].isdigit() or words[1] not in kinds:
            raise PlanError(f"'{part.strip()}' is no fault. Write 'MS KIND ...' with one of: {', '.join(kinds)}.")
        faults.append(Fault(int(words[0]), words[1], tuple(words[2:])))
    return dict(word.partition("=")[::2] for word in head.split()), tuple(faults)
