"""How a dead letter stands in its topic: the record as it was, under another name, with user properties that say why.

```
 plant/7/state of group work  -->  $dead/work/plant/7/state   flockmq-group: work, flockmq-reason: ...
```
Leaders write dead letters without a route: no subscription, and no durable topic, takes one for a new publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.cluster.filters import namespace_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

DEAD_NAME: Final = b"$dead/"
GROUP: Final = b"flockmq-group"
TOPIC: Final = b"flockmq-topic"
PARTITION: Final = b"flockmq-partition"
OFFSET: Final = b"flockmq-offset"
DELIVERIES: Final = b"flockmq-deliveries"
REASON: Final = b"flockmq-reason"
MEMBER: Final = b"flockmq-member"
DEAD_PROPERTIES: Final = frozenset((GROUP, TOPIC, PARTITION, OFFSET, DELIVERIES, REASON, MEMBER))
REDRIVEN: Final = b"flockmq-redriven"
"""The user property that a redriven record has: the name of the group whose dead letter it was."""


class DeadLetter(NamedTuple):
    """What the user properties of a dead letter say. Numbers are -1 where a property is missing."""

    group: str
    topic: str
    """The durable topic that the record was in."""
    shard: int
    offset: int
    deliveries: int
    reason: str
    member: str


def dead_name(namespace: str, group: str, name: bytes) -> bytes:
    """The topic name of a dead letter; names are in internal form."""
    prefix = namespace_prefix(namespace)
    return prefix + DEAD_NAME + group.encode() + b"/" + name.removeprefix(prefix)


def original_name(namespace: str, name: bytes) -> bytes:
    """The topic name that a dead letter was published to (in internal form); empty: this is no dead letter's name."""
    prefix = namespace_prefix(namespace)
    below = name.removeprefix(prefix)
    if not below.startswith(DEAD_NAME):
        return b""
    original = below[len(DEAD_NAME) :].partition(b"/")[2]
    return prefix + original if original else b""


def dead_properties(letter: DeadLetter) -> list[tuple[bytes, bytes]]:
    """The user properties that a dead letter has besides those of its publisher."""
    return [
        (GROUP, letter.group.encode()),
        (TOPIC, letter.topic.encode()),
        (PARTITION, b"%d" % letter.shard),
        (OFFSET, b"%d" % letter.offset),
        (DELIVERIES, b"%d" % letter.deliveries),
        (REASON, letter.reason.encode()),
        (MEMBER, letter.member.encode()),
    ]


def read_dead(properties: Iterable[tuple[bytes, bytes]]) -> DeadLetter:
    """What they say. A publisher may have sent properties of the same names: the last ones are the leader's."""
    found = {name: value.decode("utf-8", "replace") for name, value in properties if name in DEAD_PROPERTIES}
    return DeadLetter(
        found.get(GROUP, ""),
        found.get(TOPIC, ""),
        _number(found.get(PARTITION, "")),
        _number(found.get(OFFSET, "")),
        _number(found.get(DELIVERIES, "")),
        found.get(REASON, ""),
        found.get(MEMBER, ""),
    )


def without_dead(properties: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The user properties of the publisher."""
    return [(name, value) for name, value in properties if name not in DEAD_PROPERTIES and name != REDRIVEN]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
