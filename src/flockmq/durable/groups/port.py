"""What programs and operators ask of consumer groups, on any node.

```
 fetch --> records with their tokens --> ack | nack | bury | extend, on any node; "" or a sentence for each token
 begin --> every partition of the group has begun its present generation
 status, peek --> where the group stands; nothing is handed out
```
A token names one delivery of one record: partition, group, generation, offset, number and term of the delivery. So it
outlives a change of leaders, and is stale once the record was handed out again, settled, or the group was reset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from flockmq.tasks import Promise

Allows = Callable[[bytes], bool]
"""Whether the caller may read a topic name (in internal form)."""


class Fetched(NamedTuple):
    """One record handed to a fetcher, or shown by ``peek`` (then without a token)."""

    token: str
    partition: int
    """The Raft group of the partition."""
    shard: int
    topic_name: str
    """The durable topic that the partition belongs to."""
    offset: int
    deliveries: int
    """The number of this delivery, from 1 on."""
    topic: bytes
    """The topic name of the message, in internal form."""
    client: bytes
    timestamp_ms: int
    payload: bytes
    qos: int
    user_properties: list[tuple[bytes, bytes]]
    key: bytes | None
    properties: bytes
    """MQTT 5 properties as the publisher sent them, encoded."""


class Holder(NamedTuple):
    """A member that holds records of a partition, or waits for some."""

    node_id: int
    member: str
    held: int
    waits_for: int
    """How many more it would take now."""


class PartitionStatus(NamedTuple):
    """Where a group stands in one partition."""

    partition: int
    shard: int
    topic_name: str
    leader: int
    """The node that dispatches; 0: no leader answered, and the other fields say nothing."""
    generation: int
    """0: the partition has not begun the group yet."""
    floor: int
    """All selected records before it are settled."""
    end: int
    lag: int
    """Records from the floor to the end that are not settled, at most: some may not be selected."""
    lag_bytes: int
    """About how many bytes the log has from the floor on."""
    oldest_ms: int
    """When the oldest unsettled record came; 0: there is none."""
    in_flight: int
    """Records that members hold, or that wait to be delivered again."""
    holders: list[Holder]
    dead: int
    """Dead letters so far in this partition."""
    dropped: int
    """Of these, those that no topic took."""
    redelivered: int
    """Deliveries that failed: nacks, expired and lost holdings."""
    paused: bool


class GroupMembers(Protocol):
    """Consumer groups as a caller on this node sees them. ``group_id`` is ``ConsumerGroup.id``."""

    def fetch(
        self, group_id: int, member: str, count_max: int, wait_ms: int, allows: Allows | None = None
    ) -> Promise[list[Fetched]]:
        """Records for a member, at most ``count_max``: as soon as there are any, or none after ``wait_ms``."""

    def ack(self, tokens: list[str]) -> Promise[list[str]]:
        """The records are done. For each token "" or a sentence that says why the token changes nothing."""

    def nack(self, tokens: list[str], delay_ms: int | None = None, reason: str = "") -> Promise[list[str]]:
        """Deliver the records again, after ``delay_ms``; None: after the group's backoff."""

    def bury(self, tokens: list[str], reason: str = "") -> Promise[list[str]]:
        """The records are dead letters at once."""

    def extend(self, tokens: list[str], ms: int) -> Promise[list[str]]:
        """The holder needs ``ms`` more from now on."""

    def begin(self, group_id: int) -> Promise[list[str]]:
        """Wait until every partition has begun the present generation; sentences about those that have not.

        Call it after CreateGroup and ResetGroup, and answer the user then: what is published from then on is seen.
        """

    def status(self, group_id: int) -> Promise[list[PartitionStatus]]:
        """Where the group stands in each of its partitions."""

    def here(self, group_id: int) -> list[PartitionStatus]:
        """The same for the partitions that this node leads, at once."""

    def peek(self, group_id: int, count: int) -> Promise[list[Fetched]]:
        """The oldest records that are not settled; nothing is handed out."""
