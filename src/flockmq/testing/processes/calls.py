"""Asks a bare node how it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from flockmq.errors import FlockError
from flockmq.testing.processes.protocol import STATUS, read_status, status_request
from flockmq.wire.frames import LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.testing.processes.cluster import ProcessCluster

PAUSE_S: Final = 0.02
"""Between two looks at something that other processes do."""
ANSWER_S_MAX: Final = 5.0

Status = dict[str, Any]


async def ask(address: tuple[str, int]) -> Status | None:
    """A node's status; None when it does not answer."""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(status_request())
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
                body = await reader.readexactly(length)
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError):
        return None
    assert body[0] == STATUS
    return read_status(body)


async def ask_all(cluster: ProcessCluster) -> dict[int, Status]:
    """Status of all nodes that answer."""
    answers = await asyncio.gather(*(ask(cluster.address(node)) for node in cluster.nodes))
    return {node: answer for node, answer in zip(cluster.nodes, answers, strict=True) if answer is not None}


async def until(
    cluster: ProcessCluster, condition: Callable[[dict[int, Status]], bool], what: str, seconds_max: float = 60.0
) -> dict[int, Status]:
    """Wait for something that shows in the nodes' status."""
    statuses: dict[int, Status] = {}
    try:
        async with asyncio.timeout(seconds_max):
            while not condition(statuses := await ask_all(cluster)):
                cluster.check()
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        said = "\n".join(f"node {node}: {cluster.said(node)[-2_000:]}" for node in cluster.nodes)
        raise FlockError(f"Not in {seconds_max:g} s: {what}. Last seen: {statuses}\n{said}") from None
    return statuses


def leaders(statuses: dict[int, Status], groups: int) -> dict[int, int]:
    """Group -> node, for all groups that have a leader which says so itself."""
    found: dict[int, int] = {}
    for node, status in statuses.items():
        for group in range(groups):
            if status["groups"][group]["role"] == "leader":
                found[group] = node
    return found
