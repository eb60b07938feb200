"""Topic names by level, so that a filter finds the names it matches without looking at the others.

```
 a/b, a/c/d, x/y/z      root --a--> branch --b--> a/b
                          |             `--c--> a/c/d
                          `--x--> x/y/z
```
A name hangs at the first level that it shares with no other name; only shared levels have branches. Most names cost
one dict slot, however many levels they have.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from flockmq.routing.levels import leaf_matches

UNBOUNDED: Final = 1 << 60


class Named:
    """Something that is found by its topic name."""

    def __init__(self, topic: bytes) -> None:
        self.topic = topic


T = TypeVar("T", bound=Named)


class Branch:
    """A level that several names go through; ``value`` is the name that ends at it."""

    def __init__(self) -> None:
        self.value: Named | None = None
        self.children: dict[bytes, Branch | Named] = {}


class NameTree(Generic[T]):
    """A map of topic names that can be searched by filter."""

    def __init__(self) -> None:
        self._root = Branch()
        self.count = 0
        self.steps = 0
        """How many branches and names the last match looked at."""

    def set(self, value: T) -> None:
        """Enter a value under its topic, in place of the one that was there."""
        self.set_levels(value, value.topic.split(b"/"))

    def set_levels(self, value: T, levels: list[bytes]) -> None:
        """Enter a value whose topic is already cut into levels."""
        branch = self._root
        depth = 0
        last = len(levels) - 1
        while True:
            level = levels[depth]
            child = branch.children.get(level)
            if child is None:
                branch.children[level] = value
                self.count += 1
                return
            if not isinstance(child, Branch):
                if child.topic == value.topic:
                    branch.children[level] = value
                    return
                child = self._split(branch, level, child, depth + 1)
            branch = child
            if depth == last:
                if branch.value is None:
                    self.count += 1
                branch.value = value
                return
            depth += 1

    def get(self, topic: bytes) -> T | None:
        """Find the value under exactly this name."""
        branch = self._root
        for level in topic.split(b"/"):
            child = branch.children.get(level)
            if child is None:
                return None
            if not isinstance(child, Branch):
                return self._typed(child) if child.topic == topic else None
            branch = child
        return self._typed(branch.value) if branch.value is not None else None

    def remove(self, topic: bytes) -> bool:
        """Take a name out, and the branches that no two names share any more."""
        levels = topic.split(b"/")
        path = [self._root]
        for level in levels:
            branch = path[-1]
            child = branch.children.get(level)
            if child is None:
                return False
            if not isinstance(child, Branch):
                if child.topic != topic:
                    return False
                del branch.children[level]
                break
            path.append(child)
        else:
            if path[-1].value is None:
                return False
            path[-1].value = None
        self.count -= 1
        self._prune(path, levels)
        return True

    def match(self, topic_filter: bytes) -> list[T]:
        """Find the values whose names match a filter."""
        found = self.match_within(topic_filter, UNBOUNDED)
        return found if found is not None else []

    def match_within(self, topic_filter: bytes, steps_max: int) -> list[T] | None:
        """Match, but give up with None after ``steps_max`` steps."""
        wanted = topic_filter.split(b"/")
        found: list[T] = []
        steps = 0
        branches = [self._root]
        depth = 0
        for level in wanted:
            steps += len(branches)
            if level == b"#":
                steps = self._collect(branches, depth, found, steps, steps_max)
                branches = []
                break
            below: list[Branch] = []
            for branch in branches:
                if level != b"+":
                    child = branch.children.get(level)
                    if child is None:
                        continue
                    if isinstance(child, Branch):
                        below.append(child)
                    elif leaf_matches(wanted, child.topic, depth + 1):
                        found.append(self._typed(child))
                    continue
                steps += len(branch.children)
                if steps > steps_max:
                    break
                for key, child in branch.children.items():
                    if depth == 0 and key.startswith(b"$"):
                        continue
                    if isinstance(child, Branch):
                        below.append(child)
                    elif leaf_matches(wanted, child.topic, depth + 1):
                        found.append(self._typed(child))
            depth += 1
            branches = below
            if not branches or steps > steps_max:
                break
        else:
            found.extend([self._typed(branch.value) for branch in branches if branch.value is not None])
        self.steps = steps
        return found if steps <= steps_max else None

    def clear(self) -> None:
        """Forget all names."""
        self._root = Branch()
        self.count = 0

    def _collect(self, branches: list[Branch], depth: int, found: list[T], steps: int, steps_max: int) -> int:
        """Take everything at and below these branches; only a leading ``#`` leaves names with ``$`` out."""
        pending = list(branches)
        while pending and steps <= steps_max:
            branch = pending.pop()
            steps += len(branch.children)
            if branch.value is not None:
                found.append(self._typed(branch.value))
            for key, child in branch.children.items():
                if depth == 0 and branch is self._root and key.startswith(b"$"):
                    continue
                if isinstance(child, Branch):
                    pending.append(child)
                else:
                    found.append(self._typed(child))
        return steps

    @staticmethod
    def _typed(value: Named) -> T:
        # Only set() puts values in, and it takes nothing but T.
        return value  # type: ignore[return-value]

    @staticmethod
    def _split(parent: Branch, level: bytes, leaf: Named, depth: int) -> Branch:
        """Put a branch where one name hung, and hang that name one level lower."""
        branch = Branch()
        levels = leaf.topic.split(b"/")
        if depth == len(levels):
            branch.value = leaf
        else:
            branch.children[levels[depth]] = leaf
        parent.children[level] = branch
        return branch

    @staticmethod
    def _prune(path: list[Branch], levels: list[bytes]) -> None:
        for index in range(len(path) - 1, 0, -1):
            branch = path[index]
            count = len(branch.children)
            if count > 1 or (count == 1 and branch.value is not None):
                return
            children = path[index - 1].children
            level = levels[index - 1]
            if count == 1:
                only = next(iter(branch.children.values()))
                if isinstance(only, Branch):
                    return
                children[level] = only
            elif branch.value is not None:
                children[level] = branch.value
            else:
                del children[level]
