"""How much the durable topics of a namespace store: bytes of the partitions that this node leads.

So that all nodes together count each partition once, however many replicas it has. Partitions are looked at some
thousand at a time; what a round of all of them came to stands until the next one is through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.durable.state.layout import Layout
    from flockmq.raft.engine import RaftEngine

GROUPS_MAX: Final = 2_000
"""Partitions that are looked at in one tick: a few milliseconds."""


class StoredBytes:
    """See the module."""

    def __init__(self, engine: RaftEngine, layout: Layout) -> None:
        self._engine = engine
        self._layout = layout
        self._found: dict[str, int] = {}
        self._counting: dict[str, int] = {}
        self._line: list[tuple[str, int]] = []
        """Namespace and group of what this round has yet to look at."""

    def of(self, namespace: str) -> int:
        """What it had in the last round; 0 when it was not counted."""
        return self._found.get(namespace, 0)

    def begin(self, namespaces: set[str]) -> None:
        """Count these, unless a round is still under way; none of them costs nothing."""
        if not namespaces:
            self._line = []
            self._found = {}
        elif not self._line:
            self._counting = dict.fromkeys(namespaces, 0)
            self._line = self._layout.groups_in(namespaces)
            self._count()

    def go_on(self) -> None:
        """Look at some more, if a round is under way."""
        if self._line:
            self._count()

    def _count(self) -> None:
        engine = self._engine
        some = self._line[-GROUPS_MAX:]
        del self._line[-GROUPS_MAX:]
        for namespace, group in some:
            replica = engine.replicas.get(group)
            if replica is not None and engine.is_leader(group):
                self._counting[namespace] += replica.log.size()
        if not self._line:
            self._found = self._counting
