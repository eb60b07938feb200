"""Timing and sizes of membership, with profiles for the networks nodes live in. Milliseconds.

| profile | for | a dead node is known to all of a small cluster after about |
| --- | --- | --- |
| lan | one data centre (the default) | 3 s |
| wan | nodes far apart, round trips up to some 400 ms | 20 s |
| local | nodes on one machine | 1.5 s |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from flockmq.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipSettings:
    """One value for a node; all nodes of a cluster should use the same profile."""

    probe_interval_ms: int = 500
    """Gap between probes: SWIM's protocol period. Lower finds failures sooner and costs more packets."""
    ping_timeout_ms: int = 200
    """Silence after which others are asked to ping the target too. More than nearly all round trips; less than half of
    the interval, so that the detour has time to answer."""
    indirect_probes: int = 3
    """How many others are asked. More makes lost packets less likely to look like a dead node."""
    suspicion_mult: int = 4
    """Least time as a suspect = this x max(1, log10(nodes)) x probe_interval. Higher gives slow nodes more time."""
    suspicion_max_mult: int = 6
    """Longest time as a suspect = this x the least; it shrinks with each independent confirmation."""
    health_max: int = 8
    """How far a node that hears badly slows its own probing: up to (1 + this) times."""
    gossip_interval_ms: int = 200
    """While there is news it is also sent on its own, so often. Nothing is sent when there is none."""
    gossip_fanout: int = 3
    """To how many nodes at a time."""
    retransmit_mult: int = 4
    """A piece of news is sent this x ceil(log10(nodes + 1)) times by each node that has it."""
    revive_interval_ms: int = 1_000
    """Gap between tries to reach a node that is held dead, or a contact point that never answered. This is what
    makes two halves of a cluster find each other again."""
    repair_interval_ms: int = 1_000
    """Least gap between two comparisons of the whole list of members that this node starts."""
    compare_interval_ms: int = 30_000
    """The list is compared with a random node so often even if nothing hints at a difference."""
    dead_keep_ms: int = 24 * 3_600_000
    """Dead nodes are remembered, and tried again, so long."""
    left_keep_ms: int = 3_600_000
    """Nodes that left are remembered so long, so that late gossip can't bring them back."""
    dead_max: int = 4_096
    """Most dead and left nodes that are remembered; the longest gone are forgotten first."""
    members_max: int = 20_000
    """Most nodes of a cluster; more are refused and counted."""
    leave_ms: int = 3_000
    """How long a leaving node goes on telling so, at most."""

    def __post_init__(self) -> None:
        if self.ping_timeout_ms * 2 > self.probe_interval_ms:
            raise ConfigError(
                f"ping_timeout_ms = {self.ping_timeout_ms} leaves no time for the detour through others: "
                f"it must be at most half of probe_interval_ms = {self.probe_interval_ms}."
            )
        if min(self.ping_timeout_ms, self.gossip_interval_ms, self.gossip_fanout, self.retransmit_mult) < 1:
            raise ConfigError("The intervals and counts of gossip must be 1 or more.")

    def suspicion_min_ms(self, nodes: int) -> int:
        """Least time that a node stays a suspect in a cluster of this size."""
        return int(self.suspicion_mult * max(1.0, math.log10(max(nodes, 1))) * self.probe_interval_ms)

    def retransmits(self, nodes: int) -> int:
        """How often each node sends a piece of news."""
        return self.retransmit_mult * math.ceil(math.log10(nodes + 1))


LAN: Final = GossipSettings()
WAN: Final = GossipSettings(
    probe_interval_ms=2_000,
    ping_timeout_ms=900,
    suspicion_mult=6,
    gossip_interval_ms=500,
    gossip_fanout=4,
    revive_interval_ms=3_000,
    repair_interval_ms=3_000,
    leave_ms=6_000,
)
LOCAL: Final = GossipSettings(
    probe_interval_ms=250,
    ping_timeout_ms=100,
    gossip_interval_ms=100,
    revive_interval_ms=500,
    repair_interval_ms=500,
    leave_ms=1_500,
)
PROFILES: Final = {"lan": LAN, "wan": WAN, "local": LOCAL}


def profile(name: str, **changes: int) -> GossipSettings:
    """The settings of a profile, some of them changed."""
    if name not in PROFILES:
        raise ConfigError(f"There is no gossip profile {name!r}; there are {', '.join(sorted(PROFILES))}.")
    return replace(PROFILES[name], **changes)
