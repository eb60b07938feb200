"""What a run is made of: the cluster, and what goes wrong in it when. Text that can be printed, read back and cut down.

```
 nodes=5 groups=2 voters=1,2,3 victims=3 ms=8000; 1200 crash 3; 1900 start 3; 2000 cut 1>2 1>3 hold; 5000 jump 2 -4000
 `------------------ the cluster ---------------' ^ ms  ^ what  ^ with
```
The simulator draws a plan from the seed (``generate.py``) or takes the one it is given; shrinking removes faults from
it. A kept plan means the same for ever, whatever later versions draw from its seed. Chance inside a fault (which
sectors survive) comes from the seed and the fault's own text, so removing one fault leaves the others as they were.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from flockmq.errors import FlockError

KINDS: Final = {
    "crash": "NODE: power loss, unsynced bytes are gone or torn; the node stays down until it is started",
    "kill": "NODE: the process dies, what it wrote stays",
    "trap": "NODE write|written|sent|vote|lead|applied: power loss right after it began a write, ended one, sent, ...",
    "coup": "GROUP: the next leader is cut off as it is elected, all others lose power and are started at once",
    "ambush": "GROUP FRIENDS [TRAP]: the next leader is cut off from all but so many as it is elected, and trapped",
    "start": "NODE: if it is down",
    "pause": "NODE MS: the process stands still, then finds all its messages at once",
    "jump": "NODE MS: its clock jumps ahead or back",
    "cut": "A>B ... [hold]: these directions carry nothing; hold: resent after the next join",
    "isolate": "NODE [FRIENDS]: it reaches nobody but so many of the others",
    "narrow": "GROUP NODE: the leader reaches NODE and as few others as a majority needs",
    "flank": "GROUP NODE: after narrow: NODE reaches those that were left out, and no others",
    "takeover": "GROUP: the leader reaches no other voter, and is asked twice for voters that are none yet",
    "join": "all cuts are healed",
    "network": "LOSS DUPLICATE REORDER LATE DELAY_MS: permille each, and the longest usual delay",
    "fail": "NODE CALLS: the disk fails one of its next writes or syncs",
    "full": "NODE: the disk takes nothing more until the node is started again",
    "slow": "NODE MS: a write takes up to this long, until the node is started again",
    "flip": "NODE BITS [tail]: bits turn over on its disk, in what was written last, and the machine crashes",
    "wipe": "NODE: its disk is replaced by an empty one",
    "members": "GROUP VOTERS [LEARNERS]: the leader is asked to change them, as in 1,2,3 4,5; here, rest: as they are",
    "move": "GROUP NODE: the leader is asked to hand over",
    "compact": "NODE GROUP: makes a snapshot and forgets the entries before it",
}


class ScheduleError(FlockError):
    """A schedule can't be read; the sentence says where."""


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
    """What is decided before a run begins; all else follows from it and the seed."""

    nodes: int = 5
    groups: int = 1
    voters: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Of every group at the start."""
    victims: tuple[int, ...] = ()
    """Nodes whose disks may lie."""
    election_ms: int = 1_000
    """Raft's election timeout: short ones make delays look like failures."""
    tiny: bool = False
    """Whether messages hold next to nothing, so that everything takes many of them."""
    lease: bool = True
    prefer: bool = False
    """Whether each group has a node that should lead it, so that leadership moves about by itself."""
    duration_ms: int = 10_000
    """How long things go wrong; then all is healed and must work again."""
    faults: tuple[Fault, ...] = ()

    def with_faults(self, faults: list[Fault]) -> Plan:
        """The same cluster with another schedule."""
        return replace(self, faults=tuple(faults))

    def __str__(self) -> str:
        switches = f"tiny={int(self.tiny)} lease={int(self.lease)} prefer={int(self.prefer)}"
        head = " ".join(
            (
                f"nodes={self.nodes} groups={self.groups} voters={_words(self.voters)} victims={_words(self.victims)}",
                f"election={self.election_ms} {switches} ms={self.duration_ms}",
            )
        )
        return "; ".join((head, *map(str, self.faults)))


def parse_plan(text: str) -> Plan:
    """Read ``str(plan)``; what its head leaves out is as usual. ScheduleError says what is wrong with it."""
    head, _, rest = text.partition(";")
    values = dict(word.partition("=")[::2] for word in head.split())
    usual = Plan()
    try:
        return Plan(
            nodes=int(values["nodes"]),
            groups=int(values.get("groups", usual.groups)),
            voters=_numbers(values["voters"]),
            victims=_numbers(values.get("victims", "none")),
            election_ms=int(values.get("election", usual.election_ms)),
            tiny=values.get("tiny", "0") == "1",
            lease=values.get("lease", "1") == "1",
            prefer=values.get("prefer", "0") == "1",
            duration_ms=int(values["ms"]),
            faults=tuple(parse_schedule(rest)),
        )
    except (KeyError, ValueError) as error:
        raise ScheduleError(
            f"A schedule starts with its cluster, 'nodes=5 voters=1,2,3 ms=8000;', not '{head}'."
        ) from error


def _words(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers)) or "none"


def _numbers(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(int(word) for word in text.split(","))


def parse_schedule(text: str) -> list[Fault]:
    """Read a schedule; ScheduleError says which fault is wrong."""
    faults = []
    for part in text.split(";"):
        words = part.split()
        if not words:
            continue
        if len(words) < 2 or not words[0].isdigit() or words[1] not in KINDS:
            raise ScheduleError(f"'{part.strip()}' is no fault. Write 'MS KIND ...' with one of: {', '.join(KINDS)}.")
        faults.append(Fault(int(words[0]), words[1], tuple(words[2:])))
    return faults
