"""What one connection of a subscriber got, held against the logs: a piece of each, without gap or repeat.

```
 messages of all shards, as they came --> by shard (that of their key; one that moved has two) --> a piece of its log?
```
A message that was sent again while its key moved may stand in both logs. All ways to read what came are followed; one
of them has to be right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.testing.simulation.nodes.clients import Client

NEVER = 1 << 62

Piece = tuple[int, int]
"""The offsets in a log at which what came begins and ends; -1: nothing came."""
Reading = tuple[Piece, ...]
"""By shard."""


class Seen:
    """What one connection of a subscriber got."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client
        self.connection = client.connections
        self.at = NEVER
        """What is sent after this must come."""
        self.messages: list[tuple[bytes, bytes]] = []
        """Topic and payload."""
        self._ends: list[int] = []

    def promise(self, at: int, ends: list[int]) -> None:
        """The SUBACK came, when the committed part of each shard ended there; shards that are not named were empty."""
        self.at = at
        self._ends = ends

    def end(self, shard: int) -> int:
        """What was sent after the SUBACK, and lies behind this, must come."""
        if self.at == NEVER:
            return NEVER
        return self._ends[shard] if shard < len(self._ends) else 0

    @property
    def is_live(self) -> bool:
        """Whether more would come."""
        return self.client.connected and self.client.connections == self.connection


def check_delivery(
    seen: Seen,
    logs: list[list[tuple[bytes, bytes]]],
    shards_of: Callable[[bytes], list[int]],
    sent_at: dict[bytes, int],
) -> None:
    """Violation when something came that should not have, or did not come that should."""
    payloads = [[payload for _, payload in log] for log in logs]
    readings: set[Reading] = {((-1, -1),) * len(logs)}
    for number, (topic, payload) in enumerate(seen.messages):
        homes = {shard for shard in shards_of(topic) if shard < len(logs)}
        following = {
            (*reading[:shard], piece, *reading[shard + 1 :])
            for reading in readings
            for shard in homes
            for piece in _longer(reading[shard], payload, payloads[shard])
        }
        if not following:
            raise Violation("delivery", f"{_who(seen)}: {_why_not(number, payload, homes, min(readings), payloads)}")
        readings = following
    problems = [_problem(seen, reading, payloads, sent_at) for reading in sorted(readings)]
    if None not in problems:
        raise next(problem for problem in problems if problem is not None)


def _longer(piece: Piece, payload: bytes, log: list[bytes]) -> list[Piece]:
    """The piece with this message at its end, if it follows there; any that begins with it, if nothing came before."""
    first, last = piece
    if first < 0:
        return [(offset, offset) for offset, one in enumerate(log) if one == payload]
    return [(first, last + 1)] if log[last + 1 : last + 2] == [payload] else []


def _problem(seen: Seen, reading: Reading, logs: list[list[bytes]], sent_at: dict[bytes, int]) -> Violation | None:
    """What is missing before and behind the pieces that came."""
    for shard, (log, (first, last)) in enumerate(zip(logs, reading, strict=True)):
        latest = seen.end(shard)
        if first < 0:
            if seen.is_live and latest < len(log):
                text = f"{_who(seen)}, shard {shard}: nothing came; {len(log) - latest} records since the SUBACK"
                return Violation("delivery from the SUBACK on", text)
            continue
        for payload in log[latest:first]:  # what did not come in the beginning was sent before the SUBACK
            if sent_at[payload] > seen.at:
                text = f"{_who(seen)}, shard {shard}: {payload!r} was sent after the SUBACK, did not come"
                return Violation("delivery from the SUBACK on", text)
        if seen.is_live and last != len(log) - 1:
            text = f"{_who(seen)}, shard {shard}: ends with {log[last]!r}, the log with {log[-1]!r}"
            return Violation("delivery", text)
    return None


def _who(seen: Seen) -> str:
    return f"{seen.name}, connection {seen.connection}"


def _why_not(number: int, payload: bytes, homes: set[int], reading: Reading, logs: list[list[bytes]]) -> str:
    if not any(payload in logs[shard] for shard in homes):
        return f"{payload!r} was delivered and is in no log"
    wanted = [
        f"{next(iter(logs[shard][last + 1 : last + 2]), b'nothing')!r} (shard {shard}, offset {last + 1})"
        for shard, (_, last) in enumerate(reading)
        if shard in homes
    ]
    return f"delivery {number}: {payload!r} came, {' or '.join(wanted)} should"
