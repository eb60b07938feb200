"""Comparing a filter with a topic name level by level, where a tree has only one candidate left."""

from __future__ import annotations


def levels_match(wanted: list[bytes], name: list[bytes], start: int) -> bool:
    """Match filter levels with name levels from ``start`` on. What is before it, and ``$``, is the caller's matter."""
    count = len(name)
    for index in range(start, len(wanted)):
        level = wanted[index]
        if level == b"#":  # also matches the parent level: nothing has to follow
            return True
        if index >= count or (level != name[index] and level != b"+"):
            return False
    return len(wanted) == count


def leaf_matches(wanted: list[bytes], topic: bytes, start: int) -> bool:
    """Do the same for a whole name, which is cut into levels only when nothing simpler decides."""
    count = len(wanted)
    if start < count and wanted[start] == b"#":
        return True
    last = wanted[count - 1]
    if last != b"#":
        if topic.count(b"/") != count - 1:
            return False
        if start == count:
            return True
        if last != b"+" and not topic.endswith(last):
            return False
    return levels_match(wanted, topic.split(b"/"), start)
