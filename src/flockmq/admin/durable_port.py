"""What the API asks the composition about durable topics: cluster state, and the logs of partitions wherever they are.

```
 handlers --> DurablePort --> command(...)        group 0, forwarded to where it must go; answered after commit
                         |--> read, locate, ...   a replica here, or a question to a node that has one
                         |--> publish(...)        the leaders of the partitions; answered after commit
                         `--> stage, commit_sink  batches of sinks, at the leaders
```
Any node answers for all partitions. What it has to fetch from another comes in smaller pieces, so a reader of much
asks the nodes that hold replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from flockmq.admin.group_port import GroupPort
    from flockmq.admin.metrics import Number
    from flockmq.cluster.commands import Command, Result
    from flockmq.cluster.dump import SegmentReport
    from flockmq.cluster.model import TopicRecord
    from flockmq.cluster.state import ClusterState
    from flockmq.cluster.wanted_names import WantedNames
    from flockmq.durable.logs.locating import Located
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.replicas.status import ReplicaStatus
    from flockmq.durable.sessions.lag import Lag
    from flockmq.log.starts import Start
    from flockmq.mqtt.properties import Properties
    from flockmq.session.session import Session

FETCH_BYTES_MAX: Final = 512 * 1024
"""Most bytes that a node fetches from another for one read."""

NOWHERE: Final = -1
"""Where a cursor stands in a partition that it was not put in yet."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches end to end, the first of them holding the offset asked for; none when there is nothing yet, or
    nothing that was wanted."""

    batches: bytes
    first: int
    """Oldest offset that is there."""
    end: int
    """End of what was committed when it was read."""
    following: int
    """Where to read on: behind the last batch that was looked at."""


@dataclass(frozen=True, slots=True)
class Message:
    """Something to append; ``topic`` is in internal form."""

    topic: bytes
    payload: bytes
    retain: bool
    properties: Properties | None


@dataclass(frozen=True, slots=True)
class MetaStatus:
    """Group 0 as this node knows it; nodes by id."""

    leader: int
    voters: Sequence[int]
    learners: Sequence[int]
    index: int


@dataclass(frozen=True, slots=True)
class ChunkName:
    """Which chunk of which attempt at which task of whose batch."""

    query: bytes
    batch: int
    task: int
    attempt: int
    sequence: int


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """What became of a batch in one group; offsets are -1 when they are not known any more."""

    is_done: bool
    is_repeat: bool
    first: int
    next: int
    chunks_done: int


class SessionRecordsPort(Protocol):
    """Records of persistent sessions, wherever their shards are led."""

    def session_shards(self) -> list[int]:
        """The groups that keep the records of persistent sessions; none while there never was such a session."""

    def session_shard_of(self, client_id: str) -> int:
        """The one of them that has a client's session; 0 while there are none."""

    async def session_records(self, group: int, question: bytes) -> bytes | None:
        """What the leader of such a group answers to ``node_listings.ask_page``; None when none does."""

    async def session_record(self, client_id: str) -> SessionRecord | None:
        """The record of a client's session; None when there is none."""

    def session_lag(self, session: Session) -> Lag:
        """What waits in logs for a session of this node."""

    async def record_lag(self, record: SessionRecord) -> Lag | None:
        """What waits in logs for a session that no node has; None where a log could not be asked."""

    async def end_session_record(self, client_id: str) -> bool:
        """End a session that no node has; False when there is none."""

    async def session_record_ended(self, client_id: str) -> None:
        """Wait, for a moment, until the end of a session that a node had is in the log."""


class DurablePort(SessionRecordsPort, Protocol):
    """See the module. What can't be done raises one of ``flockmq.errors``."""

    @property
    def groups(self) -> GroupPort:
        """Consumer groups."""

    def state(self) -> ClusterState:
        """Cluster state as this node knows it."""

    def is_current(self) -> bool:
        """Whether a majority has confirmed that state since this node started."""

    async def meta(self) -> MetaStatus:
        """The nodes that decide about cluster state."""

    def figures(self) -> dict[str, Number]:
        """Numbers for the metrics, by name; see ``metrics``."""

    def ends(self) -> dict[int, int]:
        """End of what is committed, for the partitions that this node leads, by group."""

    async def command(self, command: Command) -> Result:
        """Change cluster state; the answer comes once all live nodes know it (one that stands still is waited for a
        second)."""

    async def replicas(self, groups: Sequence[int] | None) -> dict[int, list[ReplicaStatus]]:
        """What the nodes tell of their replicas of these groups (None: of all), by group."""

    async def scrub(self, groups: Sequence[int]) -> tuple[int, list[int]]:
        """Let all nodes read and verify their replicas of these groups now: how many replicas, and the nodes that did
        not answer."""

    async def segments(self) -> list[SegmentReport]:
        """The segment files of all replicas, as their nodes tell."""

    async def read(
        self, group: int, offset: int, bytes_max: int, wait_ms: int, wanted: WantedNames | None = None
    ) -> Chunk:
        """Committed batches from an offset on; waits while there are none. Those without a wanted name are left out;
        then it may answer with none of them, and where to read on."""

    async def locate(
        self, groups: Sequence[int], start: Start, after: Sequence[int] = (), wait_ms: int = 0
    ) -> list[Located]:
        """Where a start is in each of these logs, and where they begin and end, as their leaders know it.

        With ``after`` it waits until one of them ends further.
        """

    async def publish(
        self, topic: TopicRecord, client: bytes, messages: Sequence[Message]
    ) -> list[tuple[int, int] | str]:
        """Append to a topic in order: shard and offset of each, or why it is certainly not in the log."""

    async def positions(self, wanted: Sequence[tuple[str, int]]) -> list[int | None]:
        """Where cursors stand: for each (key, group) the next offset to read, NOWHERE, or None where no leader could
        say. The key of a cursor is ``CursorRecord.key``, as partitions and retention call it."""

    async def commit(self, cursor: str, group: int, offset: int, *, is_reset: bool = False) -> None:
        """Put a cursor in a group; answered after commit. Only a reset may take it back."""

    # --- sinks: all of it may be asked twice. Conflict: something that is named is not staged; stage it again ---

    async def stage(self, group: int, name: ChunkName, chunk: bytes) -> None:
        """Keep a chunk that was checked; answered when it is replicated."""

    async def commit_sink(
        self, group: int, query: bytes, batch: int, parts: Sequence[tuple[int, int, int]]
    ) -> CommitStatus:
        """Publish what was staged, as (task, attempt, chunks); answered when that is done, or takes long."""

    async def sink_states(self, groups: Sequence[int], query: bytes) -> list[tuple[int, int]]:
        """For each group, the last batch of a query (-1: none) and the bytes that it has staged."""

    async def drop_stages(self, group: int, query: bytes, batch: int) -> None:
        """Forget what was staged of a batch."""
