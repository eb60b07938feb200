"""Every conformance test runs three times: packets whole, byte by byte, and cut at random."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq.node.ports import Gate
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import FEEDINGS, BrokerHarness

MakeHarness = Callable[..., BrokerHarness]


@pytest.fixture(params=FEEDINGS)
def make_harness(request: pytest.FixtureRequest) -> MakeHarness:
    """A broker with settings or a gate of its own."""

    def make(
        settings: BrokerSettings | None = None,
        gate: Gate | None = None,
        limits: Limits | None = None,
        seed: int = 7,
    ) -> BrokerHarness:
        if limits is not None:
            settings = BrokerSettings(limits=limits)
        return BrokerHarness(seed, settings, gate, request.param)

    return make


@pytest.fixture
def harness(make_harness: MakeHarness) -> BrokerHarness:
    """A broker as it comes."""
    return make_harness()
