"""Makes runs of messages from the HTTP API: neighbours of one topic become one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flockmq.mqtt.run import Run, make_run
from flockmq.node.publishing import forwardable

if TYPE_CHECKING:
    from flockmq.admin.durable_port import Message


def runs_of(messages: Sequence[Message], now: int) -> list[Run]:
    """The same messages in the same order, all at QoS 1, so that a log acknowledges them."""
    runs: list[Run] = []
    neighbours: list[Run] = []
    for message in messages:
        run = _run(message, now)
        if neighbours and not _is_alike(neighbours[-1], run):
            runs.append(_join(neighbours))
            neighbours = []
        neighbours.append(run)
    if neighbours:
        runs.append(_join(neighbours))
    return runs


def _is_alike(one: Run, other: Run) -> bool:
    return one.topic == other.topic and one.retain == other.retain and one.expires_at == other.expires_at


def _run(message: Message, now: int) -> Run:
    properties = message.properties
    encoded = b"" if properties is None else forwardable(properties)
    expires_at = 0
    if properties is not None and properties.message_expiry_s is not None:
        expires_at = now + max(properties.message_expiry_s * 1000, 1)
    return make_run(5, 1, message.retain, message.topic, message.payload, encoded, expires_at)


def _join(runs: list[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    first = runs[0]
    pid_at: list[int] = []
    ends: list[int] = []
    end = 0
    for run in runs:
        pid_at.append(end + run.pid_at[0])
        end += len(run.wire)
        ends.append(end)
    wire = b"".join([run.wire for run in runs])
    return Run(5, 1, first.retain, first.topic, wire, len(runs), pid_at, ends, first.expires_at)
