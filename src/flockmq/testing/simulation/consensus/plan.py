"""Plans of the layer ``consensus``: groups of replicas, and every kind of fault. See ``simulation/plan.py``.

```
 nodes=5 groups=2 voters=1,2,3 victims=3 ms=8000; 1200 crash 3; 1900 start 3; 2000 cut 1>2 1>3 hold; 5000 jump 2 -4000
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from flockmq.testing.simulation.plan import Plan, PlanError, split_plan

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
    "isolate": "NODE [FRIENDS]: it reaches so many of the others, and no more",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusPlan(Plan):
    """The cluster: how many nodes and groups, which of them vote, which disks may lie."""

    LAYER: ClassVar[str] = "consensus"
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

    def head(self) -> str:
        """The cluster, as text."""
        switches = f"tiny={int(self.tiny)} lease={int(self.lease)} prefer={int(self.prefer)}"
        return (
            f"nodes={self.nodes} groups={self.groups} voters={_words(self.voters)} victims={_words(self.victims)} "
            f"election={self.election_ms} {switches} ms={self.duration_ms}"
        )


def parse_plan(text: str) -> ConsensusPlan:
    """Read ``str(plan)``; what its head leaves out is as usual. PlanError says what is wrong with it."""
    values, faults = split_plan(text, KINDS)
    usual = ConsensusPlan()
    try:
        return ConsensusPlan(
            nodes=int(values["nodes"]),
            groups=int(values.get("groups", usual.groups)),
            voters=_numbers(values["voters"]),
            victims=_numbers(values.get("victims", "none")),
            election_ms=int(values.get("election", usual.election_ms)),
            tiny=values.get("tiny", "0") == "1",
            lease=values.get("lease", "1") == "1",
            prefer=values.get("prefer", "0") == "1",
            duration_ms=int(values["ms"]),
            faults=faults,
        )
    except (KeyError, ValueError) as error:
        raise PlanError(
            f"A plan starts with its cluster, 'nodes=5 voters=1,2,3 ms=8000;', not '{text.partition(';')[0]}'."
        ) from error


def _words(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers)) or "none"


def _numbers(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(int(word) for word in text.split(","))
