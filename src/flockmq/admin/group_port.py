"""What the API asks the composition about consumer groups: ``durable.groups.port``, as something to await.

```
 handlers --> GroupPort --> the member side of this node --> leaders of the group's partitions, on any node
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from flockmq.durable.groups.port import Fetched, PartitionStatus


class GroupFigures(NamedTuple):
    """How far a group is behind in the partitions that this node leads."""

    namespace: str
    name: str
    lag: int
    lag_bytes: int
    oldest_ms: int
    """When the oldest record came that is not settled; 0: there is none."""
    in_flight: int
    dead: int
    redelivered: int


class GroupPort(Protocol):
    """See ``durable.groups.port.GroupMembers``. ``group_id`` is ``ConsumerGroup.id``."""

    async def fetch(self, group_id: int, member: str, count_max: int, wait_ms: int) -> list[Fetched]:
        """Records for a member: as soon as there are any, or none after ``wait_ms``."""

    async def ack(self, tokens: Sequence[str]) -> list[str]:
        """The records are done. For each token "" or why the token changes nothing."""

    async def nack(self, tokens: Sequence[str], delay_ms: int | None, reason: str) -> list[str]:
        """Deliver the records again, after a delay; None: after the group's backoff."""

    async def bury(self, tokens: Sequence[str], reason: str) -> list[str]:
        """The records are dead letters at once."""

    async def extend(self, tokens: Sequence[str], ms: int) -> list[str]:
        """The holder needs so much more from now on."""

    async def begin(self, group_id: int) -> list[str]:
        """Wait until every partition has begun the present generation; sentences about those that have not."""

    async def status(self, group_id: int) -> list[PartitionStatus]:
        """Where the group stands in each of its partitions."""

    def figures(self, groups_max: int) -> list[GroupFigures]:
        """The groups that read partitions which this node leads, at most so many."""

    async def peek(self, group_id: int, count: int) -> list[Fetched]:
        """The oldest records that are not settled; nothing is handed out."""
