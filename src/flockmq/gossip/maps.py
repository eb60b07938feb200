"""Owned maps: every node writes its own map and has a copy of every other live node's.

```
 set, delete --> pending --flush--> segment (boot, first..last) --> log --> every peer that follows, as one DELTA
                                                                                |
   take_changes <-- copy of the owner's map <-- follows on its version? <---- receive
        |                    ^                       | no: PULL --> the rest of the log, or the whole map in pieces
        '--> HAVE ---------- | --> acknowledged      '
                             |
   digest (root, boot, version) differs --> BUCKETS --> CLAIMS --> PULL from any node that has newer
```
What is decided here and in the modules beside it (``maps_own``, ``maps_copies``, ``maps_streams``):

- *Order.* A map is at (boot, version); only the owner makes new ones, and a greater pair always wins. A DELTA is
  applied only to the version it follows on, so a copy is always exactly what the owner once had.
- *Life.* Only maps of live owners are kept: ``peer_up`` or ``peer_alive`` opens a place for one, ``peer_dead`` clears
  it, and no message in between brings it back.
- *Acknowledgement.* HAVE leaves only after ``take_changes`` gave the changes away, and names the boot it is about. So
  ``acknowledged(peer) >= version`` means that the users of the maps at that peer have the change.
- *Being wrong about oneself.* A node that hears of a newer life of its own map than it has (its clock was set back
  between two starts) takes a boot above it and says everything again.

- *Slices.* The node may take some changes now and the rest later: HAVE names what was taken.

Call ``take_changes`` before ``flush`` in every turn; ``peer_up`` before anything the link brings is received.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from typing import Final

from flockmq.gossip.maps_codec import (
    BUCKET_COUNT,
    BUCKETS,
    CLAIMS,
    DELTA,
    FULL,
    HAVE,
    PROGRESS,
    PULL,
    ROOT,
    STATE,
    STOP,
    Change,
    Claims,
    MapsError,
    decode_buckets,
    decode_digest,
    decode_list,
    decode_pair,
    decode_progress,
    encode_buckets,
    encode_digest,
    encode_list,
    encode_pair,
)
from flockmq.gossip.maps_copies import Copies
from flockmq.gossip.maps_digest import Digests
from flockmq.gossip.maps_own import OwnMap
from flockmq.gossip.maps_ports import Outbox
from flockmq.gossip.maps_replica import OwnerMap
from flockmq.gossip.maps_report import MapsEvent, MapsReport
from flockmq.gossip.maps_settings import MapsSettings
from flockmq.gossip.maps_streams import Peer, Stream

MAPS: Final = 2
"""The channel of owned maps in frames between nodes."""


class OwnedMaps:
    """The own map, copies of all others, and what has to be said to keep them level."""

    def __init__(
        self,
        node_id: int,
        boot: int,
        outbox: Outbox,
        settings: MapsSettings,
        rng: random.Random,
        now: int,
        channel: int = MAPS,
    ) -> None:
        self.node_id = node_id
        self.report = MapsReport()
        self._outbox = outbox
        self._settings = settings
        self._rng = rng
        self._channel = channel
        self._digests = Digests()
        self._own = OwnMap(node_id, boot, settings, self.report)
        self._digests.put(node_id, self._own.boot, 0)
        self._said = 0
        """The version up to which followers were served."""
        self._copies = Copies(settings, self._digests, self.report, outbox, channel)
        self._peers: dict[int, Peer] = {}
        self._waiting: dict[int, Peer] = {}
        """Peers that something is to be sent to."""
        self._digest_at = now + rng.randrange(settings.digest_interval_ms)

    # --- the own map ---

    @property
    def version(self) -> int:
        """Of the own map, with the changes that the next flush will say."""
        return self._own.version_next

    @property
    def boot(self) -> int:
        """Which life of the own map this is."""
        return self._own.boot

    def set(self, key: bytes, value: bytes) -> int:
        """Set a key of the own map; the version this change has. Without room it is left out, counted and reported."""
        return self._own.set(key, value)

    def delete(self, key: bytes) -> int:
        """Remove a key of the own map, if it is there; the version this change has."""
        return self._own.delete(key)

    def has_room(self, key: bytes, value: bytes) -> bool:
        """Whether ``set`` would take this new key."""
        return self._own.has_room(key, value)

    def acknowledged(self, peer: int) -> int:
        """Which version of the own map this peer said it has applied; 0 without a link."""
        state = self._peers.get(peer)
        return 0 if state is None else state.acknowledged

    # --- reading ---

    def owners(self) -> list[int]:
        """This node, then all live owners of whose map something is known."""
        return [self.node_id, *[owner for owner, replica in self._copies.replicas.items() if replica.boot]]

    def get(self, owner: int, key: bytes) -> bytes | None:
        """One value; None: no such key, or no such map."""
        found = self._map_of(owner)
        return None if found is None else found.entries.get(key)

    def items(self, owner: int) -> Iterable[tuple[bytes, bytes]]:
        """All of a map; don't change the maps while going through it."""
        found = self._map_of(owner)
        return [] if found is None else found.entries.items()

    def place_of(self, owner: int) -> tuple[int, int]:
        """Boot and version of a map as it is here; zeros: nothing of it is."""
        found = self._map_of(owner)
        return (0, 0) if found is None else (found.boot, found.version)

    def is_level(self, owner: int) -> bool:
        """Whether the owner's map is here, as new as any node has told."""
        replica = self._copies.replicas.get(owner)
        return replica is not None and replica.boot != 0 and not replica.is_behind()

    def take_changes(self, most: int = sys.maxsize) -> list[Change]:
        """What others changed since the last call, in order. From now on they may be told that it is known here."""
        return self._copies.queue.take(most)

    def changes_left(self) -> int:
        """How many changes wait to be taken. Windows bound them: owners wait for HAVE before they send more."""
        return len(self._copies.queue.changes)

    def take_events(self) -> list[MapsEvent]:
        """What a person may want to know, since the last call."""
        return self.report.take_events()

    # --- peers ---

    def peer_up(self, peer: int, now: int) -> None:
        """A link to this peer begins: say which boot this node has, and what it has of the peer's map."""
        if peer == self.node_id:
            return
        state = self._peer(peer)
        if state.up:
            self.peer_down(peer, now)  # a new link, and the end of the old one was not reported
            state = self._peer(peer)
        state.up = True
        state.repair_at = now + self._settings.digest_interval_ms
        if state.streams:
            self._waiting[peer] = state  # its question came before the link was known to be up
        self._tell(peer, encode_pair(STATE, self._own.boot, self._own.version))
        self._copies.link_up(peer, now)

    def peer_down(self, peer: int, now: int) -> None:
        """The link to this peer is gone: so is all that was under way."""
        state = self._peers.pop(peer, None)
        if state is not None:
            state.close_all()
            self._waiting.pop(peer, None)
            self._copies.link_down(peer, now)

    def peer_alive(self, owner: int, boot: int, now: int) -> None:
        """Membership says that this node lives, since this boot."""
        if owner != self.node_id:
            self._copies.alive(owner, boot, now)

    def peer_dead(self, peer: int, now: int) -> None:
        """Membership says that this node is dead, or has left: its map is gone until it lives again."""
        dropped = self._copies.drop(peer)
        for state in self._peers.values():
            state.close(peer)
        found = self._peers.get(peer)
        if found is None:
            return
        if not found.up:
            self.peer_down(peer, now)
        elif dropped:
            self._tell(peer, encode_pair(HAVE, 0, 0))  # perhaps it lives: then it must not believe that we know its map

    # --- digests ---

    def digest(self) -> bytes:
        """All maps in 25 bytes, to go with datagrams."""
        return encode_digest(self._digests.root, self._own.boot, self._own.version)

    def on_digest(self, peer: int, digest: bytes, now: int) -> None:
        """A peer's digest: where it differs from ours, look closer over the link."""
        root, boot, version = decode_digest(digest)
        self._copies.hear_owner(peer, boot, version, now)
        if root == self._digests.root:
            return
        state = self._peers.get(peer)
        if state is None or not state.up or now < state.repair_at:
            return
        state.repair_at = now + self._settings.digest_interval_ms
        self.report.repairs += 1
        self._tell(peer, encode_buckets(self._digests.buckets))

    # --- time ---

    def tick(self, now: int) -> None:
        """Ask again for what has not come, and compare with a random peer now and then."""
        self._copies.tick(now)
        if now < self._digest_at:
            return
        self._digest_at = now + self._settings.digest_interval_ms
        self._copies.refill(now)
        up = [peer for peer, state in self._peers.items() if state.up]
        if up:
            self._tell(self._rng.choice(up), ROOT.to_bytes(1, "little") + self.digest())

    def flush(self, now: int) -> None:  # noqa: ARG002 - all components have this shape
        """A loop turn ends: send what was changed, what was asked for, questions and acknowledgements."""
        self._seal()
        if self._own.version != self._said:
            self._said = self._own.version
            for peer, state in self._peers.items():
                if self.node_id in state.streams:
                    self._waiting[peer] = state
        if self._waiting:
            waiting = self._waiting
            self._waiting = {}
            for peer, state in waiting.items():
                if state.up and state.serve(self._channel, self._outbox, self._settings):
                    self._waiting[peer] = state
        self._copies.send_questions()
        for owner, boot, version in self._copies.queue.take_acknowledgements(self._copies.replicas, self._copies.links):
            self._tell(owner, encode_pair(HAVE, boot, version))

    # --- messages ---

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """One message of a peer. MapsError: it is none, and nothing was changed."""
        if not body:
            raise MapsError("A message about maps is empty.")
        kind = body[0]
        if kind == DELTA:
            self._copies.on_delta(peer, body, now)
        elif kind == HAVE:
            self._on_have(peer, body)
        elif kind == FULL:
            self._copies.on_full(peer, body, now)
        elif kind == PROGRESS:
            self._on_progress(peer, body)
        elif kind == PULL:
            self._on_pull(peer, body)
        elif kind == STATE:
            self._on_state(peer, body, now)
        elif kind == ROOT:
            self.on_digest(peer, body[1:], now)
        elif kind == BUCKETS:
            self._on_buckets(peer, body)
        elif kind == CLAIMS:
            self._on_claims(peer, body, now)
        else:
            self.report.unknown_messages += 1  # of a newer node

    def _on_state(self, peer: int, body: bytes, now: int) -> None:
        boot, version = decode_pair(body)
        self._copies.hear_owner(peer, boot, version, now)
        self._copies.follow_again(peer, now)

    def _on_progress(self, peer: int, body: bytes) -> None:
        owner, boot, version, index = decode_progress(body)
        state = self._peers.get(peer)
        stream = None if state is None else state.streams.get(owner)
        if state is None or stream is None:
            return
        if index != STOP:
            stream.on_progress(boot, version, index)
        elif not stream.on_stop(boot, version):
            state.close(owner)
        self._waiting[peer] = state

    def _on_have(self, peer: int, body: bytes) -> None:
        boot, version = decode_pair(body)
        state = self._peer(peer)
        self._rise_if_below(boot, version)
        if boot != self._own.boot:
            state.acknowledged = 0
            if boot == 0:
                state.close(self.node_id)  # it takes us for dead, and will ask when it does not
            return
        state.acknowledged = version
        stream = state.streams.get(self.node_id)
        if stream is not None and stream.boot == boot:
            stream.on_have(version)
            if stream.version != self._own.version:
                self._waiting[peer] = state

    def _on_pull(self, peer: int, body: bytes) -> None:
        _, wants = decode_list(body)
        state = self._peer(peer)
        for owner, boot, version in wants:
            if owner == self.node_id:
                self._rise_if_below(boot, version)
                if boot != self._own.boot or version < state.acknowledged:
                    state.acknowledged = 0  # it has lost what it had; HAVE will tell how much is left
                state.open(Stream(self._own, True, boot, version))
                continue
            replica = self._copies.replicas.get(owner)
            if replica is not None and replica.is_newer_than(boot, version) and not replica.truncated:
                state.open(Stream(replica, False, boot, version))
        self._waiting[peer] = state

    def _on_buckets(self, peer: int, body: bytes) -> None:
        mask = self._digests.mask(decode_buckets(body))
        if mask:
            self._tell(peer, encode_list(CLAIMS, mask, self._newer_than(mask, {})))

    def _on_claims(self, peer: int, body: bytes, now: int) -> None:
        mask, claims = decode_list(body)
        theirs: dict[int, tuple[int, int]] = {}
        for owner, boot, version in claims:
            theirs[owner] = (boot, version)
            if owner == self.node_id:
                self._rise_if_below(boot, version)
            else:
                self._copies.hear_claim(peer, owner, boot, version, now)
        newer = self._newer_than(mask, theirs)
        if newer:
            self._tell(peer, encode_list(CLAIMS, 0, newer))

    # --- rules ---

    def _newer_than(self, mask: int, theirs: dict[int, tuple[int, int]]) -> Claims:
        """What is here in these buckets, and newer than theirs."""
        claims = self._copies.newer_than(mask, theirs)
        own = self._own
        if (mask >> (own.owner % BUCKET_COUNT)) & 1:
            boot, version = theirs.get(own.owner, (0, 0))
            if own.is_newer_than(boot, version):
                claims.append((own.owner, own.boot, own.version))
        return claims

    def _seal(self) -> None:
        own = self._own
        own.seal()
        if own.version != self._said:
            self._digests.put(own.owner, own.boot, own.version)

    def _rise_if_below(self, boot: int, version: int) -> None:
        """Others have a map of ours that would always win: begin a new life above it, with all that we have."""
        own = self._own
        if not own.is_below(boot, version) or not own.rise_above(boot, self._rng):
            return
        self._digests.put(own.owner, own.boot, own.version)
        for peer, state in self._peers.items():
            state.acknowledged = 0
            stream = state.streams.get(own.owner)
            if stream is not None:
                stream.restart()
                self._waiting[peer] = state
            if state.up:
                self._tell(peer, encode_pair(STATE, own.boot, own.version))

    def _map_of(self, owner: int) -> OwnerMap | None:
        if owner == self.node_id:
            return self._own
        return self._copies.replicas.get(owner)

    def _peer(self, peer: int) -> Peer:
        state = self._peers.get(peer)
        if state is None:
            state = Peer(peer)
            self._peers[peer] = state
        return state

    def _tell(self, peer: int, body: bytes) -> None:
        self._outbox.send(peer, self._channel, body)
