"""Which nodes this node greets: contact points, strangers, and now and then dead members, to merge what was split.

```
 join --> contact points, all while this node is alone      HELLO: own claim, state of the receiver
 revive --> one of the dead, or a silent contact point      WELCOME: own claim, state of the receiver, some of the list
 introduce --> a sender that is not known as it is now
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.gossip.member import DEAD, LEFT
from flockmq.gossip.messages import HELLO, Datagram

if TYPE_CHECKING:
    import random

    from flockmq.gossip.roster import Roster
    from flockmq.gossip.settings import GossipSettings
    from flockmq.gossip.speaking import Address, Speaker

NEVER: Final = 1 << 60
CONTACTS_MAX: Final = 64
HELLOS_PER_S: Final = 200
REVIVERS: Final = 4
"""About so many members of a cluster try to reach its only dead one, each interval."""


class Greeter:
    """Contact points, and when to greet which node."""

    def __init__(
        self, settings: GossipSettings, roster: Roster, speaker: Speaker, rng: random.Random, now: int
    ) -> None:
        self.settings = settings
        self.roster = roster
        self.hello_at = NEVER
        self.revive_at = now + int(rng.random() * settings.revive_interval_ms)
        self._speaker = speaker
        self._rng = rng
        self._contacts: dict[Address, int] = {}  # and the id of the node that answered there
        self._greeted: dict[int, Address] = {}  # by sequence; an answer may come from another address than was greeted
        self._hellos = HELLOS_PER_S
        self._hellos_at = now

    def use(self, roster: Roster, now: int) -> None:
        """Another cluster: greet all contact points anew."""
        self.roster = roster
        for address in self._contacts:
            self._contacts[address] = 0
        self.hello_at = now

    def add_contacts(self, addresses: list[Address], now: int) -> None:
        """Greet these too, at once."""
        for address in addresses:
            if address not in self._contacts:
                self._make_room_for_contact()
                self._contacts[address] = 0
        self.hello_at = now

    def _make_room_for_contact(self) -> None:
        """Too many: the one that has been there the longest without an answer goes, else just the oldest."""
        if len(self._contacts) >= CONTACTS_MAX:
            silent = self._open_contacts()
            del self._contacts[silent[0] if silent else next(iter(self._contacts))]

    def answered(self, datagram: Datagram) -> None:
        """The node behind a contact point is known now."""
        address = self._greeted.pop(datagram.sequence, None)
        if address is not None and address in self._contacts:
            self._contacts[address] = datagram.sender

    def introduce(self, address: Address, node_id: int, now: int) -> None:
        """Greet a node that is not known as it is now: its answer carries its claim."""
        if self.may_greet(now):
            self._speaker.send(address, node_id, HELLO, 0, 0, own_first=True)

    def may_greet(self, now: int) -> bool:
        """Whether one more greeting, or answer to one, may be sent now."""
        earned = (now - self._hellos_at) * HELLOS_PER_S // 1_000
        if earned > 0:
            self._hellos = min(HELLOS_PER_S, self._hellos + earned)
            self._hellos_at = now
        if self._hellos <= 0:
            return False
        self._hellos -= 1
        return True

    def _open_contacts(self) -> list[Address]:
        """Contact points without a member that is known to live there."""
        members = self.roster.members
        found: list[Address] = []
        for address, node_id in self._contacts.items():
            member = members.get(node_id)
            if member is None or not member.is_live:
                found.append(address)
        return found

    def greet_contacts(self) -> None:
        """Greet all contact points without a member that is known to live there."""
        self.hello_at = NEVER
        for address in self._open_contacts():
            self._greet_contact(address)

    def _greet_contact(self, address: Address) -> None:
        sequence = self._speaker.next_sequence()
        if len(self._greeted) >= 2 * CONTACTS_MAX:
            del self._greeted[next(iter(self._greeted))]
        self._greeted[sequence] = address
        self._speaker.send(address, 0, HELLO, sequence, 0, own_first=True)

    def revive(self, now: int) -> None:
        """Greet one of the dead, or a silent contact point: this ends a partition."""
        # Spread a little: two nodes that try each other in step would do so for ever.
        interval = self.settings.revive_interval_ms
        self.revive_at = now + interval * 3 // 4 + int(self._rng.random() * interval / 2)
        roster = self.roster
        if roster.me.state == LEFT:
            return
        contacts = self._open_contacts()
        if not roster.live:  # alone: all of them
            self.greet_contacts()
            contacts = []
        wanted = len(roster.gone) + len(contacts)
        # A few of a large cluster are enough, or one dead member would be greeted by a thousand a second.
        if self._rng.random() * len(roster.live) > wanted + REVIVERS:
            return
        choice = int(self._rng.random() * wanted)
        if choice < len(roster.gone):
            self._greet_gone(choice)
        elif contacts:
            self._greet_contact(contacts[choice - len(roster.gone)])

    def _greet_gone(self, choice: int) -> None:
        roster = self.roster
        gone = list(roster.gone)
        for step in range(len(gone)):
            member = roster.members[gone[(choice + step) % len(gone)]]
            if member.state == DEAD and not roster.is_replaced(member):  # a node that left did so on purpose
                address = (member.host, member.port)
                self._speaker.send(address, member.node_id, HELLO, self._speaker.next_sequence(), 0, own_first=True)
                return
