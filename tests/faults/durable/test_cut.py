"""Nodes in network namespaces, cut off from each other under load: a minority, then everybody. Needs root."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faults.durable.cluster import Nodes, under_load, wait
from flockmq.testing.nodes import NodeProcess
from integration.support.programs import network, plug

SECONDS = float(os.environ.get("FLOCKMQ_FAULTS_S", "0"))
CUT_S = 10.0 if SECONDS else 3.0
HEAL_S_MAX = 60.0

pytestmark = [pytest.mark.timeout(1_800), pytest.mark.xdist_group("faults")]  # a cluster at a time


@contextmanager
def in_namespaces(folder: Path) -> Iterator[Nodes]:
    """Three nodes on three machines with a switch between them."""
    with network(3) as names:
        cookie = {"FLOCKMQ_COOKIE": secrets.token_hex(32)}
        nodes = [
            NodeProcess(
                folder / f"n{number}",
                f"n{number}@10.9.0.{number}",
                (1883, 18083, 16000),
                [
                    *(f"--host=10.9.0.{number}", "--set=cluster.profile=local", "--log-level=warning"),
                    *(["--join=10.9.0.1"] if number > 1 else []),
                ],
                cookie,
                ("ip", "netns", "exec", name),
            )
            for number, name in enumerate(names, 1)
        ]
        try:
            for node in nodes:
                node.start()
            for node in nodes:
                node.wait_ready()
            yield Nodes(nodes, [f"10.9.0.{number}" for number in (1, 2, 3)], names)
        finally:
            for node in nodes:
                node.close()


def are_one(nodes: Nodes) -> bool:
    """Whether all nodes see each other."""
    for number, node in enumerate(nodes.nodes):
        with nodes.at(number):
            members = node.admin(nodes.hosts[number]).cluster().members
        if sum(member.state == "alive" and member.linked for member in members) != len(nodes.nodes):
            return False
    return True


async def test_a_minority_and_everybody_cut_off(tmp_path: Path) -> None:
    with in_namespaces(tmp_path) as nodes:
        await wait("one cluster", nodes, lambda: are_one(nodes), HEAL_S_MAX)
        async with under_load(nodes) as memory:
            began = time.monotonic()
            turn = 0
            while True:
                # Leaders are everywhere, so whoever is alone leads something.
                for alone in ((turn % 3,), (0, 1, 2)):
                    for number in alone:
                        plug(nodes.namespaces, number, into=False)
                    await asyncio.sleep(CUT_S)
                    if len(alone) == 1:
                        assert await memory.more_of_all(HEAL_S_MAX), f"two of three don't go on\n{nodes.logs()}"
                    for number in alone:
                        plug(nodes.namespaces, number, into=True)
                    healed = time.monotonic()
                    assert await memory.more_of_all(HEAL_S_MAX), f"no life after the heal\n{nodes.logs()}"
                    print(f"{len(alone)} cut off: all shards go on {time.monotonic() - healed:.1f} s after the heal")
                turn += 1
                if time.monotonic() - began >= SECONDS:
                    break
