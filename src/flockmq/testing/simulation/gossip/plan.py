"""Plans of the layer ``gossip``: members on a network that loses datagrams. See ``simulation/plan.py``.

```
 nodes=20 loss=50 ms=60000; 8000 kill 7; 15000 start 7; 21000 split 1,2,3|4,5,6; 40000 join; 45000 pause 2 1200
```
Nodes count from 1; ``loss`` is the permille of datagrams that vanish.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Final

from flockmq.testing.simulation.plan import Fault, Plan, PlanError, split_plan

KINDS: Final = {
    "kill": "NODE [silent]: the process dies; silent: its links don't break, as when a machine loses power",
    "start": "NODE [new]: if it is down; new: with another id, as after its disk was lost",
    "leave": "NODE: it says good-bye, then is gone",
    "pause": "NODE MS: the process stands still, its socket's buffer fills",
    "cut": "A>B: nothing gets from A to B",
    "split": "A,B|C...: nodes of different parts don't reach each other",
    "join": "all nodes reach each other again",
}
SHORT_MS: Final = 1_200
"""A pause that costs no node its life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipPlan(Plan):
    """How many members, and how bad the network is."""

    LAYER: ClassVar[str] = "gossip"
    nodes: int = 10
    loss: int = 0

    def head(self) -> str:
        """The cluster, as text."""
        return f"nodes={self.nodes} loss={self.loss} ms={self.duration_ms}"


def parse_plan(text: str) -> GossipPlan:
    """Read ``str(plan)``; PlanError says what is wrong with it."""
    values, faults = split_plan(text, KINDS)
    try:
        nodes, loss, duration_ms = (int(values[name]) for name in ("nodes", "loss", "ms"))
    except (KeyError, ValueError) as error:
        raise PlanError(f"A plan reads like 'nodes=20 loss=50 ms=60000; 8000 kill 7', not {text!r}") from error
    return GossipPlan(nodes=nodes, loss=loss, duration_ms=duration_ms, faults=faults)


def draw_plan(seed: int, nodes: int = 0) -> GossipPlan:
    """The plan of a seed, with so many nodes if they are given. Nodes 1 to 3 stay: they are contact points."""
    rng = random.Random(f"{seed} plan")  # noqa: S311
    drawn = rng.choice((4, 6, 10, 20, 40))
    plan = GossipPlan(nodes=nodes or drawn, loss=rng.choice((0, 0, 20, 50)), duration_ms=rng.choice((30_000, 90_000)))
    faults: list[Fault] = []
    at = rng.randrange(500, 5_000)
    while at < plan.duration_ms and plan.nodes > 3:
        at = _draw_fault(rng, plan.nodes, at, faults) + rng.choice((200, 2_000, 8_000))
    return plan.with_faults(sorted(faults))


def _draw_fault(rng: random.Random, nodes: int, at: int, faults: list[Fault]) -> int:
    """Add a fault, and what ends it; when the next one may come."""
    node = str(rng.randrange(3, nodes) + 1)
    kind = rng.choice(("kill", "kill", "leave", "pause", "cut", "split"))
    back = at + rng.choice((300, 4_000, 15_000))
    if kind in ("kill", "leave"):
        faults.append(Fault(at, kind, (node, *(["silent"] if kind == "kill" and rng.random() < 0.5 else []))))
        faults.append(Fault(back, "start", (node, *(["new"] if rng.random() < 0.2 else []))))
    elif kind == "pause":
        faults.append(Fault(at, kind, (node, str(rng.choice((SHORT_MS, SHORT_MS, 20_000))))))
    elif kind == "cut":
        other = rng.choice([number for number in range(1, nodes + 1) if str(number) != node])
        faults.append(Fault(at, kind, (f"{node}>{other}",)))
        faults.append(Fault(back, "join"))
    else:
        numbers = list(range(1, nodes + 1))
        rng.shuffle(numbers)
        cut = rng.randrange(1, nodes)
        parts = "|".join(",".join(map(str, sorted(part))) for part in (numbers[:cut], numbers[cut:]))
        faults.append(Fault(at, kind, (parts,)))
        faults.append(Fault(back, "join"))
    return back if rng.random() < 0.4 else at
