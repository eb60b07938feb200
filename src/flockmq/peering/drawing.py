"""The topic trie and the route table as people draw them: levels top down, then filter -> nodes.

```
 ---------------------------
 |         t               |
 |       /   \\             |
 |      +     #            |
 |     / \\                 |
 |    x   y                |
 ---------------------------
 | t/+/x -> node1, node3   |
 | t/#   -> node2          |
 ---------------------------
```
Only filters with wildcards are in the trie; the others are found by their name.
"""

from __future__ import annotations

from typing import Final

GAP: Final = 3
WIDTH_MAX: Final = 100
"""Widest drawing; a wider trie becomes an outline, one level deeper with each two spaces."""


class Branch:
    """A level of the trie and what may follow."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.below: dict[str, Branch] = {}


class Picture:
    """Lines of text, and in which column the root of what they show stands."""

    def __init__(self, lines: list[str], root: int) -> None:
        self.lines = lines
        self.root = root
        self.width = max([len(line) for line in lines], default=0)


def level_order(level: str) -> tuple[int, str]:
    """Names first, then ``+``, then ``#``."""
    return (("+", "#").index(level) + 1 if level in ("+", "#") else 0, level)


def filter_order(topic_filter: str) -> tuple[int, list[tuple[int, str]]]:
    """Filters as the trie has them, then those without wildcards."""
    levels = topic_filter.split("/")
    is_plain = "+" not in levels and "#" not in levels
    return (int(is_plain), [level_order(level) for level in levels])


def draw_trie(filters: list[str], width_max: int = WIDTH_MAX) -> list[str]:
    """Draw the trie of the filters that have wildcards; no lines when none has."""
    forest = Branch("")
    for topic_filter in sorted(filters, key=filter_order):
        levels = topic_filter.split("/")
        if "+" not in levels and "#" not in levels:
            continue
        branch = forest
        for level in levels:
            below = branch.below.get(level)
            if below is None:
                below = Branch(level or "(empty)")
                branch.below[level] = below
            branch = below
    lines: list[str] = []
    for tree in forest.below.values():
        picture = render(tree)
        if picture.width > width_max:
            return outline(list(forest.below.values()), 0)
        if lines:
            lines.append("")
        lines.extend(picture.lines)
    return lines


def render(tree: Branch) -> Picture:
    """Draw one tree: its root above the middle of what is below."""
    if not tree.below:
        return Picture([tree.label], len(tree.label) // 2)
    pictures = [render(below) for below in tree.below.values()]
    lines: list[str] = []
    roots: list[int] = []
    left = 0
    for picture in pictures:
        for index, line in enumerate(picture.lines):
            if index == len(lines):
                lines.append("")
            lines[index] = lines[index].ljust(left) + line
        roots.append(left + picture.root)
        left += picture.width + GAP
    root = (roots[0] + roots[-1]) // 2
    shift = max(0, len(tree.label) // 2 - root)
    root += shift
    strokes = ""
    for below in roots:
        column = below + shift
        stroke = "|" if column == root else "/" if column < root else "\\"
        strokes = strokes.ljust((column + root + int(column < root)) // 2) + stroke
    head = " " * (root - len(tree.label) // 2) + tree.label
    return Picture([head, strokes, *[(" " * shift + line).rstrip() for line in lines]], root)


def outline(trees: list[Branch], depth: int) -> list[str]:
    """List the levels one below the other."""
    lines: list[str] = []
    for tree in trees:
        lines.append("  " * depth + tree.label)
        lines.extend(outline(list(tree.below.values()), depth + 1))
    return lines


def draw_table(rows: list[tuple[str, list[str]]]) -> list[str]:
    """Draw filters and the nodes they lead to."""
    widest = max([len(name) for name, _ in rows], default=0)
    return [f"{name.ljust(widest)} -> {', '.join(nodes)}" for name, nodes in rows]


def draw_routes(rows: list[tuple[str, list[str]]], width_max: int = WIDTH_MAX) -> list[str]:
    """Draw the trie and the table in one frame."""
    trie = draw_trie([name for name, _ in rows if not name.startswith("$share/")], width_max)
    table = draw_table(rows)
    width = max([len(line) for line in trie + table], default=0)
    edge = "-" * (width + 4)
    middle = " " * ((width - max([len(line) for line in trie], default=0)) // 2)
    lines = [edge]
    if trie:
        lines += [f"| {(middle + line).ljust(width)} |" for line in trie]
        lines.append(edge)
    lines += [f"| {line.ljust(width)} |" for line in table]
    lines.append(edge)
    return lines
