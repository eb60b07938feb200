"""Where the next record may be that a session with few names wants: replicas of ``$capture`` have an index of names.

```
 seek(questions) --> the replica here | SEEK: one call per node --> Sought: no record before ``low`` matches
                     None: no replica could tell; the reader reads all

 question: (group (8) offset (8) count (2) filters)...       answer: (code (1) low (8) high (8) size (8) closed (8))...
```
Any replica may tell: what it has applied is committed, and it says nothing of what it lacks.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.errors import FlockError
from flockmq.peering.fields import Reader, sized
from flockmq.peering.kinds import SEEK
from flockmq.tasks import Promise, Running, Sleep, Task

if TYPE_CHECKING:
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.logs.replica_peers import ReplicaPeers
    from flockmq.peering.calls import Calls

FILTERS_MAX: Final = 1_000
FILTERS_BYTES_MAX: Final = 65_536
"""A session with more filters reads all."""
QUESTIONS_MAX: Final = 256
"""In one call."""
BYTES_MAX: Final = 262_144
"""About how large a call may become."""
IN_A_TURN: Final = 64
"""Questions that a replica looks at before other work has its turn."""
TIMEOUT_MS: Final = 3_000
TOLD: Final = 1
UNKNOWN: Final = 0
_ASK: Final = struct.Struct("<QQH")
_TELL: Final = struct.Struct("<BQQQQ")


class Seek(NamedTuple):
    """A question."""

    group: int
    offset: int
    filters: tuple[bytes, ...]

    def encode(self) -> bytes:
        """For a call."""
        filters = b"".join([sized(one) for one in self.filters])
        return _ASK.pack(self.group, self.offset, len(self.filters)) + filters


class Sought(NamedTuple):
    """What a replica says; its last segment, which is written to, begins at ``closed``."""

    low: int
    high: int
    size: int
    closed: int


class Seeking:
    """Asks, and answers other nodes."""

    def __init__(self, local: LocalLogs, peers: ReplicaPeers, calls: Calls) -> None:
        self._local = local
        self._peers = peers
        self._calls = calls
        calls.serve_task(SEEK, self._serve)

    def here(self, question: Seek) -> Sought | None:
        """What the replica here says."""
        local = self._local
        group = question.group
        try:
            if not local.is_here(group) or not local.first(group) <= question.offset < local.end(group):
                return None
            found = local.find(group, question.offset, question.filters)
            return Sought(found.low, found.high, found.size, local.closed(group))
        except (FlockError, OSError):
            return None

    def seek(self, questions: list[Seek]) -> Running[list[Sought | None]]:
        """The answers, in the order of the questions."""
        return self._calls.tasks.start("seek", self._seek(questions))

    def _seek(self, questions: list[Seek]) -> Task[list[Sought | None]]:
        answers: list[Sought | None] = []
        elsewhere: dict[int, list[int]] = {}
        for number, question in enumerate(questions):
            if number % IN_A_TURN == IN_A_TURN - 1:
                yield Sleep(0)
            answers.append(self.here(question))
            nodes = self._peers.linked(question.group) if answers[-1] is None else []
            if nodes:
                elsewhere.setdefault(nodes[0], []).append(number)
        told: list[tuple[list[int], Promise[bytes | None]]] = []
        for node_id, numbers in elsewhere.items():
            for part in _parts(questions, numbers):
                body = b"".join([questions[number].encode() for number in part])
                told.append((part, self._calls.ask(node_id, SEEK, body, TIMEOUT_MS)))
        for part, promise in told:
            answer = yield from promise
            if answer is not None and len(answer) == _TELL.size * len(part):
                for number, (code, *fields) in zip(part, _TELL.iter_unpack(answer), strict=True):
                    if code == TOLD and fields[0] >= questions[number].offset and fields[1] > questions[number].offset:
                        answers[number] = Sought(*fields)
        return answers

    def _serve(self, peer: int, body: bytes) -> Task[bytes | None]:  # noqa: ARG002
        reader = Reader(body)
        parts: list[bytes] = []
        while reader.pos < reader.end and len(parts) < QUESTIONS_MAX:
            group, offset, count = _ASK.unpack_from(body, reader.skip(_ASK.size))
            filters = tuple([reader.sized() for _ in range(count)])
            answer = self.here(Seek(group, offset, filters))
            parts.append(_TELL.pack(UNKNOWN, 0, 0, 0, 0) if answer is None else _TELL.pack(TOLD, *answer))
            if len(parts) % IN_A_TURN == 0:
                yield Sleep(0)
        return b"".join(parts)


def _parts(questions: list[Seek], numbers: list[int]) -> list[list[int]]:
    """Questions of one node as calls hold them."""
    parts: list[list[int]] = [[]]
    size = 0
    for number in numbers:
        length = len(questions[number].encode())
        if parts[-1] and (len(parts[-1]) >= QUESTIONS_MAX or size + length > BYTES_MAX):
            parts.append([])
            size = 0
        parts[-1].append(number)
        size += length
    return parts


def is_askable(filters: tuple[bytes, ...]) -> bool:
    """Whether a replica can be asked about so many filters."""
    return len(filters) <= FILTERS_MAX and sum([len(one) + 2 for one in filters]) <= FILTERS_BYTES_MAX
