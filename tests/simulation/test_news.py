"""How soon nodes that have no vote know what was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.cluster.commands import SetSetting
from flockmq.durable.state.group0 import GROUP
from flockmq.durable.state.pulling import LOOK_MS
from flockmq.testing.simulation.nodes.plan import NodesPlan
from flockmq.testing.simulation.nodes.world import FORM_MS_MAX, NodesWorld

if TYPE_CHECKING:
    from flockmq.cluster.commands import Result
    from flockmq.testing.simulation.nodes.process import DurableMachine, DurableProcess


def until_all_know(harness: NodesWorld, machine: DurableMachine, value: int) -> int:
    """Change something on a node; milliseconds until it knows that all others know it."""
    assert machine.process is not None
    durable = machine.process.durable
    began = harness.now_ms()
    told: list[tuple[bool, int]] = []

    def known(is_known: bool) -> None:
        told.append((is_known, harness.now_ms() - began))

    def decided(result: Result) -> None:
        assert result.ok
        durable.barrier.wait(durable.meta.state.index, harness.now_ms()).then(known)

    machine.do(machine.life, lambda: durable.meta.submit(SetSetting("value", value)).then(decided))
    harness.until("word of all", lambda: "" if told else "nothing yet", FORM_MS_MAX)
    assert told[0][0]
    return told[0][1]


def test_nodes_without_a_vote_are_not_what_others_wait_for() -> None:
    """Of four nodes three get a replica. Two of them learn at first, and vote later; one never does."""
    harness = NodesWorld(7, NodesPlan(nodes=4))
    harness.form()

    def replicas() -> list[DurableProcess]:
        return [process for process in harness.processes() if process.durable.meta.has_replica]

    def voters() -> int:
        return max(len(process.engine.host.groups[GROUP].state.configuration.voters) for process in replicas())

    harness.until("replicas", lambda: "" if len(replicas()) == 3 else "not three", FORM_MS_MAX)
    assert voters() == 1
    took = [until_all_know(harness, replicas()[0].machine, value) for value in range(20)]
    assert voters() == 3
    assert max(took) < LOOK_MS / 2, took
