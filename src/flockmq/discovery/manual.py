"""`manual`, the default: an in-memory list of contact points, fed by ``--join`` and `cluster join`."""

from __future__ import annotations

from typing import Final

from flockmq.discovery.ports import Plugin, Surroundings
from flockmq.discovery.settings import NoSettings
from flockmq.errors import FlockError
from flockmq.peering.contact import Contact

CONTACTS_MAX: Final = 1_000


class ManualDiscovery:
    """Contact points that people name while the node runs."""

    lists_peers = False

    def __init__(self, settings: NoSettings, surroundings: Surroundings) -> None:  # noqa: ARG002
        self._contacts = dict.fromkeys(surroundings.contact_points)

    def add(self, contact: Contact) -> None:
        """One more contact point, by `cluster join`."""
        if len(self._contacts) >= CONTACTS_MAX and contact not in self._contacts:
            raise FlockError(f"This node has {CONTACTS_MAX:,} contact points already; one that answers is enough.")
        self._contacts[contact] = None

    def remove(self, contact: Contact) -> None:
        """Forget a contact point."""
        self._contacts.pop(contact, None)

    async def start(self, me: Contact) -> None:
        """Nowhere to register."""

    async def find(self) -> list[Contact]:
        """What was named."""
        return list(self._contacts)

    async def stop(self) -> None:
        """Nothing to let go of."""


PLUGIN: Final = Plugin(NoSettings, ManualDiscovery)
