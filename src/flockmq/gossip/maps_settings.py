"""Sizes and times of owned maps. One value for all maps of a node; nodes may differ, at the price noted below."""

from __future__ import annotations

from dataclasses import dataclass

from flockmq.errors import ConfigError
from flockmq.gossip.maps_codec import ENTRY_BYTES, FULL_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class MapsSettings:
    """All bounds; each says what a higher value costs."""

    keys_max: int = 1_000_000
    """Most keys of one owner. What another owner has beyond it is left out here, and reported."""
    bytes_max: int = 268_435_456
    """Most bytes of keys and values of one owner, eight more for each key. As above."""
    key_bytes_max: int = 131_072
    """Longest key."""
    value_bytes_max: int = 65_536
    """Longest value."""
    chunk_bytes_max: int = 262_144
    """Largest message. Larger ones hold up what else the link has to carry."""
    log_bytes_max: int = 16_777_216
    """Changes of the own map that are kept for peers that were away; beyond it they get the whole map."""
    relay_log_bytes_max: int = 65_536
    """The same for each other owner's map, of use to peers that can't reach that owner. Times the nodes."""
    window_chunks: int = 4
    """Chunks of a whole map on their way to a peer before it has to answer."""
    window_bytes: int = 1_048_576
    """Bytes of changes on their way to a peer before it has to answer: also what it may have to read at once."""
    digest_interval_ms: int = 1_000
    """Gap between digests over a link (to one peer at random), and between repairs with the same peer."""
    pull_after_ms: int = 500
    """An owner that is linked gets so much time to send what it is known to have before it is asked."""
    pull_timeout_ms: int = 2_000
    """A question that brought nothing for so long may be asked again, of another node too."""
    stale_ms: int = 2_000
    """A linked owner that sent nothing of what it has for so long: other nodes are asked for its map."""
    forget_ms: int = 10_000
    """What can't be right for long is kept for so long: the map of a node's former life, for the new one to be
    compared with; the map of a node that membership never heard of, after its link is lost."""

    def __post_init__(self) -> None:
        entry_bytes = ENTRY_BYTES + self.key_bytes_max + self.value_bytes_max
        if self.chunk_bytes_max < FULL_BYTES + entry_bytes:
            raise ConfigError(
                f"Chunks of {self.chunk_bytes_max:,} bytes can't hold an entry of {entry_bytes:,}: "
                "raise chunk_bytes_max or lower key_bytes_max or value_bytes_max."
            )
        if min(self.window_chunks, self.window_bytes, self.keys_max, self.bytes_max) < 1:
            raise ConfigError("Owned maps need room for at least one key, and a window of at least one chunk and byte.")
