"""What owners tell registrars on their own: what is new and gone in each turn, and everything when nodes come or go.

```
 decided alone, came, stayed --> REGISTER          ended --> RELEASE                 with the frame of the turn
 a link, WANT, other members --> SYNC, REGISTER ..., SYNCED    all sessions whose registrar is new; some in each tick
```
Only when a node has said SYNCED for the members that a registrar sees, does the registrar know all it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.peering.scene import Scene, user_key
from flockmq.peering.session_messages import REGISTER, RELEASE, SYNC, SYNCED, Message, encode_entry

if TYPE_CHECKING:
    from flockmq.peering.claiming import Claimant
    from flockmq.session.session import Session

SWEEP_BUDGET: Final = 5_000
"""Sessions looked at in one tick, in a small cluster."""
ENTRIES_BYTES: Final = 131_072


class Census:
    """Keeps registrars up to date about this node's sessions."""

    def __init__(self, scene: Scene, claimant: Claimant) -> None:
        self.scene = scene
        self.claimant = claimant
        self.swept = scene.ranking
        """The members for which all registrars have been told."""
        self.sweep_list: list[str] = []
        self.sweep_full: set[int] = set()
        """Nodes that are to hear of everything that is theirs to decide."""
        self.sweep_wanted = False
        self.sweeping = False

    def tell_all(self, peer: int) -> None:
        """Have a registrar hear of everything."""
        self.sweep_full.add(peer)
        self.sweep_wanted = True

    def report(self) -> None:
        """Register and release what this turn has changed."""
        if self.scene.releases:
            batches: dict[int, list[bytes]] = {}
            for client_id, epoch in self.scene.releases.items():
                if client_id in self.scene.node.sessions:
                    self.scene.registers[client_id] = True  # it has come back meanwhile
                elif client_id not in self.claimant.claims:
                    first = self.scene.ranking.first(client_id)
                    batches.setdefault(first, []).append(encode_entry(client_id, epoch, 0))
            self.scene.releases = {}
            self.say_entries(RELEASE, batches)
        if self.scene.registers:
            batches = {}
            for client_id in self.scene.registers:
                session = self.scene.node.sessions.get(client_id)
                if session is not None:
                    first = self.scene.ranking.first(client_id)
                    batches.setdefault(first, []).append(entry_of(session))
            self.scene.registers = {}
            self.say_entries(REGISTER, batches)

    def say_entries(self, kind: int, batches: dict[int, list[bytes]]) -> None:
        """Send lists of client ids to their registrars, in pieces."""
        for peer, entries in batches.items():
            piece: list[bytes] = []
            size = 0
            for entry in entries:
                piece.append(entry)
                size += len(entry)
                if size > ENTRIES_BYTES:
                    self.scene.post.say(peer, Message(kind, data=b"".join(piece)))
                    piece = []
                    size = 0
            if piece:
                self.scene.post.say(peer, Message(kind, data=b"".join(piece)))

    def sweep(self) -> None:
        """Register sessions whose registrar is new, or has not heard of them; some in each tick."""
        if self.sweep_wanted:
            self.sweep_wanted = False
            self.sweeping = True
            self.sweep_list = [*self.scene.node.sessions, *self.claimant.claims]
            for peer in self.sweep_full:
                self.scene.post.say(peer, Message(SYNC, nonce=self.scene.boot))
        if not self.sweeping:
            return
        budget = self.scene.ranking.affordable(SWEEP_BUDGET)
        taken = self.sweep_list[-budget:]
        del self.sweep_list[-budget:]
        batches: dict[int, list[bytes]] = {}
        for client_id in taken:
            first = self.scene.ranking.first(client_id)
            if first != self.scene.me and first not in self.sweep_full and first == self.swept.first(client_id):
                continue  # as for what is this node's own to decide: while it was alone, it kept no records
            session = self.scene.node.sessions.get(client_id)
            if session is not None:
                batches.setdefault(first, []).append(entry_of(session))
            elif client_id in self.claimant.claims:
                claim = self.claimant.claims[client_id]
                epoch = claim.epoch if claim.granted else 0
                batches.setdefault(first, []).append(encode_entry(client_id, epoch, claim.user))
        self.say_entries(REGISTER, batches)
        if not self.sweep_list:
            self.sweeping = False
            self.sweep_full = set()
            self.swept = self.scene.ranking
            for peer in self.scene.linked:
                self.scene.post.say(peer, Message(SYNCED, value=self.scene.ranking.digest))


def entry_of(session: Session) -> bytes:
    """A session in the data of REGISTER."""
    return encode_entry(session.client_id, max(session.epoch, 1), user_key(session.username))
