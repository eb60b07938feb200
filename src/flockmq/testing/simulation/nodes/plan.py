"""Plans of the layer ``nodes``: a cluster with one durable topic, and what goes wrong. See ``simulation/plan.py``.

``ack=leader`` or ``ack=memory`` stand behind the cluster where the topic acknowledges early, ``readers=1`` where logs
are asked for their ends, and for a cursor, ``sessions=1`` where persistent sessions go away and come back, ``wills=1``
where clients leave wills, ``groups=1`` where members of a consumer group share the topic. ``L0`` is the leader of shard
0 at that moment, ``S0`` and ``C0`` those of shards 0 of ``$sessions`` and ``$capture``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Final

from flockmq.cluster.model import ACK_NAMES, LEADER, MEMORY, QUORUM
from flockmq.testing.simulation.plan import Fault, Plan, PlanError, split_plan

KINDS: Final = {
    "kill": "NODE: the process dies, what it wrote stays",
    "crash": "NODE: power loss, unsynced bytes are gone or torn",
    "start": "NODE: if it is down",
    "pause": "NODE MS: the process stands still, then finds all its messages at once",
    "split": "A,B|C...: nodes of different parts don't reach each other",
    "join": "all nodes reach each other again",
    "slow": "NODE MS: each write takes up to this long, until the node is started again",
    "delay": "MS: frames take up to this long",
    "roam": "NODE: all its clients lose their connections",
    "blackout": "all nodes lose power at once, and start again a little later",
    "make": "NODE NAME: another topic is asked for",
    "drop": "NODE NAME: and not wanted any more",
    "rebalance": "NODE: partitions and leaders are to be spread evenly",
    "grow": "NODE: the topic gets one more shard, once in a run",
    "copies": "NODE N: the topic is to have so many replicas",
    "wipe": "NODE: the process dies and its store is gone; what lies beside the store stays",
    "flip": "NODE: a bit turns over in a segment file, among entries that are committed",
    "copy": "NODE: a copy of its store is put away",
    "rollback": "NODE: the process dies and that copy takes the place of its store; what lies beside the store stays",
    "isolate": "NODE: it reaches no other node, until ``join``",
    "hand": "NODE: it hands over all groups that it leads",
    "jump": "NODE MS: its time of day is set to another one; its other clock goes on",
    "compact": "NODE: its replicas of ``$sessions`` make a checkpoint and forget the entries before",
    "sweep": "NODE: retention looks at its replicas of ``$capture`` at once",
    "hold": "NODE: the shards of ``$sessions`` that it leads say at once what of ``$capture`` has to stay",
}
DRAWN: Final = (
    *("kill", "crash", "crash", "pause", "split", "split"),
    *("slow", "delay", "roam", "blackout", "make", "rebalance", "grow", "copies"),
)
ACKS: Final = (QUORUM, QUORUM, QUORUM, QUORUM, LEADER, MEMORY)
SESSIONS_DRAWN: Final = True
"""Whether half of the seeds draw persistent sessions: those do not survive the death of their node yet."""
DRAWN_OF_SESSIONS: Final = ("kill", "crash", "pause", "isolate", "hand", "hand", "compact", "jump", "roam")
JUMPS_MS: Final = (-3_600_000, -60_000, 60_000, 7 * 3_600_000, 8 * 24 * 3_600_000)
"""Of hours: captured messages that no session waits for may go. Of days: others as well, and sessions have a gap."""
SEGMENT_BYTES: Final = 32_768
START_MS: Final = 300
"""A node that is down is started after this at the earliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPlan(Plan):
    """The cluster, its topic, and how it is read."""

    LAYER: ClassVar[str] = "nodes"
    nodes: int = 3
    shards: int = 2
    copies: int = 3
    ack: int = QUORUM
    readers: int = 0
    """Clients that ask where logs end, and move a cursor."""
    sessions: int = 0
    """1: there are persistent sessions, and publishers to names of no durable topic. 2: subscriptions come and go."""
    wills: int = 0
    """1: there are clients that leave wills. 2: some of them with a delay."""
    groups: int = 0
    """1: there is a consumer group. 2: one in ``key`` mode."""
    segment: int = SEGMENT_BYTES
    """Size of segment files: retention takes whole ones."""

    def head(self) -> str:
        """The cluster, as text."""
        head = f"nodes={self.nodes} shards={self.shards} copies={self.copies} ms={self.duration_ms}"
        if self.ack != QUORUM:
            head += f" ack={ACK_NAMES[self.ack]}"
        if self.readers:
            head += f" readers={self.readers}"
        if self.sessions:
            head += f" sessions={self.sessions}"
        if self.wills:
            head += f" wills={self.wills}"
        if self.groups:
            head += f" groups={self.groups}"
        return f"{head} segment={self.segment}" if self.segment != SEGMENT_BYTES else head


def parse_plan(text: str) -> NodesPlan:
    """Read ``str(plan)``; PlanError says what is wrong with it."""
    values, faults = split_plan(text, KINDS)
    try:
        return NodesPlan(
            nodes=int(values["nodes"]),
            shards=int(values["shards"]),
            copies=int(values["copies"]),
            duration_ms=int(values["ms"]),
            ack=ACK_NAMES.index(values.get("ack", ACK_NAMES[QUORUM])),
            readers=int(values.get("readers", 0)),
            sessions=int(values.get("sessions", 0)),
            wills=int(values.get("wills", 0)),
            groups=int(values.get("groups", 0)),
            segment=int(values.get("segment", SEGMENT_BYTES)),
            faults=faults,
        )
    except (KeyError, ValueError) as error:
        raise PlanError(f"A plan reads like 'nodes=3 shards=2 copies=3 ms=12000; 900 kill 2', not {text!r}") from error


def draw_plan(seed: int, nodes: int = 0) -> NodesPlan:
    """The plan of a seed, with so many nodes if they are given."""
    rng = random.Random(f"{seed} plan")  # noqa: S311
    drawn = rng.choice((3, 3, 3, 4, 5))
    plan = NodesPlan(
        nodes=nodes or drawn,
        shards=rng.choice((1, 2, 3)),
        duration_ms=rng.choice((6_000, 9_000, 12_000, 18_000)),
        ack=random.Random(f"{seed} ack").choice(ACKS),  # noqa: S311
        readers=random.Random(f"{seed} readers").randrange(2),  # noqa: S311
        sessions=draw_sessions(seed) if SESSIONS_DRAWN else 0,
        wills=draw_wills(seed) if SESSIONS_DRAWN else 0,
        groups=draw_groups(seed),
        segment=random.Random(f"{seed} segment").choice((SEGMENT_BYTES, SEGMENT_BYTES, 2_048)),  # noqa: S311
    )
    faults: list[Fault] = []
    at = rng.randrange(200, 1_500)
    while at < plan.duration_ms:
        at = _draw_fault(rng, plan, at, faults) + rng.choice((50, 400, 1_200, 2_500))
    stores = _draw_stores(seed, plan)
    flips = [] if stores else _draw_flips(seed, plan, faults)
    return plan.with_faults(sorted([*faults, *stores, *flips, *_draw_of_sessions(seed, plan)]))


def draw_sessions(seed: int) -> int:
    """Whether the plan of a seed has persistent sessions. Apart from all other draws, which stay as they are."""
    rng = random.Random(f"{seed} sessions")  # noqa: S311
    return rng.randrange(2) and rng.choice((1, 1, 2))


def draw_wills(seed: int) -> int:
    """Whether clients leave wills."""
    rng = random.Random(f"{seed} wills")  # noqa: S311
    return rng.randrange(2) and rng.choice((1, 1, 2))


def draw_groups(seed: int) -> int:
    """Whether the plan of a seed has a consumer group. Apart from all other draws, which stay as they are."""
    rng = random.Random(f"{seed} groups")  # noqa: S311
    return rng.randrange(2) and rng.choice((1, 1, 2))


def _draw_of_sessions(seed: int, plan: NodesPlan) -> list[Fault]:
    """In half of the runs with sessions or wills: what goes wrong where those are kept."""
    rng = random.Random(f"{seed} shards of sessions")  # noqa: S311
    if not (plan.sessions or plan.wills) or rng.random() < 0.5:
        return []
    faults: list[Fault] = []
    at = rng.randrange(500, 3_000)
    while at < plan.duration_ms:
        node = rng.choice((f"S{rng.randrange(4)}", f"C{rng.randrange(8)}", str(rng.randrange(plan.nodes) + 1)))
        kind = rng.choice(DRAWN_OF_SESSIONS)
        back = at + rng.choice((START_MS, 1_000, 3_000))
        if kind == "pause":
            faults.append(Fault(at, kind, (node, str(rng.choice((300, 1_500, 2_500, 4_000))))))
        elif kind == "jump":
            faults += [Fault(at, "hold", (str(one + 1),)) for one in range(plan.nodes)]
            node = str(rng.randrange(plan.nodes) + 1)
            faults.append(Fault(at + 200, kind, (node, str(rng.choice(JUMPS_MS)))))
            faults.append(Fault(at + 300, "sweep", (node,)))
        elif kind == "compact":
            faults += [Fault(at, kind, (str(one + 1),)) for one in range(plan.nodes)]
        else:
            faults.append(Fault(at, kind, (node,)))
        if kind in ("kill", "crash"):
            faults.append(Fault(back, "start", ("all",)))
        elif kind == "isolate":
            faults.append(Fault(at + rng.choice((500, 2_500, 5_000)), "join"))
        at += rng.choice((300, 1_000, 3_000))
    return faults


def _draw_flips(seed: int, plan: NodesPlan, faults: list[Fault]) -> list[Fault]:
    """One node has a bad disk, where no other copy is lost on purpose: what only it has is gone for good."""
    rng = random.Random(f"{seed} flips")  # noqa: S311
    if any(fault.kind == "copies" for fault in faults):
        return []
    node = str(rng.randrange(plan.nodes) + 1)
    return [Fault(rng.randrange(1_000, plan.duration_ms), "flip", (node,)) for _ in range(rng.choice((0, 1, 4)))]


def _draw_stores(seed: int, plan: NodesPlan) -> list[Fault]:
    """In half of the runs stores are wiped, or replaced by older copies of themselves."""
    rng = random.Random(f"{seed} stores")  # noqa: S311
    if rng.random() < 0.5:
        return []
    faults: list[Fault] = []
    at = rng.randrange(500, 3_000)
    while at < plan.duration_ms:
        node = str(rng.randrange(plan.nodes) + 1)
        if rng.random() < 0.5:
            faults.append(Fault(at, "copy", (node,)))
            at += rng.choice((100, 1_600))
            faults.append(Fault(at, "rollback", (node,)))
        else:
            faults.append(Fault(at, "wipe", (node,)))
        at += rng.choice((START_MS, 1_000, 3_000))
        faults.append(Fault(at, "start", ("all",)))
        at += rng.choice((1_000, 4_000, 8_000))
    return faults


def _draw_fault(rng: random.Random, plan: NodesPlan, at: int, faults: list[Fault]) -> int:
    """Add a fault, and what ends it; when the next one may come."""
    node = rng.choice((f"L{rng.randrange(plan.shards)}", str(rng.randrange(plan.nodes) + 1)))
    kind = rng.choice(DRAWN)
    back = at + rng.choice((START_MS, 1_000, 3_000))
    if kind in ("kill", "crash"):
        faults.append(Fault(at, kind, (node,)))
        faults.append(Fault(back, "start", ("all",)))
    elif kind == "pause":
        faults.append(Fault(at, kind, (node, str(rng.choice((300, 1_500, 4_000))))))
    elif kind == "split":
        faults.append(Fault(at, kind, (_draw_parts(rng, plan.nodes),)))
        back = at + rng.choice((500, 2_500, 5_000, 12_000))  # at the longest, nodes give up what waits for a leader
        faults.append(Fault(back, "join"))
        if rng.random() < 0.5:  # clients give up a part and go on in another, while what they sent is stuck
            faults.append(Fault(at + 300, "roam", (str(rng.randrange(plan.nodes) + 1),)))
    elif kind == "slow":
        faults.append(Fault(at, kind, (node, str(rng.choice((20, 100, 400))))))
    elif kind == "delay":
        faults.append(Fault(at, kind, (str(rng.choice((1, 20, 100))),)))
    elif kind in ("roam", "rebalance", "grow"):
        faults.append(Fault(at, kind, (node,)))
    elif kind == "copies":
        faults.append(Fault(at, kind, (node, str(rng.randrange(plan.nodes) + 1))))
    elif kind == "make":
        name = f"other{len(faults)}"
        faults.append(Fault(at, kind, (node, name)))
        if rng.random() < 0.5:
            faults.append(Fault(back, "drop", (str(rng.randrange(plan.nodes) + 1), name)))
    else:
        faults.append(Fault(at, kind))
        faults.append(Fault(back, "start", ("all",)))
    # Often the next one comes before this one is over.
    return back if rng.random() < 0.4 else at


def _draw_parts(rng: random.Random, nodes: int) -> str:
    numbers = list(range(1, nodes + 1))
    rng.shuffle(numbers)
    if rng.random() < 0.2:
        return "|".join(map(str, sorted(numbers)))
    cut = rng.randrange(1, nodes)
    return "|".join(",".join(map(str, sorted(part))) for part in (numbers[:cut], numbers[cut:]))
