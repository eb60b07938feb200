"""Small parts of sentences that all of FlockMQ says alike."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def no_shard(topic: str, shards: int, shard: int) -> str:
    """A topic has fewer shards than a caller thinks."""
    return f"Topic {topic!r} has {counted(shards, 'shard')}, counted from 0; there is no shard {shard}"
