"""A node is cut off from the others: what it acknowledges is not lost, and sessions go on without it. Needs root.

```
 n1 (publisher, owner of one device)  --X--  n2 (device)  ----  n3
```
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.namespaces import inside
from faults.durable.cluster import Nodes
from faults.durable.test_cut import are_one, in_namespaces
from faults.sessions.clients import WAIT_S, Device, Promises, Publisher, await_all
from flockmq.errors import FlockError
from integration.support.programs import plug

SECONDS = float(os.environ.get("FLOCKMQ_FAULTS_S", "0"))
ROUNDS = range(1 + int(SECONDS) // 20)
MESSAGES = 60
ANSWER_S_MAX = 3.0

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("faults")]  # a cluster at a time


class Split:
    """Three nodes on three machines, and clients that are each on the machine of a node."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.promises = Promises()

    def connect(self, device: Device, number: int) -> bool:
        """Connect a device to a node; whether its session was present."""
        with inside(self.nodes.namespaces[number]):
            return device.connect(self.nodes.nodes[number], host=self.nodes.hosts[number])

    def publisher(self, name: str, number: int, topics: list[str]) -> Publisher:
        """A connected publisher at a node."""
        made = Publisher(name, [self.nodes.nodes[number]], topics, self.promises, self.nodes.hosts[number])
        with inside(self.nodes.namespaces[number]):
            made.connect()
        return made

    def plug(self, number: int, *, into: bool) -> None:
        """Cut a node off, or put it back."""
        plug(self.nodes.namespaces, number, into=into)

    def wait_one(self) -> None:
        """Wait until all nodes see each other."""
        wait(lambda: are_one(self.nodes), "one cluster", self.nodes)


def wait(condition: Callable[[], bool], what: str, nodes: Nodes) -> None:
    until = time.monotonic() + WAIT_S
    while not holds(condition):
        assert time.monotonic() < until, f"waited in vain for {what}\n{nodes.logs()}"
        time.sleep(0.1)


def holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except FlockError:
        return False


def test_what_a_node_acknowledges_alone_is_not_lost(tmp_path: Path) -> None:
    with in_namespaces(tmp_path) as nodes:
        split = Split(nodes)
        split.wait_one()
        for turn in ROUNDS:
            stays, moves = Device(f"stays{turn}"), Device(f"moves{turn}")
            split.connect(stays, 1)
            split.connect(moves, 0)
            stays.subscribe(f"early{turn}/#")
            moves.subscribe(f"early{turn}/#", f"late{turn}/#")
            topics = [f"{word}{turn}/{number}" for word in ("early", "late") for number in range(6)]
            alone = split.publisher(f"alone{turn}", 0, topics)
            alone.send(MESSAGES)
            assert not alone.settle()
            await_all(stays, split.promises, nodes.logs)
            split.plug(0, into=False)
            alone.send(MESSAGES)
            # The rest goes on: its filters change, the device of the lonely node comes, messages are acknowledged.
            stays.subscribe(f"later{turn}/#")
            assert split.connect(moves, 2), f"the session is gone\n{nodes.logs()}"
            late = split.publisher(f"late{turn}", 0, [f"later{turn}/{number}" for number in range(6)])
            late.send(MESSAGES)
            others = split.publisher(f"others{turn}", 2, topics)
            others.send(MESSAGES)
            assert not others.settle(), f"no PUBACK of a majority\n{nodes.logs()}"
            left = alone.settle(1), late.settle(1)
            told = f"{alone.refused + late.refused} refused, {sum(left)} of {2 * MESSAGES} unanswered"
            print(f"cut off: {told}")
            split.plug(0, into=True)
            split.wait_one()
            for publisher in (alone, late, others):
                publisher.settle()
                publisher.close()
            for device in (stays, moves):
                await_all(device, split.promises, nodes.logs)
                assert device.is_connected, f"{device.client_id}: {device.here.reason:#x}\n{nodes.logs()}"
                device.cut()


def test_an_unsubscribe_that_was_answered_outlives_its_node(tmp_path: Path) -> None:
    """A node that is cut off does not answer an UNSUBSCRIBE that only it knows of."""
    with in_namespaces(tmp_path) as nodes:
        split = Split(nodes)
        split.wait_one()
        device = Device("tidy")
        split.connect(device, 0)
        device.subscribe("kept/#", "given up/#")
        split.plug(0, into=False)
        is_answered = device.here.try_unsubscribe(["given up/#"], ANSWER_S_MAX)
        nodes.kill(0)
        unwanted = split.publisher("publisher", 1, ["given up/1"])
        unwanted.publish(MESSAGES)
        split.promises.kept.clear()
        split.publisher("other", 1, ["kept/1"]).publish(MESSAGES)
        assert split.connect(device, 2)
        await_all(device, split.promises, nodes.logs)
        assert len(device.received) == MESSAGES or not is_answered, "messages of a filter that was taken back"
