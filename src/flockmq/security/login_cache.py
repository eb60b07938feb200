"""Remembers logins that were verified, so that a client that comes back does not cost an argon2id hash again.

No password is kept: an entry is an HMAC of name, password and password hash under a key that lives as long as the
process. The hash is part of it, so a new password makes old entries unreachable at once.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict


class LoginCache:
    """The most recently used logins, each for a limited time."""

    def __init__(self, key: bytes, size_max: int, lifetime_ms: int) -> None:
        self._key = key
        self._size_max = size_max
        self._lifetime_ms = lifetime_ms
        self._expiries: OrderedDict[bytes, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"LoginCache({len(self)})"

    def __len__(self) -> int:
        return len(self._expiries)

    def tag(self, username: str, password: bytes, password_hash: str) -> bytes:
        """What a login is remembered as."""
        parts = (username.encode("utf-8", "surrogatepass"), password, password_hash.encode())
        return hmac.digest(self._key, b"".join(len(part).to_bytes(8, "big") + part for part in parts), "sha256")

    def holds(self, tag: bytes, now_ms: int) -> bool:
        """Whether this login was verified not long ago."""
        expires_at_ms = self._expiries.get(tag)
        if expires_at_ms is None:
            return False
        if now_ms >= expires_at_ms:
            del self._expiries[tag]
            return False
        self._expiries.move_to_end(tag)
        return True

    def add(self, tag: bytes, now_ms: int) -> None:
        """Remember a verified login; its time is not prolonged by use."""
        if not self._size_max or not self._lifetime_ms:
            return
        self._expiries[tag] = now_ms + self._lifetime_ms
        self._expiries.move_to_end(tag)
        if len(self._expiries) > self._size_max:
            self._expiries.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._expiries.clear()
