"""How far nodes are, told in owned maps."""

from __future__ import annotations

import random

from flockmq.durable.state.facts import INDEX, MapFacts
from flockmq.gossip.maps import OwnedMaps
from flockmq.gossip.maps_settings import MapsSettings
from flockmq.gossip.member import Member


class Nowhere:
    """An outbox without a reader, and gossip without members."""

    def send(self, peer: int, channel: int, body: bytes) -> None:
        pass

    def alive(self) -> list[Member]:
        return []


def test_only_news_is_told() -> None:
    maps = OwnedMaps(1, 1, Nowhere(), MapsSettings(), random.Random(1), 0)
    facts = MapFacts(maps, Nowhere(), 1)
    facts.tell(7, True)
    version = maps.version
    assert maps.get(1, INDEX) == (7).to_bytes(8, "little") + b"\x01"
    facts.tell(7, True)
    assert maps.version == version
    facts.tell(8, False)
    assert maps.version > version
    assert facts.heads() == {}  # this node itself is not among them
