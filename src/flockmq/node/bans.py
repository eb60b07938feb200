"""Clients, user names and addresses that may not connect for a while. Bounded, and forgetting by itself.

A node of a cluster holds the bans of cluster state (``hold``); a node without cluster state keeps its own (``add``).
"""

from __future__ import annotations

from typing import Final

BANS_MAX: Final = 100_000


class Ban:
    """One ban; ``until`` 0 means until it is lifted."""

    def __init__(self, kind: str, value: str, until: int, reason: str, since: int) -> None:
        self.kind = kind
        self.value = value
        self.until = until
        self.reason = reason
        self.since = since
        self.kicked = 0
        """Connections of this node that the ban ended."""


class BanList:
    """All bans, looked up at every CONNECT."""

    def __init__(self) -> None:
        self.bans: dict[tuple[str, str], Ban] = {}

    def add(self, kind: str, value: str, until: int, reason: str, now: int) -> bool:
        """Ban, or change a ban; False when the list is full."""
        if (kind, value) not in self.bans and len(self.bans) >= BANS_MAX:
            self.list(now)
            if len(self.bans) >= BANS_MAX:
                return False
        self.bans[(kind, value)] = Ban(kind, value, until, reason, now)
        return True

    def hold(self, bans: list[Ban]) -> bool:
        """Hold exactly these bans; returns whether one is new, so that it may hit connected clients."""
        known = self.bans
        held: dict[tuple[str, str], Ban] = {}
        has_new = False
        for ban in bans:
            key = (ban.kind, ban.value)
            same = known.get(key)
            if same is None or same.since != ban.since:
                has_new = True
            else:
                ban.kicked = same.kicked
            held[key] = ban
        self.bans = held
        return has_new

    def remove(self, kind: str, value: str) -> bool:
        """Lift a ban; False when there was none."""
        return self.bans.pop((kind, value), None) is not None

    def list(self, now: int) -> list[Ban]:
        """All bans in force; those that ran out are forgotten."""
        over = [key for key, ban in self.bans.items() if ban.until and ban.until <= now]
        for key in over:
            del self.bans[key]
        return [*self.bans.values()]

    def check(self, client_id: str, username: str | None, peer: str, now: int) -> Ban | None:
        """The ban that keeps this client out, if any."""
        if not self.bans:
            return None
        found = self.current("client", client_id, now) or self.current("address", peer, now)
        if found is None and username is not None:
            found = self.current("username", username, now)
        return found

    def current(self, kind: str, value: str, now: int) -> Ban | None:
        """The ban of exactly this, if it is still in force."""
        ban = self.bans.get((kind, value))
        if ban is None or (ban.until and ban.until <= now):
            return None
        return ban
