"""Where a start is in a log, and where the log begins and ends: one question, LOCATE, with three ways to ask it.

```
 LEADERS   one question per node for all partitions that it seems to lead; a leader with a lease answers, else again
 QUORUM    the same, and the leader has a quorum confirm that it leads: for "there is no such offset"
 REPLICAS  every replica that lives is asked, the oldest answer counts: a replica that was refilled lacks what is older

 question: sure (1) what (1) value (8) count (4) groups (8 each)      sure: which of the three
 answer:   for each group: group (8) grade (1) offset (8) first (8) end (8)
```
Every node answers for its own replicas, and says in ``grade`` what its word is worth.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.errors import NoReplica
from flockmq.log.starts import EARLIEST, OFFSET, TIME, Start
from flockmq.peering.kinds import LOCATE
from flockmq.tasks import Promise, Running, Sleep, Task, all_of

if TYPE_CHECKING:
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.logs.replica_peers import ReplicaPeers
    from flockmq.peering.calls import Calls

LEADERS: Final = 0
QUORUM: Final = 1
REPLICAS: Final = 2

NONE: Final = 0
"""There is no replica here, or none that works."""
LATER: Final = 1
"""There is a replica, which does not know yet where the others stand."""
ELSEWHERE: Final = 2
"""Another node leads; its id is in the place of the offset."""
TOLD: Final = 3

TIMEOUT_MS: Final = 3_000
ATTEMPT_MS: Final = 1_000
RETRY_MS: Final = 100
HOPS_MAX: Final = 4
"""Rounds without a pause, when answers name other leaders."""
GROUPS_MAX: Final = 1_024
"""Partitions in one question."""
_ASK: Final = struct.Struct("<BBQI")
_TOLD: Final = struct.Struct("<QBQQQ")


class Located(NamedTuple):
    """A place in a log that reaches from ``first`` to ``end``; ``offset`` may be before ``first``."""

    offset: int
    first: int
    end: int

    def merged(self, other: Located | None) -> Located:
        """What two replicas say together: the oldest answer counts."""
        if other is None:
            return self
        return Located(min(self.offset, other.offset), min(self.first, other.first), max(self.end, other.end))


class Locating:
    """Asks, and answers other nodes."""

    def __init__(self, local: LocalLogs, peers: ReplicaPeers, calls: Calls) -> None:
        self._local = local
        self._peers = peers
        self._calls = calls
        self.caught_up: set[int] = set()
        """Partitions whose replica here has all that was committed before this node started."""
        calls.serve_task(LOCATE, self._serve)

    # --- asking ---

    def locate(
        self, groups: list[int], start: Start, sure: int = LEADERS, timeout_ms: int = TIMEOUT_MS
    ) -> Running[dict[int, Located]]:
        """Find a start in the logs of some partitions; those that no node could answer for are missing."""
        if sure == REPLICAS:
            return self._calls.tasks.start("locate", self._ask_replicas(groups, start))
        return self._calls.tasks.start("locate", self._ask_leaders(groups, start, sure, timeout_ms))

    def _ask_leaders(self, groups: list[int], start: Start, sure: int, timeout_ms: int) -> Task[dict[int, Located]]:
        due_at = self._calls.now + timeout_ms
        found: dict[int, Located] = {}
        hints: dict[int, int] = {}
        attempt = 0
        hops = 0
        while True:
            questions: dict[int, list[int]] = {}
            for group in groups:
                target = 0 if group in found else hints.pop(group, 0) or self._peers.leader_or_any(group, attempt)
                if target:
                    questions.setdefault(target, []).append(group)
            answers = yield from all_of(
                [
                    self._ask(node_id, chosen[at : at + GROUPS_MAX], start, sure)
                    for node_id, chosen in questions.items()
                    for at in range(0, len(chosen), GROUPS_MAX)
                ]
            )
            for body in answers:
                for group, grade, offset, first, end in _read(body):
                    if grade == TOLD:
                        found[group] = Located(offset, first, end)
                    elif grade == ELSEWHERE and offset:
                        hints[group] = offset
            left = due_at - self._calls.now
            if len(found) == len(groups) or left <= 0:
                return found
            hops = hops + 1 if hints else 0
            if not hints or hops >= HOPS_MAX:
                attempt += 1
                hops = 0
                yield Sleep(min(RETRY_MS, left))

    def _ask_replicas(self, groups: list[int], start: Start) -> Task[dict[int, Located]]:
        found: dict[int, Located] = {}
        for group in groups:
            merged = self.here(group, start, REPLICAS)
            is_missing = merged is None and self._local.is_here(group)
            questions = [self._ask(node_id, [group], start, REPLICAS) for node_id in self._peers.living(group)]
            for body in (yield from all_of(questions)):
                told = _read(body)
                if told and told[0][1] == TOLD:
                    merged = Located(*told[0][2:]).merged(merged)
                elif not told or told[0][1] != NONE:
                    is_missing = True
            # A replica that did not answer may have an older beginning.
            if merged is not None and not (is_missing and merged.offset <= merged.first):
                found[group] = merged
        return found

    def _ask(self, node_id: int, groups: list[int], start: Start, sure: int) -> Promise[bytes | None]:
        if node_id == self._peers.node_id:
            return self._calls.tasks.start("locate here", self._tell(groups, start, sure))
        packed = _ASK.pack(sure, start.what, start.value, len(groups))
        body = packed + b"".join([group.to_bytes(8, "little") for group in groups])
        return self._calls.ask(node_id, LOCATE, body, ATTEMPT_MS)

    # --- answering ---

    def here(self, group: int, start: Start, sure: int) -> Located | None:
        """The answer of the replica here; None when there is none, or its word would not be enough."""
        return self._place(group, start, sure) if group in self._known([group], start, sure) else None

    def _known(self, groups: list[int], start: Start, sure: int) -> set[int]:
        """The partitions for which the word of this node is enough; a quorum is not asked."""
        local = self._local
        if sure != REPLICAS:
            return local.speaking_for(groups, self._calls.now)
        # Where a log begins, a replica knows as soon as it has anything; the rest, once it has caught up.
        is_beginning = start.what == EARLIEST
        return {
            group
            for group in groups
            if local.is_here(group)
            and (group in self.caught_up or (is_beginning and local.end(group) > local.first(group)))
        }

    def _place(self, group: int, start: Start, sure: int) -> Located | None:
        local = self._local
        try:
            first = local.first(group)
            end = local.end(group) if sure == REPLICAS else local.committed_end(group)
            if start.what == TIME:
                return Located(local.offset_at(group, start.value), first, end)
        except NoReplica:
            return None
        if start.what == OFFSET:
            return Located(min(start.value, end), first, end)
        return Located(first if start.what == EARLIEST else end, first, end)

    def _serve(self, peer: int, body: bytes) -> Task[bytes | None]:  # noqa: ARG002
        if len(body) < _ASK.size:
            return None
        sure, what, value, count = _ASK.unpack_from(body)
        if len(body) != _ASK.size + 8 * count or count > GROUPS_MAX:
            return None
        groups = list(struct.unpack_from(f"<{count}Q", body, _ASK.size))
        return (yield from self._tell(groups, Start(what, value), sure))

    def _tell(self, groups: list[int], start: Start, sure: int) -> Task[bytes | None]:
        if sure == QUORUM:
            yield Sleep(0)  # a lease is judged by the present, which a tick tells
            now = self._calls.now
            answers = yield from all_of([self._local.confirm(group, now) for group in groups])
            known = {group for group, is_sure in zip(groups, answers, strict=True) if is_sure}
        else:
            known = self._known(groups, start, sure)
        parts: list[bytes] = []
        for group in groups:
            found = self._place(group, start, sure) if group in known else None
            if found is not None:
                parts.append(_TOLD.pack(group, TOLD, found.offset, found.first, found.end))
                continue
            leader = self._local.leader_of(group) if sure != REPLICAS else 0
            if leader and leader != self._peers.node_id:
                parts.append(_TOLD.pack(group, ELSEWHERE, leader, 0, 0))
            else:
                parts.append(_TOLD.pack(group, LATER if self._local.is_here(group) else NONE, 0, 0, 0))
        return b"".join(parts)


def _read(body: bytes | None) -> list[tuple[int, int, int, int, int]]:
    return list(_TOLD.iter_unpack(body)) if body and len(body) % _TOLD.size == 0 else []
