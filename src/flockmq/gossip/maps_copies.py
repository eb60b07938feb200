"""The copies of other owners' maps: what is taken in, what is asked for, what may be acknowledged.

```
 DELTA, FULL --> is the owner alive? is this its present life? does it follow on? -- yes --> Changes, HAVE
                       | no: ignored                                 | no
                                                                     '--> ask: the sender, later the owner, or others
```
``place`` opens a copy for an owner that lives, ``drop`` ends it. There is no other way in: messages about an owner
without a place are ignored. An owner that had a link, but that membership never named, loses its place some time after
the link.
"""

from __future__ import annotations

from flockmq.gossip.maps_changes import ChangeQueue
from flockmq.gossip.maps_codec import (
    BUCKET_COUNT,
    CLAIMS,
    DELTA_BYTES,
    FULL_BYTES,
    PULL,
    STOP,
    Change,
    Claims,
    DeltaHead,
    FullHead,
    decode_entries,
    encode_list,
    encode_progress,
)
from flockmq.gossip.maps_digest import Digests
from flockmq.gossip.maps_ports import Outbox
from flockmq.gossip.maps_replica import Replica, Staging
from flockmq.gossip.maps_report import MapsReport
from flockmq.gossip.maps_settings import MapsSettings


class Copies:
    """All copies, the changes that were not taken yet, and the questions of this turn."""

    def __init__(
        self, settings: MapsSettings, digests: Digests, report: MapsReport, outbox: Outbox, channel: int
    ) -> None:
        self.replicas: dict[int, Replica] = {}
        self._settings = settings
        self._digests = digests
        self._report = report
        self._outbox = outbox
        self._channel = channel
        self.links: dict[int, bool] = {}
        self._strangers: dict[int, int] = {}
        """Owners that membership has not told us of, and when their link was lost."""
        self._behind: dict[int, Replica] = {}
        self._questions: dict[int, dict[int, Replica]] = {}
        self.queue = ChangeQueue()

    # --- life and links ---

    def place(self, owner: int) -> Replica:
        """The copy of this owner's map; it lives."""
        replica = self.replicas.get(owner)
        if replica is None:
            replica = Replica(owner, self._settings.relay_log_bytes_max)
            self.replicas[owner] = replica
        return replica

    def drop(self, owner: int) -> bool:
        """This owner does not live. Whether there was a place."""
        replica = self.replicas.pop(owner, None)
        if replica is None:
            return False
        for key in replica.entries:
            self.queue.changes.append(Change(owner, key, None))
        self._digests.remove(owner)
        self._behind.pop(owner, None)
        self._strangers.pop(owner, None)
        self.queue.forget(owner)
        for owners in self._questions.values():
            owners.pop(owner, None)
        return True

    def link_up(self, peer: int, now: int) -> None:
        """A link begins: ask for the peer's map from where we are, and say where that is."""
        self.links[peer] = True
        self._strangers.pop(peer, None)
        replica = self.place(peer)
        replica.asked_until = 0
        self.ask(replica, peer, now)
        self.queue.mark(replica)

    def follow_again(self, peer: int, now: int) -> None:
        """The peer begins anew with this link, and knows nothing of what we asked before; perhaps we never noticed."""
        replica = self.replicas.get(peer)
        if replica is None:
            return
        self.queue.mark(replica)
        settings = self._settings
        if now >= replica.asked_until - settings.pull_timeout_ms + settings.pull_after_ms:
            replica.asked_until = 0  # else this link has just begun for us too, and our question is on its way
        self.ask(replica, peer, now)

    def link_down(self, peer: int, now: int) -> None:
        """Nothing that was under way over this link will come."""
        self.links.pop(peer, None)
        lost = self.replicas.get(peer)
        if lost is not None and lost.boot_min == 0:
            self._strangers[peer] = now
        self._questions.pop(peer, None)
        for replica in self.replicas.values():
            staging = replica.staging
            if staging is not None and staging.source == peer:
                replica.staging = None
                replica.asked_until = 0

    def alive(self, owner: int, boot: int, now: int) -> None:
        """The owner lives since this boot: an older map is of a former life, kept to be compared with the new one."""
        self._strangers.pop(owner, None)
        replica = self.place(owner)
        set_back = boot < replica.boot_min
        replica.boot_min = boot
        replica.hear_of(boot, 0)
        if set_back:  # a clock was; membership decides which nodes it takes for alive
            self._believe_what_is_here(replica)
        self._watch(replica, now)
        if replica.boot < boot and owner in self.links:
            self.ask(replica, owner, now)

    # --- what is said about them ---

    def hear_owner(self, owner: int, boot: int, version: int, now: int) -> None:
        """The owner itself says where it is. Other nodes may have spoken of more, but none has that any more."""
        replica = self.replicas.get(owner)
        if replica is not None and boot:
            self._believe_what_is_here(replica)
            self.hear(replica, boot, version, now)

    def hear(self, replica: Replica, boot: int, version: int, now: int) -> None:
        """A node says that the owner got this far."""
        if boot and boot >= replica.boot_min:
            replica.hear_of(boot, version)
        if version == 0 and boot > replica.boot and boot == replica.known_boot and not replica.known_version:
            self._replace(replica, boot, 0, Staging(0, boot, 0), now)  # nothing was changed in that life: an empty map
        else:
            self._watch(replica, now)

    def hear_claim(self, peer: int, owner: int, boot: int, version: int, now: int) -> None:
        """A peer says that it has this much of an owner's map."""
        replica = self.replicas.get(owner)
        if replica is None or not boot or boot < replica.boot_min:
            return
        if peer == owner:
            self.hear_owner(owner, boot, version, now)
        else:
            self.hear(replica, boot, version, now)
        if not replica.is_older_than(boot, version):
            return
        if owner not in self.links or now - replica.behind_since >= self._settings.stale_ms:
            self.ask(replica, peer, now)  # else the owner itself is the better source, as long as it sends
        if peer != owner and boot > replica.boot and owner in self.links:
            # A life that the owner has not told us of: it may not know itself that it must rise above it.
            self._outbox.send(owner, self._channel, encode_list(CLAIMS, 0, [(owner, boot, version)]))

    def newer_than(self, mask: int, theirs: dict[int, tuple[int, int]]) -> Claims:
        """What is here in the buckets of the mask, and newer than theirs."""
        claims: Claims = []
        for owner, replica in self.replicas.items():
            if (mask >> (owner % BUCKET_COUNT)) & 1 and replica.boot and not replica.truncated:
                boot, version = theirs.get(owner, (0, 0))
                if replica.is_newer_than(boot, version):
                    claims.append((owner, replica.boot, replica.version))
        return claims

    def on_delta(self, peer: int, body: bytes, now: int) -> None:
        """Changes of a map, from its owner or a third node."""
        head = DeltaHead(body)
        settings = self._settings
        replica = self.replicas.get(head.owner)
        if replica is None or head.boot < replica.boot_min or head.boot < replica.boot:
            return
        if head.boot == replica.boot and head.last <= replica.version:
            self.queue.mark(replica)  # the owner does not know that we have it: say so again
            return
        follows = head.boot == replica.boot and head.first == replica.version
        begins = head.boot > replica.boot and head.first == 0  # the first changes of a life are the whole map
        if not follows and not begins:
            self._report.gaps += 1
            self.hear(replica, head.boot, head.last, now)
            self.ask(replica, peer, now)
            return
        pairs = decode_entries(body, DELTA_BYTES, head.count, settings.key_bytes_max, settings.value_bytes_max)
        self._report.deltas_applied += 1
        if begins:
            staging = Staging(peer, head.boot, head.last)
            staging.apply(pairs, settings.keys_max, settings.bytes_max)
            self._replace(replica, head.boot, head.last, staging, now)
            return
        was_truncated = replica.truncated
        replica.apply(pairs, settings.keys_max, settings.bytes_max, self.queue.changes)
        replica.version = head.last
        replica.log.append(head.first, head.last, body)
        if replica.truncated and not was_truncated:
            self._report_truncated(replica)
        self._moved(replica, now)

    def on_full(self, peer: int, body: bytes, now: int) -> None:
        """A piece of a whole map, from its owner or a third node."""
        head = FullHead(body)
        settings = self._settings
        replica = self.replicas.get(head.owner)
        if replica is None or not self._wants(replica, head):
            if replica is not None:
                self.queue.mark(replica)
            self._answer(peer, head, STOP)
            return
        pairs = decode_entries(body, FULL_BYTES, head.count, settings.key_bytes_max, settings.value_bytes_max)
        staging = replica.staging
        if head.index == 0:
            staging = Staging(peer, head.boot, head.version)
            replica.staging = staging
        if staging is None or not staging.expects(peer, head):
            self._answer(peer, head, STOP)
            return
        staging.apply(pairs, settings.keys_max, settings.bytes_max)
        staging.next_index += 1
        self.hear(replica, head.boot, head.version, now)
        replica.asked_until = now + settings.pull_timeout_ms
        if replica.behind_since >= 0:
            replica.behind_since = now
        self._answer(peer, head, head.index)
        if head.last:
            self._report.fulls_applied += 1
            self._replace(replica, head.boot, head.version, staging, now)

    # --- what goes out ---

    def ask(self, replica: Replica, peer: int, now: int) -> None:
        """Ask this peer for what is newer of the map when the turn ends, unless an answer is awaited."""
        if now < replica.asked_until:
            return
        replica.asked_until = now + self._settings.pull_timeout_ms
        owners = self._questions.get(peer)
        if owners is None:
            owners = {}
            self._questions[peer] = owners
        owners[replica.owner] = replica

    def send_questions(self) -> None:
        """One message for each peer that is asked."""
        if not self._questions:
            return
        questions = self._questions
        self._questions = {}
        for peer, owners in questions.items():
            wants: Claims = []
            for owner, replica in owners.items():
                if replica.truncated and self._has_room_again(replica):
                    wants.append((owner, 0, 0))  # all of it: what was left out is in no change
                else:
                    wants.append((owner, replica.boot, replica.version))
            if wants:
                self._outbox.send(peer, self._channel, encode_list(PULL, 0, wants))

    def tick(self, now: int) -> None:
        """Ask linked owners again for what has not come."""
        settings = self._settings
        for replica in list(self._behind.values()):
            waited = now - replica.behind_since
            if settings.pull_after_ms <= waited < settings.stale_ms and replica.owner in self.links:
                self.ask(replica, replica.owner, now)  # later any node that claims to have it is asked
            if waited < settings.forget_ms:
                continue
            if replica.boot and replica.boot < replica.boot_min:
                self._replace(replica, 0, 0, Staging(0, 0, 0), now)  # that life is over, and no node has the new map
            else:
                self._believe_what_is_here(replica)  # no node has more, or it would have been claimed again
                self._watch(replica, now)
        if self._strangers:
            for owner, since in list(self._strangers.items()):
                if now - since >= settings.forget_ms:
                    self.drop(owner)

    def refill(self, now: int) -> None:
        """Ask for maps that were truncated and have room again."""
        for replica in self.replicas.values():
            if replica.truncated and replica.owner in self.links and self._has_room_again(replica):
                self.ask(replica, replica.owner, now)

    # --- rules ---

    def _wants(self, replica: Replica, head: FullHead) -> bool:
        if head.boot < replica.boot_min:
            return False
        if head.boot == replica.boot and head.version == replica.version:
            return replica.truncated
        return replica.is_older_than(head.boot, head.version)

    def _answer(self, peer: int, head: FullHead, index: int) -> None:
        self._outbox.send(peer, self._channel, encode_progress(head.owner, head.boot, head.version, index))

    def _believe_what_is_here(self, replica: Replica) -> None:
        """Forget which nodes spoke of more."""
        replica.known_boot = replica.boot
        replica.known_version = replica.version
        replica.hear_of(replica.boot_min, 0)

    def _watch(self, replica: Replica, now: int) -> None:
        """Something else is known now of how far the owner got."""
        if not replica.is_behind():
            replica.behind_since = -1
            self._behind.pop(replica.owner, None)
        elif replica.behind_since < 0:
            replica.behind_since = now
            self._behind[replica.owner] = replica

    def _replace(self, replica: Replica, boot: int, version: int, staging: Staging, now: int) -> None:
        replica.replace(boot, version, staging.entries, staging.size, staging.truncated, self.queue.changes)
        if replica.truncated:
            self._report_truncated(replica)
        self._moved(replica, now)

    def _moved(self, replica: Replica, now: int) -> None:
        """The copy is at another version now."""
        replica.hear_of(replica.boot, replica.version)
        self._digests.put(replica.owner, replica.boot, replica.version)
        self.queue.mark(replica)
        replica.asked_until = 0
        replica.behind_since = -1
        self._watch(replica, now)

    def _has_room_again(self, replica: Replica) -> bool:
        """Enough of a truncated copy was deleted that it is worth asking for the rest."""
        settings = self._settings
        return len(replica.entries) * 10 <= settings.keys_max * 9 and replica.size * 10 <= settings.bytes_max * 9

    def _report_truncated(self, replica: Replica) -> None:
        sizes: dict[str, object] = {"keys": len(replica.entries), "bytes": replica.size}
        self._report.note("map_truncated", {"owner": replica.owner, **sizes})
