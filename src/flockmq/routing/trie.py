"""Which wildcard filters match a topic name, in time that depends on the name's levels, not on the number of filters.

```
 a/#, a/b/+/d, a/+/c       root --a--> node (rest: a/#) --b--> a/b/+/d
                                           `--+--> node --c--> a/+/c
```
A filter hangs at the first plain level that it shares with no other filter; only shared levels and ``+`` have nodes.
A node knows the filter that goes on with ``#`` only, so ``#`` needs no node, and matches the parent level too.
"""

from __future__ import annotations

from flockmq.routing.entry import FilterEntry
from flockmq.routing.levels import levels_match


class TrieNode:
    """A level that several filters go through, or a ``+``."""

    def __init__(self) -> None:
        self.children: dict[bytes, TrieNode | FilterEntry] | None = None
        self.plus: TrieNode | None = None
        self.entry: FilterEntry | None = None
        """The filter that ends here."""
        self.rest: FilterEntry | None = None
        """The filter that goes on with ``#``."""

    def is_empty(self) -> bool:
        """Whether no filter ends here or goes through here."""
        return self.entry is None and self.rest is None and self.plus is None and self.children is None

    def only_entry(self) -> FilterEntry | None:
        """Find the filter that this node holds, if it holds one and leads nowhere else."""
        if self.plus is not None:
            return None
        found = self.entry
        if self.rest is not None:
            if found is not None:
                return None
            found = self.rest
        if self.children is not None:
            if found is not None or len(self.children) > 1:
                return None
            only = next(iter(self.children.values()))
            return only if isinstance(only, FilterEntry) else None
        return found


class FilterTrie:
    """Wildcard filters by level. Filters without wildcards don't belong here: a dict finds them."""

    def __init__(self) -> None:
        self._root = TrieNode()
        self.count = 0

    def add(self, entry: FilterEntry) -> None:
        """Enter a filter that is not in yet."""
        self._hang(self._root, entry, entry.topic_filter.split(b"/"), 0)
        self.count += 1

    def remove(self, topic_filter: bytes) -> bool:
        """Take a filter out, and the nodes that no two filters share any more."""
        levels = topic_filter.split(b"/")
        path = [self._root]
        if not self._unhang(path, topic_filter, levels):
            return False
        self.count -= 1
        self._prune(path, levels)
        return True

    def match(self, topic: bytes) -> list[FilterEntry]:
        """Find the filters that match a topic name."""
        return self.match_levels(topic.split(b"/"), topic.startswith(b"$"))

    def match_levels(self, levels: list[bytes], is_system: bool) -> list[FilterEntry]:
        """Match a name already cut into levels. ``is_system``: it starts with ``$``, so no leading wildcard matches."""
        found: list[FilterEntry] = []
        nodes = [self._root]
        hides_wildcards = is_system  # [MQTT-4.7.2-1]
        depth = 0
        for level in levels:
            depth += 1
            below: list[TrieNode] = []
            for node in nodes:
                children = node.children
                if children is not None:
                    child = children.get(level)
                    if child is not None:
                        if isinstance(child, TrieNode):
                            below.append(child)
                        elif levels_match(child.topic_filter.split(b"/"), levels, depth):
                            found.append(child)
                if hides_wildcards:
                    continue
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
    def _hang(node: TrieNode, entry: FilterEntry, levels: list[bytes], depth: int) -> None:
        """Find the place of a filter below ``node``, which stands before level ``depth``."""
        count = len(levels)
        while depth < count:
            level = levels[depth]
            depth += 1
            if level == b"#":
                node.rest = entry
                return
            if level == b"+":
                plus = node.plus
                if plus is None:
                    plus = TrieNode()
                    node.plus = plus
                node = plus
                continue
            children = node.children
            if children is None:
                children = {}
                node.children = children
            child = children.get(level)
            if child is None:
                children[level] = entry
                return
            if not isinstance(child, TrieNode):
                # Two filters share this level now: make it a node and hang the older one below it.
                below = TrieNode()
                FilterTrie._hang(below, child, child.topic_filter.split(b"/"), depth)
                children[level] = below
                child = below
            node = child
        node.entry = entry

    @staticmethod
    def _unhang(path: list[TrieNode], topic_filter: bytes, levels: list[bytes]) -> bool:
        """Take a filter from its place; ``path`` then holds the nodes that led there."""
        node = path[0]
        for level in levels:
            if level == b"#":
                if node.rest is None:
                    return False
                node.rest = None
                return True
            child = node.plus if level == b"+" else node.children.get(level) if node.children is not None else None
            if child is None:
                return False
            if not isinstance(child, TrieNode):
                if child.topic_filter != topic_filter or node.children is None:
                    return False
                del node.children[level]
                if not node.children:
                    node.children = None
                return True
            node = child
            path.append(node)
        if node.entry is None:
            return False
        node.entry = None
        return True

    @staticmethod
    def _prune(path: list[TrieNode], levels: list[bytes]) -> None:
        for index in range(len(path) - 1, 0, -1):
            node = path[index]
            parent = path[index - 1]
            level = levels[index - 1]
            if level == b"+":
                if not node.is_empty():
                    return
                parent.plus = None
                continue
            children = parent.children
            if children is None:
                return
            if node.is_empty():
                del children[level]
                if not children:
                    parent.children = None
                continue
            only = node.only_entry()
            if only is None:
                return
            children[level] = only
