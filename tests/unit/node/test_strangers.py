"""How many connections that are not let in yet there may be."""

from __future__ import annotations

import pytest

from flockmq.node.settings import BrokerSettings
from flockmq.node.strangers import COUNT_MIN
from flockmq.testing.harness import BrokerHarness


@pytest.mark.parametrize(
    ("strangers_max", "connections_max", "most"),
    [(16_384, 40, 20), (3, 40, 3), (0, 40, 20), (2, 0, 2), (16_384, 1, COUNT_MIN)],
)
def test_strangers_fill_half_of_the_room_at_most(strangers_max: int, connections_max: int, most: int) -> None:
    settings = BrokerSettings(strangers_max=strangers_max, connections_max=connections_max)
    harness = BrokerHarness(settings=settings)
    arrived = [harness.raw() for _ in range(30)]
    assert [client for client in arrived if not client.closed] == arrived[-most:]
    for _ in range(20):
        harness.client()  # who is let in counts no more
    assert harness.broker.node.strangers.count == most - 1
