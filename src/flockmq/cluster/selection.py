"""Which records of a topic are for a consumer group: its bindings, made ready for many names.

```
 name --names()--> True, False, or None: look at the user properties of each record
                                           `--record()--> True or False
        routing key = user property `routing-key`, else the name below the topic's filter prefix
```
A name is decided once, however many records have it. A group and a topic are fixed here: make a new selection when
one of them changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.bindings import is_amqp, parse_headers
from flockmq.cluster.filters import namespace_prefix
from flockmq.cluster.groups import DIRECT, FANOUT, HEADERS, NAMED, TOPIC
from flockmq.cluster.wanted_names import WantedNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flockmq.cluster.bindings import HeaderTest
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.cluster.model import TopicRecord

ROUTING_KEY: Final = b"routing-key"
"""The user property that names the routing key of a record."""
KNOWN_MAX: Final = 16_384
"""Names, and routing keys, whose outcome is kept; then all are forgotten."""
KNOWN_BYTES_MAX: Final = 1_024
"""Of a name or key whose outcome is kept."""


class Selection:
    """The bindings of one group to one topic. Names and routing keys are bytes, names in internal form."""

    def __init__(self, bindings: Sequence[tuple[str, str]], filters: Sequence[bytes], prefix: bytes = b"") -> None:
        """``bindings`` are pairs of type and key, ``prefix`` is that of the namespace."""
        kinds = {kind for kind, _ in bindings}
        self.takes_all = FANOUT in kinds
        self.by_properties = not self.takes_all and bool(kinds - {NAMED})
        """Whether user properties can matter; without them, ``plain`` decides every record."""
        self._direct = {key.encode() for kind, key in bindings if kind == DIRECT}
        self._filters = [_Filter(key) for kind, key in bindings if kind == TOPIC]
        self._headers = [parse_headers(key) for kind, key in bindings if kind == HEADERS]
        named = [key.encode() for kind, key in bindings if kind == NAMED]
        self._named = WantedNames(named, prefix) if named else None
        self._prefix = prefix
        self._heads = sorted({head for head in map(_head, filters) if head}, key=len, reverse=True)
        self._plain: dict[bytes, bool] = {}
        self._keys: dict[bytes, bool] = {}

    @classmethod
    def of(cls, group: ConsumerGroup, topic: TopicRecord) -> Selection:
        """What the group reads of the topic."""
        bindings = [(one.type or topic.exchange, one.key) for one in group.bindings if one.topic == topic.name]
        return cls(bindings, topic.filters, namespace_prefix(topic.namespace))

    def names(self, name: bytes) -> bool | None:
        """Whether all records of a name are for the group; None: ``record`` decides each."""
        if self.takes_all or (self._named is not None and self._named.wants(name)):
            return True
        return None if self.by_properties else False

    def plain(self, name: bytes) -> bool:
        """Whether a record of a name without user properties is for the group."""
        found = self._plain.get(name)
        if found is None:
            found = self.names(name) is True or self._routes(self.routing_key(name))
            _keep(self._plain, name, found)
        return found

    def record(self, name: bytes, properties: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether one record is for the group."""
        if not properties or not self.by_properties:
            return self.plain(name)
        if self._headers and any(_has(test, properties) for test in self._headers):
            return True
        for key, value in properties:
            if key == ROUTING_KEY:
                return self.names(name) is True or self._routes(value)
        return self.plain(name)

    def routing_key(self, name: bytes) -> bytes:
        """The routing key that a name gives: what is below the filter's levels before its first wildcard."""
        for head in self._heads:
            if name.startswith(head):
                return name[len(head) :]
            if name == head[:-1]:
                return b""
        return name[len(self._prefix) :] if name.startswith(self._prefix) else name

    def _routes(self, key: bytes) -> bool:
        found = self._keys.get(key)
        if found is None:
            found = key in self._direct or any(one.matches(key) for one in self._filters)
            _keep(self._keys, key, found)
        return found


def _keep(known: dict[bytes, bool], text: bytes, outcome: bool) -> None:
    if len(text) <= KNOWN_BYTES_MAX:
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[text] = outcome


def _head(topic_filter: bytes) -> bytes:
    """The levels before the first wildcard, with the slash after them; empty for a filter without wildcards."""
    levels = topic_filter.split(b"/")
    for index, level in enumerate(levels):
        if level in (b"+", b"#"):
            return b"".join([one + b"/" for one in levels[:index]])
    return b""


def _has(test: HeaderTest, properties: Iterable[tuple[bytes, bytes]]) -> bool:
    there = set(properties)
    names = {name for name, _ in there}
    found = (name in names if value is None else (name, value) in there for name, value in test.pairs)
    return all(found) if test.is_all else any(found)


class _Filter:
    """A filter over routing keys. Comparing costs at most words times levels, whatever a client sends as a key."""

    def __init__(self, key: str) -> None:
        self._has_dots = is_amqp(key)
        words = key.replace(".", "/") if self._has_dots else key
        self._words = words.encode().split(b"/")
        self._one = b"*" if self._has_dots else b"+"

    def matches(self, key: bytes) -> bool:
        """Whether a routing key matches. The dots of AMQP count only in a key that has no slash."""
        spelled = key.replace(b".", b"/") if self._has_dots and b"/" not in key else key
        levels = spelled.split(b"/") if spelled else []
        words = self._words
        word = level = 0
        open_word, open_level = -1, 0
        while level < len(levels):
            if word < len(words) and words[word] == b"#":
                open_word, open_level = word, level
                word += 1
            elif word < len(words) and words[word] in (levels[level], self._one):
                word += 1
                level += 1
            elif open_word >= 0:
                # The last `#` takes one more level, and the words after it are tried again.
                open_level += 1
                word, level = open_word + 1, open_level
            else:
                return False
        return all(rest == b"#" for rest in words[word:])
