"""Failed logins: counted per address and per user name, refused for a while when there are too many.

```
 blocked(peer, name, now) -> ms to wait, 0 when welcome      before anything costs CPU
 failed(peer, name, now)     one more; the last one too many begins a ban
 succeeded(name)             the name's count starts anew; the address' does not, or one own account would be
                             a licence to guess at all others
```
A name that too many guess at is refused to addresses that failed themselves within the window. From any other address
its user may still try: strangers can't lock a user out, and a guesser gets one guess per address and window.
Both tables are bounded: the entry that failed longest ago goes first. Names are kept as short digests, so that long
ones cost no more. Time is passed in.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flockmq.security.settings import SecuritySettings


@dataclass(slots=True)
class _Failures:
    since_ms: int
    count: int = 0
    banned_until_ms: int = 0


class _Table:
    """Failures by key, within one window each, most recent failure last."""

    def __init__(self, failures_max: int, settings: SecuritySettings, *, counts: bool) -> None:
        self.failures_max = failures_max
        self.counts = counts
        self.window_ms = settings.failed_logins_window_ms
        self.ban_ms = settings.failed_logins_ban_ms
        self.size_max = settings.failed_logins_tracked_max
        self.entries: OrderedDict[str | bytes, _Failures] = OrderedDict()

    def remaining_ms(self, key: str | bytes, now_ms: int) -> int:
        entry = self.entries.get(key)
        return max(0, entry.banned_until_ms - now_ms) if entry is not None else 0

    def has_failed(self, key: str | bytes, now_ms: int) -> bool:
        entry = self.entries.get(key)
        return entry is not None and (now_ms - entry.since_ms < self.window_ms or now_ms < entry.banned_until_ms)

    def failed(self, key: str | bytes, now_ms: int) -> None:
        if not self.counts:
            return
        entry = self.entries.get(key)
        if entry is None or now_ms - entry.since_ms >= self.window_ms:
            banned_until_ms = entry.banned_until_ms if entry is not None else 0
            entry = self.entries[key] = _Failures(now_ms, banned_until_ms=banned_until_ms)
        self.entries.move_to_end(key)
        entry.count += 1
        if self.failures_max and entry.count >= self.failures_max:
            entry.banned_until_ms = max(entry.banned_until_ms, now_ms + self.ban_ms)
            entry.since_ms, entry.count = now_ms, 0
        if len(self.entries) > self.size_max:
            self.entries.popitem(last=False)


class LoginThrottle:
    """Decides whether a client may try to log in now."""

    def __init__(self, settings: SecuritySettings) -> None:
        peer_max, name_max = settings.failed_logins_per_peer_max, settings.failed_logins_per_username_max
        self._peers = _Table(peer_max, settings, counts=bool(peer_max or name_max))
        self._names = _Table(name_max, settings, counts=bool(name_max))

    def blocked(self, peer: str, username: str | None, now_ms: int) -> int:
        """How long this address or this name still has to wait, in milliseconds; 0 when it may try."""
        if not self._peers.entries:
            return 0
        wait_ms = self._peers.remaining_ms(network_of(peer), now_ms)
        if username is not None and self.has_failed(peer, now_ms):
            wait_ms = max(wait_ms, self._names.remaining_ms(_name_key(username), now_ms))
        return wait_ms

    def has_failed(self, peer: str, now_ms: int) -> bool:
        """Whether a login from this address failed within the window, or it is still refused for that."""
        return self._peers.has_failed(network_of(peer), now_ms)

    def failed(self, peer: str, username: str | None, now_ms: int) -> None:
        """Count a failed login; ``username`` is None where no name was guessed at."""
        self._peers.failed(network_of(peer), now_ms)
        if username is not None:
            self._names.failed(_name_key(username), now_ms)

    def succeeded(self, username: str) -> None:
        """Forget what was counted against a name (not against an address)."""
        if self._names.entries:
            self._names.entries.pop(_name_key(username), None)

    @property
    def tracked(self) -> int:
        """How many addresses and names are being counted."""
        return len(self._peers.entries) + len(self._names.entries)


def network_of(peer: str) -> str:
    """The address as it is counted: IPv6 by its /64, which one customer has as a whole."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if address.version == 4:
        return peer
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((address, 64), strict=False))


def _name_key(username: str) -> bytes:
    return blake2b(username.encode("utf-8", "surrogatepass"), digest_size=16).digest()
