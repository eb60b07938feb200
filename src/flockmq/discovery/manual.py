"""`manual`, the default: an in-memory list of contact points, fed by ``--join`` and `cluster join`."""

from __future__ import annotations

from typing import Final

from flockmq.discovery.ports import Plugin, Surroundings
from flockmq.discovery.settings import NoSettings
from flockmq.peering.contact import Contact


class ManualDiscovery:
    """Contact points that people named at the start, and with `cluster join`."""

    lists_peers = False

    def __init__(self, settings: NoSettings, surroundings: Surroundings) -> None:  # noqa: ARG002
        self._contacts = dict.fromkeys(surroundings.contact_points)

    async def start(self, me: Contact) -> None:
        """Nowhere to register."""

    async def find(self) -> list[Contact]:
        """What was named."""
        return list(self._contacts)

    async def stop(self) -> None:
        """Nothing to let go of."""


PLUGIN: Final = Plugin(NoSettings, ManualDiscovery)
