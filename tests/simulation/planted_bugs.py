"""Known mistakes of Raft implementations, as small changes of ours, and how many seeds it takes to find each.

``python tests/simulation/planted_bugs.py NAME --seeds 100`` plants one and simulates until a rule is broken; with
``--schedule`` all seeds run that plan. Needs FLOCKMQ_PURE=1: compiled functions can't be changed. The plans that found
each are kept in ``planted_bugs.txt``, and tried again by ``test_planted_bugs.py``. Those of ``LAYER_BUGS`` are mistakes
of whole nodes and of membership, found by their layers with the plan that stands beside them.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType

from flockmq.testing.simulation.consensus.plan import parse_plan
from flockmq.testing.simulation.layers import LAYERS, run_plan, run_seed
from flockmq.testing.simulation.outcome import Outcome
from flockmq.testing.simulation.plan import Plan
from flockmq.testing.simulation.sweep import shrink_outcome, sweep


@dataclass(frozen=True)
class Change:
    """In a function of a module, this text becomes that."""

    module: str
    function: str
    before: str
    after: str


TRUNCATE = """
    if entries and log.term_at(entries[-1].index) == entries[-1].term:
        log.truncate_from(entries[-1].index + 1)
        membership.note_truncation(state, entries[-1].index + 1)
"""

BUGS: dict[str, list[Change]] = {
    "vote not durable before the reply": [
        Change("raft.election", "on_vote_request", "state.promise(VoteReply(", "state.send(VoteReply("),
    ],
    "older term committed by count": [
        Change("raft.replication", "commit_by_count", "state.log.term_at(agreed) != state.term", "False"),
    ],
    "stale read after a partition": [
        Change("raft.reads", "read", "elif has_lease(state, now):", "elif True:"),
    ],
    "committed entries truncated": [
        # The first implementation of many: remove all that is behind the entries of an append, agreeing or not.
        Change("raft.replication", "_take_in", "    log = state.log\n", "    log = state.log\n" + TRUNCATE),
    ],
    "snapshot over a newer log": [
        Change("raft.installing", "on_chunk", "if meta.index <= state.commit:", "if False:"),
        Change("raft.installing", "on_chunk", "if state.log.term_at(meta.index) == meta.term:", "if False:"),
    ],
    "vote forgotten by a restart": [
        Change(
            "raft.replicas",
            "open_replica",
            "HardState(log.term, log.vote, _health(log))",
            "HardState(log.term, 0, _health(log))",
        ),
    ],
    "two changes of members at once": [
        Change("raft.membership", "refusal", "current.is_joint or state.configuration_index > state.commit", "False"),
    ],
    "acknowledged before it is durable": [
        Change("raft.persistence", "_promise_acknowledgement", "state.promises.append(", "state.outbox.append("),
    ],
    "lease believes a clock that jumped": [
        Change("raft.reads", "has_lease", "not clock.is_sane(now) or clock.jumps != begin.jumps", "False"),
        Change("raft.reads", "has_lease", " and (clock.ticks - begin.ticks) * clock.tick_ms < lease_ms", ""),
    ],
    "acknowledged tail cut as if torn": [
        Change(
            "log.scan", "_unwritten", "    end = at + header.size\n", "    return True\n    end = at + header.size\n"
        ),
    ],
}


WIPED = (
    "nodes=3 shards=2 copies=3 ms=9000; 2000 kill 3; 4000 kill 1; 4000 kill 2; 4100 wipe 2; 4200 start 2; "
    "4200 start 3; 5500 start 1"
)
ROLLED_BACK = (
    "nodes=3 shards=2 copies=3 ms=9000; 1000 copy 2; 2000 kill 3; 4000 rollback 2; 4001 kill 1; 4200 start 2; "
    "4200 start 3; 6500 start 1"
)
AS_RANGE = """{
    one: SentMessage(it.partition, min([old.offset for old in [*change.sent.values(), it]]) + len(change.sent) + place)
    for place, (one, it) in enumerate(listed.items())
}"""
OWNERS_DIE = (
    "nodes=3 shards=1 copies=3 ms=12000 sessions=1; 2000 kill 1; 3000 start 1; 4000 kill 2; 5000 start 2; "
    "6000 kill 3; 7000 start 3; 8000 kill 1; 9000 start 1; 9500 kill 2; 10500 start 2"
)
NODE_BUGS: dict[str, tuple[str, list[Change]]] = {
    "SEND2 as a range": (
        # From the first offset on, as if the session had got all records up to the last one.
        OWNERS_DIE,
        [
            Change(
                "durable.sessions.sending",
                "SessionSending.take",
                "change.sent.update(listed)",
                "change.sent.update(" + AS_RANGE + ")",
            )
        ],
    ),
    "PUBREL before REC2": (
        OWNERS_DIE,
        [
            Change(
                "durable.sessions.sending",
                "SessionSending.received",
                "self.received_ids[packet_id] = None\n    self._notice(self, True)\n    return True",
                "return False",
            )
        ],
    ),
    "PUBLISH before SEND2": (
        OWNERS_DIE,
        [Change("session.session", "Session.hold", "flight.is_unlisted = True", "self.send_held(flight, 0)")],
    ),
    "a wiped store founds again": (
        WIPED,
        [
            Change(
                "durable.replicas.partitions",
                "Partitions._is_registered",
                "record.store == ",
                "True or record.store == ",
            ),
            Change("cluster.changes_nodes", "_with_stores", "if known.id in partition.founders:", "if False:"),
        ],
    ),
    "an older copy is taken for the store": (
        ROLLED_BACK,
        [Change("log.witness", "judge", "last_sequence < witness.sequence", "False")],
    ),
}

CLUSTER = "nodes=3 shards=1 copies=3"
ROAMING = f"{CLUSTER} ms=9000 sessions=1; 2500 roam 1; 3000 roam 2; 4000 roam 3; 5000 roam 1; 6000 roam 2; 7000 roam 3"
HOLD = "6000 hold 1; 6000 hold 2; 6000 hold 3"
STUCK = f"{CLUSTER} ms=14000; " + "; ".join(
    f"{at} pause {at // 1_500 % 3 + 1} 1500; {at + 100} roam {at // 1_500 % 3 + 1}"
    for at in range(2_000, 12_500, 1_500)
)
SESSION_BUGS: dict[str, tuple[str, list[Change]]] = {
    "claims do not say what they have seen": (
        ROAMING,
        [
            Change(
                "durable.machine.session_table",
                "SessionTable.is_late",
                "return record is not None and",
                "return False and",
            )
        ],
    ),
    "a will overwritten by the next claim": (
        f"{CLUSTER} ms=9000 wills=1",
        [
            Change(
                "durable.machine.session_table",
                "SessionTable._grant",
                "self.wills.taken_over(record.client, record.epoch, had_session, clock_ms)",
                "self.wills.void(record.client, record.epoch)",
            )
        ],
    ),
    "a goodbye leaves the will": (
        f"{CLUSTER} ms=9000 wills=1; 3000 delay 20",
        [
            Change(
                "durable.machine.session_table",
                "SessionTable._detach",
                "if statement.voids_will:",
                "if False:",
            )
        ],
    ),
    "a delayed will outlives the return of its client": (
        f"{CLUSTER} ms=9000 wills=2",
        [
            Change(
                "durable.machine.session_wills",
                "SessionWills.taken_over",
                "if goes_on and known.will.delay_s:",
                "if False:",
            )
        ],
    ),
    "a run of wills is another one each time it is sent": (
        f"{CLUSTER} ms=12000 wills=1; " + "; ".join(f"{at} hand S{at // 500 % 4}" for at in range(2_500, 11_500, 500)),
        [
            Change(
                "durable.sessions.firing",
                "WillFiring._on_run",
                "sequence = reader.number()",
                "sequence = reader.number() + self._calls.now",
            )
        ],
    ),
    "leaders take records of replaced owners": (
        STUCK,
        [
            Change(
                "durable.machine.fences",
                "Fences.admits",
                "if epoch and not 0 < oldest[names[position]] <= epoch:",
                "if False:",
            )
        ],
    ),
    "partitions are not noted before QoS 2 records go there": (
        ROAMING,
        [
            Change(
                "durable.qos2.touching",
                "Touching.touch",
                "while groups and",
                "groups = []\n    while groups and",
            )
        ],
    ),
    "positions pass what is in flight": (
        ROAMING,
        [
            Change(
                "durable.sessions.positions",
                "Positions.behind",
                "outbound.oldest_logged() if outbound is not None else {}",
                "{}",
            )
        ],
    ),
    "positions of a closed connection are one too far": (
        ROAMING,
        [
            Change(
                "durable.sessions.positions",
                "Positions.of",
                "found[group] = stream.next",
                "found[group] = stream.next + 1",
            )
        ],
    ),
    "the time of sessions is the leader's time of day": (
        f"{CLUSTER} ms=9000 sessions=1; 3000 jump 1 691200000; 3500 hand 2; 4000 jump 2 691200000; 4500 hand 3",
        [
            Change(
                "durable.sessions.serving",
                "SessionShards.clock_ms",
                "term = self._term(group)",
                "return self._control.wall.at(self._calls.now)\n    term = self._term(group)",
            )
        ],
    ),
    "captured messages are held to the end of their log": (
        f"{CLUSTER} ms=12000 sessions=1 segment=2048; {HOLD}; 6500 jump 1 25200000; 6600 sweep 1",
        [
            Change(
                "durable.sessions.holding",
                "CaptureHolds._hold",
                "offset = min(least.get(captured, found.end), found.end)",
                "offset = found.end",
            )
        ],
    ),
}
"""Mistakes of persistent sessions."""
NODE_BUGS |= SESSION_BUGS

LEADERS = (
    "nodes=3 shards=2 copies=3 ms=7000 groups=1; 1500 kill L0; 2500 start all; 3500 pause L1 2000; 4500 split 1|2,3; "
    "5500 join; 6000 crash L0; 6500 start all"
)
KEYS = LEADERS.replace("groups=1", "groups=2")
HANDED = "nodes=3 shards=2 copies=3 ms=7000 groups=1; " + "; ".join(
    f"{at} hand {at // 300 % 3 + 1}" for at in range(1_500, 6_900, 300)
)
GROUP_BUGS: dict[str, tuple[str, list[Change]]] = {
    "a new leader does not ask what members hold": (
        LEADERS,
        [Change("durable.groups.offices", "Offices.knows_holders", "return office.is_collected or", "return True or")],
    ),
    "a grant that comes twice counts twice": (
        LEADERS,
        [
            Change(
                "durable.groups.pulling", "Puller._heard", "if grant.number == self._seen + 1:", "if grant.number > 0:"
            )
        ],
    ),
    "a run of dead letters is another one each time it is sent": (
        HANDED,
        [
            Change(
                "durable.groups.letters",
                "Letters._on_part",
                "sequence = reader.number()",
                "sequence = reader.number() + self._calls.now",
            )
        ],
    ),
    "a key moves while its records are held": (
        KEYS,
        [
            Change(
                "durable.groups.keyed_window",
                "KeyedWindow._hand_out_lane",
                "if lane.holder is not None and lane.holder is not holder:",
                "if False:",
            ),
            Change(
                "durable.groups.keyed_window",
                "KeyedWindow._list",
                "elif lane.holder is None or lane.holder is owner:",
                "else:",
            ),
        ],
    ),
    "a new leader forgets what is settled above the floor": (
        LEADERS,
        [Change("durable.groups.window", "Window.load", "in state.settled.ranges():", "in []:")],
    ),
    "tokens do not say who handed the record out": (
        LEADERS,
        [Change("durable.groups.window", "Window.attempt", "return self._term |", "return")],
    ),
}
"""Mistakes of consumer groups."""
NODE_BUGS |= GROUP_BUGS

MEMBERS = "nodes=10 loss=50 ms=60000; 10000 pause 4 1200; 20000 pause 5 1200; 30000 pause 6 1200; 40000 pause 7 1200"
GOSSIP_BUGS: dict[str, tuple[str, list[Change]]] = {
    "a suspect has no time to contradict": (
        MEMBERS,
        [
            Change(
                "gossip.probing",
                "Prober.judge_suspects",
                "due = ends_at - 2 * step",
                "due, suspicion.last_words = now, 2",
            )
        ],
    ),
}
LAYER_BUGS = {"nodes": NODE_BUGS, "gossip": GOSSIP_BUGS}
"""Layer -> its bugs, each with the plan that finds it."""
FINDS = {
    "nodes": (
        *("safety", "nothing lost", "replicas", "exactly once", "one record an id", "adopted"),
        *("session claims", "session epochs", "session present", "session keeps", "session order", "session machines"),
        *("exactly once out", "live order", "nothing before", "positions", "holds"),
        *("will once", "will kept", "will void"),
        *("group one holder", "group done", "group order", "group delivery", "group complete", "group letters"),
    ),
    "gossip": ("wrong death",),
}


def plant(change: Change) -> None:
    """Give a function, or a method, another body, wherever it was imported to."""
    module = importlib.import_module(f"flockmq.{change.module}")
    function: object = module
    for name in change.function.split("."):
        function = getattr(function, name)
    if not isinstance(function, FunctionType):
        raise TypeError(f"{change.function} is compiled: set FLOCKMQ_PURE=1")
    source = getattr(function, "planted_source", None) or textwrap.dedent(inspect.getsource(function))
    if source.count(change.before) != 1:
        raise ValueError(f"{change.module}.{change.function} does not have {change.before!r} exactly once any more")
    source = source.replace(change.before, change.after)
    names: dict[str, object] = {}
    code = compile("from __future__ import annotations\n" + source, f"{module.__file__} (changed)", "exec")
    exec(code, module.__dict__, names)
    changed = names[change.function.rpartition(".")[2]]
    assert isinstance(changed, FunctionType)
    function.__code__ = changed.__code__
    function.__dict__["planted_source"] = source


def plant_bug(name: str) -> None:
    """Make one known mistake, for the rest of this process."""
    for change in BUGS[name] if name in BUGS else LAYER_BUGS[layer_of(name)][name][1]:
        plant(change)


def layer_of(name: str) -> str:
    """The layer that finds a bug."""
    return next((layer for layer, bugs in LAYER_BUGS.items() if name in bugs), "consensus")


def plan_of(name: str) -> Plan:
    """The plan that finds a bug of another layer than consensus."""
    layer = layer_of(name)
    plan: Plan = LAYERS[layer].parse(LAYER_BUGS[layer][name][0])
    return plan


def hunt_in_layer(name: str, first: int, seeds: int, is_drawn: bool = False) -> Outcome | None:
    """The same with another layer, and the plan of a bug, or those that seeds draw."""
    for seed in range(first, first + seeds):
        outcome = run_seed(layer_of(name), seed) if is_drawn else run_plan(seed, plan_of(name))
        if outcome.rule in FINDS[layer_of(name)]:
            return outcome
    return None


def outcomes(first: int, seeds: int, plan: Plan | None) -> Iterator[Outcome]:
    """Runs of some seeds, with their own plans or all with one."""
    if plan is None:
        yield from sweep("consensus", first, seeds, jobs=1)
    else:
        yield from (run_plan(seed, plan) for seed in range(first, first + seeds))


def hunt(first: int, seeds: int, plan: Plan | None = None) -> Outcome | None:
    """Simulate until a promise is broken. To hang or to crash is no find: that could have any reason."""
    for outcome in outcomes(first, seeds, plan):
        if not outcome.passed and outcome.rule != "liveness" and not outcome.rule.startswith("no exception"):
            return outcome
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=[*BUGS, *NODE_BUGS, *GOSSIP_BUGS, "none"])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--schedule", help="this plan for all seeds, instead of their own")
    parser.add_argument("--drawn", action="store_true", help="the plans of the seeds, not the one beside the bug")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller schedule that finds it")
    options = parser.parse_args()
    if options.name in BUGS and os.environ.get("FLOCKMQ_PURE") != "1":
        print("Set FLOCKMQ_PURE=1: compiled functions can't be changed.")
        return 2
    if options.name != "none":
        plant_bug(options.name)
    if layer_of(options.name) != "consensus":
        found = hunt_in_layer(options.name, options.first, options.seeds, options.drawn)
        print(f"{options.name}: not found" if found is None else f"{found.seed} {found.plan}\n{found.violation}")
        return int(found is None)
    outcome = hunt(options.first, options.seeds, parse_plan(options.schedule) if options.schedule else None)
    if outcome is None:
        print(f"{options.name}: not found in {options.seeds} seeds from {options.first} on")
        return 1
    if options.shrink:
        outcome = shrink_outcome(outcome)
    print(f"{outcome.seed} {outcome.plan}")
    print(f"{options.name}: found by seed {outcome.seed}: {outcome.violation}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
