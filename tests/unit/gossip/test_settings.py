from __future__ import annotations

import pytest

from flockmq.errors import ConfigError
from flockmq.gossip.settings import LAN, LOCAL, PROFILES, WAN, GossipSettings, profile


def test_profiles_are_ordered_by_patience() -> None:
    for field in ("probe_interval_ms", "ping_timeout_ms", "gossip_interval_ms", "revive_interval_ms"):
        assert getattr(LOCAL, field) <= getattr(LAN, field) <= getattr(WAN, field)


def test_a_profile_can_be_changed_in_part() -> None:
    assert profile("lan") == LAN
    assert profile("wan", gossip_fanout=7).gossip_fanout == 7
    assert profile("wan", gossip_fanout=7).probe_interval_ms == WAN.probe_interval_ms


def test_an_unknown_profile_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="'moon'; there are lan, local, wan"):
        profile("moon")


def test_a_detour_without_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most half"):
        GossipSettings(probe_interval_ms=500, ping_timeout_ms=300)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_time_as_a_suspect_grows_with_the_logarithm(name: str) -> None:
    settings = PROFILES[name]
    small, large = settings.suspicion_min_ms(3), settings.suspicion_min_ms(1_000)
    assert small == settings.suspicion_mult * settings.probe_interval_ms
    assert large == 3 * small


@pytest.mark.parametrize(("nodes", "times"), [(1, 4), (5, 4), (9, 4), (10, 8), (999, 12), (1_000, 16)])
def test_retransmits(nodes: int, times: int) -> None:
    assert LAN.retransmits(nodes) == times
