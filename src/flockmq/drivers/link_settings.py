"""The identity that a node shows to others, and the bounds of its links."""

from __future__ import annotations

from dataclasses import dataclass, field

from flockmq.raft.codec import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkIdentity:
    """What a node says of itself when it meets another, and the cookie that it does not say."""

    node_id: int
    boot: int
    """Number of this start; larger than that of any start before."""
    cookie: bytes = field(repr=False)
    name: str = ""
    cluster_id: int = 0
    """0: not in a cluster yet."""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Bounds of the links of one node."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Longest frame that is read or sent."""
    unsent_bytes_high: int = 2 * 1024 * 1024
    """With so many bytes waiting for a peer ``on_writable`` says no, and yes again at a quarter of it."""
    unsent_bytes_max: int = 32 * 1024 * 1024
    """Most bytes that wait for one peer. A frame is taken whenever nothing waits, however long it is."""
    retry_ms_min: int = 20
    """Wait before a peer is called again; doubles with every attempt that fails."""
    retry_ms_max: int = 1_000
    """Longest such wait."""
    yield_ms: int = 50
    """Of two nodes that know each other's address, the one with the larger id waits so long for the other's call."""
    connect_ms: int = 3_000
    """How long a peer may take to accept, and then to prove itself."""
    links_max: int = 4_096
    """Peers with a link at once."""
    unproven_max: int = 512
    """Callers that have not proved themselves. One more, and the one that has been at it longest is dropped; those with
    a right HELLO are counted apart, so that strangers can't crowd them out."""
    keepalive_ms: int = 5_000
    """A peer that said nothing for so long is asked whether it is there; with many links less often."""
    keepalives_per_s_max: int = 10
    """So many peers are asked in a second, however many there are: a larger cluster costs no more."""
    silence_ms: int = 15_000
    """How long it may take to answer, and the network to take what was sent; then the link is lost."""
    beat_ms: int = 1_000
    """How often all this is looked after."""
    close_ms: int = 1_000
    """How long ``close`` waits for what was sent before to leave."""
