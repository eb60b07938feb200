"""A consumer group as the cluster agrees on it: what it reads, how its members share the records, and its times.

```
 ConsumerGroup --+-- Binding...   topic, type, key     --> selection.py: which records are for the group
                 +-- mode, times, bounds               --> the leaders of the partitions dispatch by them
                 `-- generation, reset_to              --> partitions begin anew there when the generation grows
```
Where a group stands in a partition is state of that partition, not of the cluster.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

SHARE: Final = "share"
KEY: Final = "key"
STREAM: Final = "stream"
MODES: Final = (SHARE, KEY, STREAM)

FANOUT: Final = "fanout"
DIRECT: Final = "direct"
TOPIC: Final = "topic"
HEADERS: Final = "headers"
NAMED: Final = "name"
"""The type of a binding that ``$share`` made: the key is a filter that the topic name itself matches."""

NO_DEAD_LETTERS: Final = "none"
DEAD_SUFFIX: Final = ".dead"
SHARE_PREFIX: Final = "$share/"
READER_PREFIX: Final = "$dead/"

ACK_WAIT_MS_DEFAULT: Final = 30_000
MAX_DELIVER_DEFAULT: Final = 5
BACKOFF_MS_DEFAULT: Final = 1_000
BACKOFF_MAX_MS_DEFAULT: Final = 60_000
MAX_IN_FLIGHT_DEFAULT: Final = 1_000
LINGER_MS_DEFAULT: Final = 300_000


class Binding(Struct, frozen=True, array_like=True):
    """A topic that a group reads, and which of its records."""

    topic: str
    type: str = ""
    """One of ``EXCHANGES``; empty: the default exchange type of the topic."""
    key: str = ""
    """A routing key (direct), a filter (topic), or ``all:k=v,...`` or ``any:k=v,...`` (headers)."""


class ConsumerGroup(Struct, frozen=True, array_like=True):
    """A named reader that many members share."""

    id: int
    """Index of the command that made the group: never used again."""
    namespace: str
    name: str
    bindings: tuple[Binding, ...]
    mode: str = SHARE
    """One of ``MODES``."""
    ack_wait_ms: int = ACK_WAIT_MS_DEFAULT
    """How long a member may hold a record before the record is delivered again."""
    max_deliver: int = MAX_DELIVER_DEFAULT
    """Deliveries after which a record is a dead letter; 0: no limit."""
    backoff_ms: int = BACKOFF_MS_DEFAULT
    """Wait after the first nack; each further nack doubles the wait."""
    backoff_max_ms: int = BACKOFF_MAX_MS_DEFAULT
    max_in_flight: int = MAX_IN_FLIGHT_DEFAULT
    """Records of one partition that members may hold at a time."""
    dead_letter: str = NO_DEAD_LETTERS
    """The topic that takes dead letters, of the same namespace; ``none``: they are dropped and counted."""
    start: str = "latest"
    """Where the group began, as ``log.starts`` writes it."""
    hold: bool = True
    """Whether retention waits for the group."""
    paused: bool = False
    """Whether records wait until an operator resumes the group."""
    generation: int = 1
    """Grows with each reset; what members say under an older one changes nothing."""
    reset_to: str = "latest"
    """Where the present generation began."""
    made_by_share: bool = False
    """Whether a ``$share`` subscription made the group. The group's name is then ``$share/NAME/FILTER``."""
    linger_ms: int = 0
    """How long a group that ``$share`` made outlives the session of its last member."""
    created_ms: int = 0
    reset_ms: int = 0
    """Wall time of the command that began the present generation: what ``latest`` refers to."""

    def topics(self) -> tuple[str, ...]:
        """The topics that the group reads, each once, in the order of the bindings."""
        return tuple(dict.fromkeys([binding.topic for binding in self.bindings]))

    def backoff_after(self, deliveries: int) -> int:
        """Milliseconds to wait after a nack of a record that was delivered so often."""
        doublings = min(max(deliveries - 1, 0), 40)
        return min(self.backoff_ms << doublings, self.backoff_max_ms)


def share_name(name: str, topic_filter: str) -> str:
    """How the group of a ``$share`` subscription is called."""
    return f"{SHARE_PREFIX}{name}/{topic_filter}"


def reader_name(name: str) -> str:
    """How the reader of a group's dead letters is called: the group that lists, redrives and drops them."""
    return f"{READER_PREFIX}{name}"


def is_reader(name: str) -> bool:
    """Whether a group reads dead letters for another. Users can't name a group so: their names never begin with $."""
    return name.startswith(READER_PREFIX)


def share_filter(name: str) -> str:
    """The filter of a ``$share`` subscription, from the name of its group."""
    return name[len(SHARE_PREFIX) :].partition("/")[2]
