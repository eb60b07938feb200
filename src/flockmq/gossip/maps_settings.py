"""Sizes and times of owned maps. One value for all maps of a node; nodes may differ, at the price noted below."""

from __future__ import annotations

from flockmq.errors import ConfigError
from flockmq.gossip.maps_codec import ENTRY_BYTES, FULL_BYTES


class MapsSettings:
    """All bounds; each says what a higher value costs."""

    def __init__(
        self,
        *,
        keys_max: int = 1_000_000,
        bytes_max: int = 268_435_456,
        key_bytes_max: int = 131_072,
        value_bytes_max: int = 65_536,
        chunk_bytes_max: int = 262_144,
        log_bytes_max: int = 16_777_216,
        relay_log_bytes_max: int = 65_536,
        window_chunks: int = 4,
        window_bytes: int = 1_048_576,
        digest_interval_ms: int = 1_000,
        pull_after_ms: int = 500,
        pull_timeout_ms: int = 2_000,
        stale_ms: int = 2_000,
        forget_ms: int = 10_000,
    ) -> None:
        self.keys_max = keys_max
        """Most keys of one owner. What another owner has beyond it is left out here, and reported."""
        self.bytes_max = bytes_max
        """Most bytes of keys and values of one owner, eight more for each key. As above."""
        self.key_bytes_max = key_bytes_max
        """Longest key."""
        self.value_bytes_max = value_bytes_max
        """Longest value."""
        self.chunk_bytes_max = chunk_bytes_max
        """Largest message. Larger ones hold up what else the link has to carry."""
        self.log_bytes_max = log_bytes_max
        """Changes of the own map that are kept for peers that were away; beyond it they get the whole map."""
        self.relay_log_bytes_max = relay_log_bytes_max
        """The same for each other owner's map, of use to peers that can't reach that owner. Times the nodes."""
        self.window_chunks = window_chunks
        """Chunks of a whole map on their way to a peer before it has to answer."""
        self.window_bytes = window_bytes
        """Bytes of changes on their way to a peer before it has to answer: also what it may have to read at once."""
        self.digest_interval_ms = digest_interval_ms
        """Gap between digests over a link (to one peer at random), and between repairs with the same peer."""
        self.pull_after_ms = pull_after_ms
        """An owner that is linked gets so much time to send what it is known to have before it is asked."""
        self.pull_timeout_ms = pull_timeout_ms
        """A question that brought nothing for so long may be asked again, of another node too."""
        self.stale_ms = stale_ms
        """A linked owner that sent nothing of what it has for so long: other nodes are asked for its map."""
        self.forget_ms = forget_ms
        """What can't be right for long is kept for so long: the map of a node's former life, for the new one to be
        compared with; the map of a node that membership never heard of, after its link is lost."""
        entry_bytes = ENTRY_BYTES + key_bytes_max + value_bytes_max
        if chunk_bytes_max < FULL_BYTES + entry_bytes:
            raise ConfigError(
                f"Chunks of {chunk_bytes_max:,} bytes can't hold an entry of {entry_bytes:,}: "
                "raise chunk_bytes_max or lower key_bytes_max or value_bytes_max."
            )
        if min(window_chunks, window_bytes, keys_max, bytes_max) < 1:
            raise ConfigError("Owned maps need room for at least one key, and a window of at least one chunk and byte.")
