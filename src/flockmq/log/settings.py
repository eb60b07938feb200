"""Sizes of a store and of what a log keeps. Frozen; contradictions are refused where they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flockmq.errors import ConfigError

KIB = 1024
MIB = 1024 * KIB

KEPT_PARTS: Final = 4
"""What a log keeps is in about so many segments: whole ones go, so it has up to one such part more than it has to."""
SMALL_SEGMENT_BYTES_MIN: Final = 64 * KIB
SMALL_SEGMENT_AGE_MS_MIN: Final = 1_000
SMALL_SEGMENTS_MAX: Final = 32
"""With so many segments a log can't forget what it should, because a cursor holds it, say. Then it closes them at the
size and age of its store: files must not become ever more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How one node's store behaves. The defaults suit a real disk; the simulator takes much smaller ones."""

    journal_bytes: int = 32 * MIB
    """Size of a journal file. At most two hold what is not checkpointed: a restart replays at most twice this."""

    commit_bytes: int = 8 * MIB
    """How much may wait for the next group commit before ``Store.has_room`` says no."""

    segment_bytes: int = 64 * MIB
    """A segment that reached this size is closed, at a quarter of what its topic keeps if that is less. Retention
    removes whole segments."""

    segment_age_ms: int = 24 * 3600 * 1000
    """A segment whose first batch is this old is closed with the next append, however small; at a quarter of the time
    that its topic keeps records if that is less."""

    index_bytes: int = 32 * KIB
    """Gap between two entries of a segment's sparse index: what a seek reads and does not need."""

    cache_bytes: int = 64 * MIB
    """Recent batches kept in memory, of all groups together, besides those that are not checkpointed yet."""

    held_bytes: int = 16 * 1024 * MIB
    """What a partition that keeps records by age alone may have on disk while cursors hold older ones. 0: no bound."""

    verify_bytes: int = 256 * MIB
    """How much of the newest segments is read and verified at start, of all groups together."""

    loaded_indexes: int = 64
    """Sparse indexes of closed segments kept in memory."""

    scrub_days: int = 7
    """Within so many days everything in segment files is read and verified once, and compared with other replicas.
    Less finds damage sooner and reads more. 0: only what clients read is verified."""

    scrub_bytes_per_second: int = 16 * MIB
    """Most that is read for that in a second, also when an operator asks for it."""

    kernel_writes: bool = True
    """Let Linux write the journal by itself, which is quicker, instead of a thread. Turn it off where backups freeze
    the file system: then a frozen one holds up acknowledgements only, not the whole node."""

    def __post_init__(self) -> None:
        if self.journal_bytes % 4096 or self.journal_bytes < 4 * 4096:
            raise ConfigError("A journal file must be a multiple of 4,096 bytes, at least four times as much.")
        if max(self.journal_bytes, self.segment_bytes) > 1024 * MIB:
            raise ConfigError("Journal files and segments may have 1 GiB at most.")
        if self.scrub_days < 0 or self.scrub_bytes_per_second < 64 * KIB:
            raise ConfigError("scrub_days can't be negative, and scrub_bytes_per_second is at least 65,536.")
        if self.commit_bytes * 2 > self.journal_bytes:
            raise ConfigError("A journal file must hold at least two group commits: raise journal_bytes.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a log keeps. 0 means without limit."""

    age_ms: int = 0
    """Segments whose newest record is older may go."""

    bytes: int = 0
    """The oldest segments may go while those after them are at least so much."""

    bytes_bound: int = 0
    """Beyond this, in the same way, the oldest segments go even though a cursor needs them: the disk is finite."""

    age_bound_ms: int = 0
    """Segments whose newest record is older go even though a cursor needs them."""

    names: bool = False
    """Whether each segment has an index of the topic names in it, for readers that want few of them."""

    def __post_init__(self) -> None:
        if self.bytes_bound and self.bytes_bound < self.bytes:
            raise ConfigError("retention: bytes_bound is the last resort and can't be smaller than bytes.")

    def segment_bytes(self, most: int) -> int:
        """Where a segment of such a log is closed, in a store whose segments have ``most`` bytes."""
        return min(most, max(self.bytes // KEPT_PARTS, SMALL_SEGMENT_BYTES_MIN)) if self.bytes else most

    def segment_age_ms(self, most: int) -> int:
        """Age at which a segment of such a log is closed, at most ``most``."""
        return min(most, max(self.age_ms // KEPT_PARTS, SMALL_SEGMENT_AGE_MS_MIN)) if self.age_ms else most
