"""Timing and sizes of a Raft group. Milliseconds of the node's own clock; see ``clock.py`` for what a jump does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """One value for all groups of a node."""

    tick_ms: int = 50
    """How often ``tick`` is called."""
    heartbeat_ms: int = 150
    """Gap between a leader's heartbeats. Lower notices a lost append sooner and costs packets."""
    election_ms: int = 1_000
    """Least silence of a leader before a follower campaigns; each draws up to twice this. Lower fails over sooner
    and mistakes slow disks or networks for dead leaders more often."""
    append_bytes_max: int = 1_048_576
    """Most bytes of entries in one append message."""
    entry_bytes_max: int = 4_194_304
    """Largest batch that is taken in."""
    write_bytes_max: int = 2_097_152
    """About how many bytes of entries one Ready gives out to be written; more wait for the next."""
    window_bytes_max: int = 4_194_304
    """Most bytes sent to a follower and not yet acknowledged."""
    tail_bytes_max: int = 8_388_608
    """Durable entries kept in memory for followers, so that replication reads no disk."""
    uncommitted_bytes_max: int = 67_108_864
    """Most bytes a leader takes in that are not committed yet; then it refuses until its followers have caught up."""
    apply_bytes_max: int = 8_388_608
    """Most bytes of committed entries given out at once."""
    snapshot_chunk_bytes: int = 1_048_576
    """Size of the pieces a snapshot is sent in."""
    lease: bool = True
    """Answer reads from the leader's own word while a quorum has lately confirmed it. Needs a clock that can't be set
    back while the process stands still (a monotonic one); without, each read waits for a round of heartbeats."""
    commit_news_at_once: bool = False
    """Tell followers what is committed as soon as nothing else is on its way to them, instead of with the next tick:
    for groups whose followers deliver to readers. Costs a packet to each follower for a batch that comes alone."""
    quiet_after_ms: int = 2_000
    """A group without work for this long goes quiet: no heartbeats, no lease."""

    @property
    def gap_ms(self) -> int:
        """A node that was heard again after less than this had no time to give up a leader that it could hear.

        A follower's clock may count twice as fast as time passes (``clock.py``), so half of the election timeout.
        """
        return self.election_ms // 2

    @property
    def lease_ms(self) -> int:
        """How long after a round that a quorum answered no other leader can have been elected.

        As short as ``gap_ms``, less two ticks for rounding.
        """
        return self.gap_ms - 2 * self.tick_ms
