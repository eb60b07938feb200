"""Where in the log of a topic a reader begins, as people write it: MQTT, REST and the command line alike.

```
 earliest | latest | offset:N | offset:SHARD=N,... | time:2026-01-31T12:00:00Z
```
``offset:N`` is for topics with one shard, or where one shard was chosen otherwise: with more, each has offsets of its
own. Shards that ``offset:SHARD=N,...`` does not name begin at their end. A time without a zone is in UTC; digits alone
are milliseconds since 1970, if there are enough of them to be no year, date or seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from flockmq.wording import counted

EARLIEST: Final = 0
LATEST: Final = 1
OFFSET: Final = 2
TIME: Final = 3
"""What a start names; OFFSET and TIME (milliseconds) have a value."""

OFFSET_MAX: Final = (1 << 62) - 1
LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999."""
MILLISECONDS_DIGITS_MIN: Final = 11
"""Since April 1970. Ten digits are seconds, eight a date and four a year: people do not mean 1970 by them."""
SHARD_DIGITS_MAX: Final = 9
USAGE: Final = "earliest, latest, offset:N, offset:SHARD=N,... or time:2026-01-31T12:00:00Z"


class Start:
    """Where to begin: in one log, or in each shard of a topic."""

    def __init__(self, what: int, value: int = 0, by_shard: dict[int, int] | None = None) -> None:
        self.what = what
        self.value = value
        self.by_shard = by_shard

    def of_shard(self, shard: int) -> Start:
        """Where to begin in the log of a shard."""
        if self.by_shard is None:
            return self
        offset = self.by_shard.get(shard, -1)
        return Start(LATEST) if offset < 0 else Start(OFFSET, offset)

    def offset_in(self, shard: int, first: int, end: int) -> int:
        """Where that is in a log from ``first`` to ``end``; a time has to be looked up."""
        start = self.of_shard(shard)
        if start.what == EARLIEST:
            return first
        return end if start.what == LATEST else min(max(start.value, first), end)

    def refusal(self, shards: int) -> str:
        """Why this is no place to begin in a topic with so many shards; empty: it is one."""
        if self.what != OFFSET or (self.by_shard is None and shards == 1):
            return ""
        if self.by_shard is None:
            return f"This topic has {shards} shards, each with its own offsets; use offset:SHARD=N,..."
        if max(self.by_shard) >= shards:
            return f"This topic has {counted(shards, 'shard')}, counted from 0"
        return ""


def parse_start(text: str) -> Start:
    """Read a start; ValueError says what is wrong."""
    kind, colon, value = text.partition(":")
    if kind == "earliest" and not colon:
        return Start(EARLIEST)
    if kind == "latest" and not colon:
        return Start(LATEST)
    if kind == "time":
        return Start(TIME, parse_time(value))
    if kind == "offset" and "=" not in value:
        return Start(OFFSET, parse_offset(value))
    if kind == "offset":
        by_shard: dict[int, int] = {}
        for part in value.split(","):
            shard, _, offset = part.partition("=")
            if not shard.isascii() or not shard.isdigit() or len(shard) > SHARD_DIGITS_MAX:
                raise ValueError(f"{shard[:64]!r} is no shard; use {USAGE}")
            if int(shard) in by_shard:
                raise ValueError(f"Shard {int(shard)} is named twice; name each shard once")
            by_shard[int(shard)] = parse_offset(offset)
        return Start(OFFSET, 0, by_shard)
    raise ValueError(f"{text[:64]!r} is no place to start; use {USAGE}")


def parse_offset(text: str) -> int:
    """A number that an offset can be."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > OFFSET_MAX:
        raise ValueError(f"{text[:64]!r} is no offset; use {USAGE}")
    return int(text)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of just that, or of an ISO 8601 time, in UTC unless it says otherwise."""
    plain = text.strip()
    if plain.isascii() and plain.isdigit() and len(plain) <= 15:
        if len(plain) < MILLISECONDS_DIGITS_MIN:
            raise ValueError(
                f"{plain!r} has too few digits for milliseconds since 1970; write a time like 2026-01-31T12:00:00Z, or "
                "a date like 2026-01-31"
            )
        return min(int(plain), LATEST_MS)
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise ValueError(
            f"{text[:64]!r} is no ISO 8601 time; write it like 2026-01-31T12:00:00Z, or as milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000), 0)
