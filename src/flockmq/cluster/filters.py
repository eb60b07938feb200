"""Filters of durable topics: their two forms, and whether two of them could match one name.

```
 user form      plant/+/temperature          as people of the namespace write it
 internal form  $ns/acme/plant/+/temperature  as the broker routes by; the namespace "default" has no prefix
```
A topic name belongs to at most one log, so filters that overlap are refused. ``FilterTree`` finds an overlap by
walking only the branches that could hold one; ``filters_overlap`` says the same for two filters, the obvious way.
"""

from __future__ import annotations

from typing import Final

from flockmq.cluster.model import DEFAULT_NAMESPACE

NAMESPACE_PREFIX: Final = b"$ns/"


def namespace_prefix(namespace: str) -> bytes:
    """What stands before each topic of a namespace inside the broker."""
    return b"" if namespace == DEFAULT_NAMESPACE else NAMESPACE_PREFIX + namespace.encode() + b"/"


def internal_filter(namespace: str, topic_filter: str) -> bytes:
    """User form to internal form."""
    return namespace_prefix(namespace) + topic_filter.encode()


def user_filter(namespace: str, topic_filter: bytes) -> str:
    """Internal form to user form."""
    return topic_filter[len(namespace_prefix(namespace)) :].decode()


def filters_overlap(one: bytes, other: bytes) -> bool:
    """Whether some topic name matches both (valid) filters.

    The empty name counts, though no client can publish to it: ``+`` and ``/#`` share it. With a namespace before it,
    it is a name like any other, and the rule should be the same in all namespaces.
    """
    left = one.split(b"/")
    right = other.split(b"/")
    if (one.startswith(b"$") and right[0] in (b"+", b"#")) or (other.startswith(b"$") and left[0] in (b"+", b"#")):
        return False  # [MQTT-4.7.2-1]
    for index in range(max(len(left), len(right))):
        mine = left[index] if index < len(left) else b""
        theirs = right[index] if index < len(right) else b""
        if (index < len(left) and mine == b"#") or (index < len(right) and theirs == b"#"):
            return True  # also matches the parent level, so it does not matter that the other may have ended
        if index >= len(left) or index >= len(right):
            return False
        if mine not in (theirs, b"+") and theirs != b"+":
            return False
    return True


class _Branch:
    """A level of the tree. ``owner`` is the topic whose filter ends here, empty for none."""

    def __init__(self) -> None:
        self.children: dict[bytes, _Branch] = {}
        self.owner = ""


class FilterTree:
    """Filters that do not overlap, each with an owner; finds the owner of one that overlaps another."""

    def __init__(self) -> None:
        self._root = _Branch()

    def add(self, topic_filter: bytes, owner: str) -> None:
        """Keep a filter. Whether it overlaps is asked before."""
        branch = self._root
        for level in topic_filter.split(b"/"):
            child = branch.children.get(level)
            if child is None:
                child = branch.children[level] = _Branch()
            branch = child
        branch.owner = owner

    def remove(self, topic_filter: bytes) -> None:
        """Forget a filter, and branches that lead nowhere now."""
        path: list[tuple[_Branch, bytes]] = []
        branch = self._root
        for level in topic_filter.split(b"/"):
            path.append((branch, level))
            branch = branch.children[level]
        branch.owner = ""
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.owner:
                return
            del parent.children[level]

    def owner_of_overlap(self, topic_filter: bytes, ignored: str = "") -> str:
        """The owner of a filter that overlaps this one, ``ignored`` aside; empty for none."""
        return _find(self._root, topic_filter.split(b"/"), 0, ignored)


def _find(branch: _Branch, levels: list[bytes], depth: int, ignored: str) -> str:
    rest = branch.children.get(b"#")
    if rest is not None and rest.owner != ignored and not (depth == 0 and levels[0].startswith(b"$")):
        return rest.owner
    if depth == len(levels):
        return branch.owner if branch.owner != ignored else ""
    level = levels[depth]
    if level == b"#":
        return _any_below(branch, depth, ignored)
    if level == b"+":
        for name, child in branch.children.items():
            if name != b"#" and not (depth == 0 and name.startswith(b"$")):
                found = _find(child, levels, depth + 1, ignored)
                if found:
                    return found
        return ""
    literal = branch.children.get(level)
    found = _find(literal, levels, depth + 1, ignored) if literal is not None else ""
    if found or (depth == 0 and level.startswith(b"$")):
        return found
    plus = branch.children.get(b"+")
    return _find(plus, levels, depth + 1, ignored) if plus is not None else ""


def _any_below(branch: _Branch, depth: int, ignored: str) -> str:
    """The owner of a filter here or further down; ``#`` as a whole filter stays out of what begins with ``$``."""
    if depth and branch.owner and branch.owner != ignored:
        return branch.owner
    for name, child in branch.children.items():
        if not (depth == 0 and name.startswith(b"$")):
            found = _any_below(child, depth + 1, ignored)
            if found:
                return found
    return ""
