"""The QoS 2 packet ids of one session in logs, as far as this node knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.session.session import Session

Found = dict[int, list[int]]
"""Packet id -> partitions whose logs hold the id."""
Released = Callable[[bool], None]
"""True: the release is committed, answer with PUBCOMP. False: its outcome is not known, close the connection."""


class Held:
    """See the module."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.ids: Found = {}
        self.open: dict[int, int] = {}
        """Partitions that the record touches and that know this owner, and when each was used last."""
        self.missing: dict[int, None] = {}
        """Partitions that the record touches and that could not be asked."""
        self.waiting: list[tuple[list[int], Released, int]] = []
        """Releases (ids, reply, until when) that wait for missing partitions."""

    def is_empty(self) -> bool:
        """Whether nothing of the session is in logs."""
        return not self.ids and not self.open and not self.missing

    def idle(self, used_before: int) -> list[int]:
        """Open partitions that hold no id of the session, not used since; none while messages are on their way."""
        if self.session.unsettled:
            return []
        busy = {group for groups in self.ids.values() for group in groups}
        return [group for group, used_at in self.open.items() if used_at <= used_before and group not in busy]

    def partitions(self) -> list[int]:
        """All partitions that may hold ids of the session."""
        known = {group for groups in self.ids.values() for group in groups}
        return sorted(known.union(self.open, self.missing))
