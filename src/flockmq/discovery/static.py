"""`static`: the nodes stand in the configuration (``cluster.contact_points``), the same list on each of them."""

from __future__ import annotations

from typing import Final

from flockmq.discovery.ports import Plugin, Surroundings
from flockmq.discovery.settings import NoSettings
from flockmq.errors import ConfigError
from flockmq.peering.contact import Contact


class StaticDiscovery:
    """A list that does not change."""

    lists_peers = True

    def __init__(self, settings: NoSettings, surroundings: Surroundings) -> None:  # noqa: ARG002
        if not surroundings.contact_points:
            raise ConfigError(
                'cluster.discovery is "static" and cluster.contact_points is empty; list the nodes there as host:port.'
            )
        self._contacts = list(dict.fromkeys(surroundings.contact_points))

    async def start(self, me: Contact) -> None:
        """Nowhere to register."""

    async def find(self) -> list[Contact]:
        """The list."""
        return list(self._contacts)

    async def stop(self) -> None:
        """Nothing to let go of."""


PLUGIN: Final = Plugin(NoSettings, StaticDiscovery)
