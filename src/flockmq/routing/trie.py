"""Which wildcard filters match a topic name, in time that depends on the name's levels, not on the number of filters.

```
 a/+/c   a/#        root --a--> ( a/# ends here ) --+--> ( ) --c--> ( a/+/c ends here )
```
A node knows the filter that ends at it and the filter that goes on with ``#`` only, so ``#`` needs no node of its own
and matches the parent level too. [MQTT-4.7.1-2]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.routing.entry import FilterEntry


class TrieNode:
    """One level of one or more filters."""

    def __init__(self) -> None:
        self.children: dict[bytes, TrieNode] | None = None
        self.plus: TrieNode | None = None
        self.entry: FilterEntry | None = None
        self.rest: FilterEntry | None = None
        """The filter that has ``#`` below this level."""

    def is_empty(self) -> bool:
        """Whether no filter ends here or goes through here."""
        return self.entry is None and self.rest is None and self.plus is None and self.children is None


class FilterTrie:
    """Wildcard filters by level. Filters without wildcards don't belong here: a dict finds them."""

    def __init__(self) -> None:
        self._root = TrieNode()
        self.count = 0

    def add(self, entry: FilterEntry) -> None:
        """Enter a filter that is not in yet."""
        node = self._root
        levels = entry.topic_filter.split(b"/")
        last = len(levels) - 1
        for index in range(last):
            node = self._descend(node, levels[index])
        if levels[last] == b"#":
            node.rest = entry
        else:
            self._descend(node, levels[last]).entry = entry
        self.count += 1

    def remove(self, topic_filter: bytes) -> bool:
        """Take a filter out, and the levels that nothing else uses."""
        levels = topic_filter.split(b"/")
        ends_open = levels[-1] == b"#"
        if ends_open:
            levels.pop()
        path = [self._root]
        for level in levels:
            node = path[-1]
            child = node.plus if level == b"+" else node.children.get(level) if node.children is not None else None
            if child is None:
                return False
            path.append(child)
        node = path[-1]
        if (node.rest if ends_open else node.entry) is None:
            return False
        if ends_open:
            node.rest = None
        else:
            node.entry = None
        self.count -= 1
        self._prune(path, levels)
        return True

    def match(self, topic: bytes) -> list[FilterEntry]:
        """Find the filters that match a topic name."""
        return self.match_levels(topic.split(b"/"), topic.startswith(b"$"))

    def match_levels(self, levels: list[bytes], is_system: bool) -> list[FilterEntry]:
        """Match a name already cut into levels. ``is_system``: it starts with ``$``, so no leading wildcard matches."""
        found: list[FilterEntry] = []
        if self.count == 0:
            return found
        nodes = [self._root]
        hides_wildcards = is_system  # [MQTT-4.7.2-1]
        for level in levels:
            below: list[TrieNode] = []
            for node in nodes:
                children = node.children
                if children is not None:
                    child = children.get(level)
                    if child is not None:
                        below.append(child)
                if not hides_wildcards:
                    rest = node.rest
                    if rest is not None:
                        found.append(rest)
                    plus = node.plus
                    if plus is not None:
                        below.append(plus)
            if not below:
                return found
            hides_wildcards = False
            nodes = below
        for node in nodes:
            entry = node.entry
            if entry is not None:
                found.append(entry)
            rest = node.rest
            if rest is not None:
                found.append(rest)
        return found

    @staticmethod
    def _descend(node: TrieNode, level: bytes) -> TrieNode:
        if level == b"+":
            plus = node.plus
            if plus is None:
                plus = TrieNode()
                node.plus = plus
            return plus
        if node.children is None:
            node.children = {}
        child = node.children.get(level)
        if child is None:
            child = TrieNode()
            node.children[level] = child
        return child

    @staticmethod
    def _prune(path: list[TrieNode], levels: list[bytes]) -> None:
        for index in range(len(path) - 1, 0, -1):
            if not path[index].is_empty():
                return
            parent = path[index - 1]
            level = levels[index - 1]
            if level == b"+":
                parent.plus = None
            elif parent.children is not None:
                del parent.children[level]
                if not parent.children:
                    parent.children = None
