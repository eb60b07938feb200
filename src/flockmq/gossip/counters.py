"""Figures of membership, for metrics and for operators that look for a fault."""

from __future__ import annotations


class Counters:
    """What happened so far."""

    def __init__(self) -> None:
        self.malformed = 0
        """Datagrams that could not be read."""
        self.foreign = 0
        """Datagrams of nodes of another cluster that share the cookie."""
        self.outdated = 0
        """Datagrams of earlier lives of a node."""
        self.probes = 0
        self.probes_failed = 0
        self.stalls = 0
        """How often this node noticed that it had not been run."""
