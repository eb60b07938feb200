"""Settings that contradict each other are refused."""

from __future__ import annotations

import pytest

from flockmq.errors import ConfigError
from flockmq.gossip.maps_settings import MapsSettings


def test_every_entry_fits_into_a_chunk() -> None:
    settings = MapsSettings()
    assert settings.chunk_bytes_max > settings.key_bytes_max + settings.value_bytes_max
    with pytest.raises(ConfigError, match="chunk_bytes_max"):
        MapsSettings(chunk_bytes_max=1_000)


def test_nothing_works_without_room() -> None:
    with pytest.raises(ConfigError, match="window"):
        MapsSettings(window_chunks=0)
