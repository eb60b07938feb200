"""Retained messages on all nodes: a node sends each change to all others at once; repairs find lost changes.

```
 put, delete here --> unsent --flush--> CHANGES to all peers --> apply: the later stamp wins

 now and then, with one peer:   ROOT -->                        the same: all is well, 9 bytes were spent
                                     <-- BUCKETS                else the receiver compares, and goes through the
      for the buckets that differ:   LIST -->                   differing buckets, a piece at a time
                                     <-- CHANGES, ANSWER        what we lack or have older; what the other lacks
                                     CHANGES, LIST -->          ... until nothing is left: DONE
```
A node repairs with one peer at a time, one piece per round trip, in both directions; the answering side keeps no state.
A busy node refuses other repairs, so that fifty peers do not send the same messages to a node that comes back. Any part
may get lost: a node ends a repair without an answer, and the next ROOT begins another.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.peering.channels import RETAINED
from flockmq.peering.retained_codec import (
    ANSWER,
    BUCKET_DIGESTS,
    CHANGES,
    DONE,
    LIST,
    ROOT,
    Reader,
    Section,
    decode_answer,
    decode_change,
    decode_digests,
    decode_section,
    encode_answer,
    encode_deletion,
    encode_message,
    encode_root,
    encode_section,
    pack_digests,
)
from flockmq.routing.buckets import ORIGIN_BITS
from flockmq.routing.clock import AHEAD_MS_MAX, stamp_wall_ms
from flockmq.routing.retained import AHEAD, APPLIED, FULL, RetainedStore

if TYPE_CHECKING:
    import random

    from flockmq.node.events import EventList
    from flockmq.peering.ports import Outbox
    from flockmq.routing.buckets import Bucket

CHUNK_BYTES: Final = 262_144
"""Most bytes of changes in a part, unless one message alone has more."""
ANSWER_BYTES: Final = 65_536
ANSWER_STEPS: Final = 1_000
"""Names that are compared in one turn: a repair may take long, but clients must not wait for it."""
LIST_BYTES: Final = 32_768
LIST_ENTRY_BYTES: Final = 18
CHECK_MS: Final = 5_000
"""About how often this node compares itself with some peer."""
SILENCE_MS: Final = 10_000
"""How long a peer may take to answer before a repair is given up."""
WARN_MS: Final = 60_000
"""Gap between two warnings of the same kind."""


class Repair:
    """Going through the differences to one peer."""

    def __init__(self, peer: int, buckets: list[int], now: int) -> None:
        self.peer = peer
        self.todo: deque[tuple[int, bytes]] = deque([(bucket, b"") for bucket in buckets])
        """Buckets, each with the name behind which to go on."""
        self.asked: list[Section] = []
        self.wanted: deque[bytes] = deque()
        """Topics that the peer asked for."""
        self.waits = False
        self.heard_at = now


class RetainedSync:
    """The component of channel RETAINED; ``store`` is the broker's own."""

    def __init__(
        self,
        node_id: int,
        store: RetainedStore,
        outbox: Outbox,
        events: EventList,
        rng: random.Random,
        now: int,
        check_ms: int = CHECK_MS,
    ) -> None:
        store.share(node_id)
        self.store = store
        self.changes_received = 0
        self.changes_applied = 0
        self.refused_ahead = 0
        """Changes with a stamp that lies too far in the future."""
        self.refused_full = 0
        """Changes that would have passed the limits."""
        self.repairs = 0
        """Repairs that were begun because digests differed."""
        self.repaired = 0
        """Messages and deletions that were sent to repair a peer."""
        self._node_id = node_id
        self._unsent = store.keep_unsent()
        self._outbox = outbox
        self._events = events
        self._rng = rng
        self._check_ms = check_ms
        self._peers: dict[int, None] = {}
        self._to_check: dict[int, None] = {}
        """Peers to compare with as soon as nothing else is to be repaired."""
        self._check_at = now + check_ms
        self._repair: Repair | None = None
        self._answering = 0
        """The peer that repairs with this node, and the time of its last part."""
        self._answered_at = 0
        self._warned_at: dict[str, int] = {}

    # --- peers come and go ---

    def peer_up(self, peer: int, now: int) -> None:  # noqa: ARG002  (the shape of a component)
        """Compare with a peer that is new here; one of the two begins."""
        self._peers[peer] = None
        if self._node_id < peer:
            self._to_check[peer] = None
            self._check_next()

    def peer_down(self, peer: int, now: int) -> None:  # noqa: ARG002  (the shape of a component)
        """Nothing can be sent to the peer; a repair brings what it misses when it is back."""
        self._peers.pop(peer, None)
        self._to_check.pop(peer, None)
        if self._repair is not None and self._repair.peer == peer:
            self._repair = None
        if self._answering == peer:
            self._answering = 0

    def peer_dead(self, peer: int, now: int) -> None:
        """Its messages stay: they belong to all nodes."""
        self.peer_down(peer, now)

    def tick(self, now: int) -> None:
        """End repairs that get no answer; compare with a peer from time to time."""
        repair = self._repair
        if repair is not None and now - repair.heard_at > SILENCE_MS:
            self._repair = None
        if self._answering and now - self._answered_at > SILENCE_MS:
            self._answering = 0
        if now >= self._check_at:
            self._check_at = now + self._check_ms // 2 + self._rng.randrange(self._check_ms)
            if self._peers:
                self._to_check[self._rng.choice(list(self._peers))] = None
        self._check_next()

    def flush(self, now: int) -> None:
        """Send this node's changes to all peers, and continue the repair."""
        unsent = self._unsent
        if unsent.topics:
            topics = list(unsent.topics)
            unsent.topics = {}
            unsent.lost_count = False  # should there have been too many, the repair finds the rest
            if self._peers:
                self._send_changes(list(self._peers), [self._entry(topic, now) for topic in topics])
        repair = self._repair
        if repair is not None and not repair.waits:
            self._go_on(repair, now)

    def is_busy(self) -> bool:
        """Whether a repair is under way."""
        return self._repair is not None or self._answering != 0

    # --- what peers say ---

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """Read a part of a peer."""
        reader = Reader(body)
        kind = reader.u8()
        if kind == CHANGES:
            self._on_changes(peer, reader, now)
        elif kind == ROOT:
            self._on_root(peer, reader.u64(), now)
        elif kind == BUCKET_DIGESTS:
            self._on_digests(peer, decode_digests(reader), now)
        elif kind == LIST:
            self._on_list(peer, reader, now)
        elif kind == ANSWER:
            self._on_answer(peer, reader, now)
        elif kind == DONE:
            if self._answering == peer:
                self._answering = 0
        else:
            raise FlockError(f"Another node says something of the unknown kind {kind} about retained messages.")

    def _on_changes(self, peer: int, reader: Reader, now: int) -> None:
        store = self.store
        while reader.has_more():
            change = decode_change(reader, store.wall_offset_ms)
            self.changes_received += 1
            outcome = store.apply(change.topic, change.run, change.stamp, change.origin, now)
            if outcome == APPLIED:
                self.changes_applied += 1
            elif outcome == AHEAD:
                self._note_ahead(peer, change.stamp, now)
            elif outcome == FULL:
                self._note_full(peer, change.topic, now)

    def _on_root(self, peer: int, root: int, now: int) -> None:
        if root == self._root():
            return
        if self.is_busy():
            self._to_check[peer] = None
            return
        self._answering = peer
        self._answered_at = now
        self._outbox.send(peer, RETAINED, bytes((BUCKET_DIGESTS,)) + pack_digests(self._digests()))

    def _on_digests(self, peer: int, theirs: list[int], now: int) -> None:
        if self._answering == peer:
            if self._node_id > peer:
                return  # both asked at once: the other one repairs
            self._answering = 0
        mine = self._digests()
        differing = [bucket for bucket in range(len(mine)) if mine[bucket] != theirs[bucket]]
        if self.is_busy():
            self._to_check[peer] = None
            differing = []
        if not differing:
            self._outbox.send(peer, RETAINED, bytes((DONE,)))
            return
        self.repairs += 1
        self._repair = Repair(peer, differing, now)

    # --- the side that repairs ---

    def _go_on(self, repair: Repair, now: int) -> None:
        """One step of a repair: send the messages that the peer asked for, list the next piece."""
        if not repair.wanted and not repair.todo:
            self._outbox.send(repair.peer, RETAINED, bytes((DONE,)))
            self._repair = None
            self._check_next()
            return
        entries: list[bytes] = []
        size = 0
        while repair.wanted and size < ANSWER_BYTES:
            entry = self._entry(repair.wanted.popleft(), now)
            entries.append(entry)
            size += len(entry)
        self.repaired += len(entries)
        self._send_changes([repair.peer], entries)
        repair.asked = []
        size = 0
        parts: list[bytes] = [bytes((LIST,))]
        while repair.todo and not repair.wanted and size < LIST_BYTES:
            bucket, after = repair.todo.popleft()
            section = self._section(bucket, after, LIST_BYTES - size, now)
            repair.asked.append(section)
            parts.append(encode_section(section))
            size += len(parts[-1])
        repair.waits = True
        repair.heard_at = now
        self._outbox.send(repair.peer, RETAINED, b"".join(parts))

    def _section(self, number: int, after: bytes, size_max: int, now: int) -> Section:
        bucket = self.store.buckets[number]
        names = self._names(bucket, after, b"", now)
        names.sort()
        versions: dict[bytes, int] = {}
        size = 0
        last = b""
        for name in names:
            if size >= size_max:
                return Section(number, after, last, versions)
            versions[name] = bucket.version(name)
            size += LIST_ENTRY_BYTES + len(name)
            last = name
        return Section(number, after, b"", versions)

    def _on_answer(self, peer: int, reader: Reader, now: int) -> None:
        unfinished, wanted = decode_answer(reader)
        repair = self._repair
        if repair is None or repair.peer != peer or not repair.waits:
            return  # of a repair that was given up
        listed = 0
        advanced = not repair.asked
        for section in repair.asked:
            listed += len(section.versions)
            go_on_after = unfinished.get(section.bucket)
            if go_on_after is None:
                advanced = True
                if section.through:
                    repair.todo.append((section.bucket, section.through))
            else:
                advanced = advanced or go_on_after > section.after
                repair.todo.append((section.bucket, go_on_after))
        if not advanced or len(wanted) > listed:
            raise FlockError("Another node answers a list of retained messages without getting on with it.")
        repair.asked = []
        repair.wanted.extend(wanted)
        repair.waits = False
        repair.heard_at = now

    # --- the side that answers ---

    def _on_list(self, peer: int, reader: Reader, now: int) -> None:
        """Compare a piece with this node's messages: send the later ones, ask for those that are later on the peer."""
        if not self._answering or self._answering == peer:
            self._answering = peer
            self._answered_at = now
        entries: list[bytes] = []
        wanted: list[bytes] = []
        unfinished: list[tuple[int, bytes]] = []
        size = 0
        steps = 0
        while reader.has_more():
            section = decode_section(reader)
            if size >= ANSWER_BYTES or steps >= ANSWER_STEPS:
                unfinished.append((section.bucket, section.after))
                continue
            bucket = self.store.buckets[section.bucket]
            names = set(self._names(bucket, section.after, section.through, now))
            names.update(section.versions)
            last = section.after
            for name in sorted(names):
                if size >= ANSWER_BYTES or steps >= ANSWER_STEPS:
                    unfinished.append((section.bucket, last))
                    break
                last = name
                steps += 1
                mine = bucket.version(name)
                theirs = section.versions.get(name, 0)
                if mine > theirs:
                    entry = self._entry(name, now)
                    entries.append(entry)
                    size += len(entry)
                elif theirs > mine and self._would_take(peer, name, theirs, mine, now):
                    wanted.append(name)
        self.repaired += len(entries)
        self._send_changes([peer], entries)
        self._outbox.send(peer, RETAINED, encode_answer(unfinished, wanted))

    def _would_take(self, peer: int, topic: bytes, theirs: int, mine: int, now: int) -> bool:
        """Whether this node would accept a change now; otherwise a later repair asks for it."""
        stamp = theirs >> ORIGIN_BITS
        if stamp_wall_ms(stamp) > now + self.store.wall_offset_ms + AHEAD_MS_MAX:
            self._note_ahead(peer, stamp, now)
            return False
        if not mine and self.store.usage.is_full():
            self._note_full(peer, topic, now)
            return False
        return True

    # --- helpers ---

    def _send_changes(self, peers: list[int], entries: list[bytes]) -> None:
        """Send entries in parts of at most CHUNK_BYTES, unless one alone is larger."""
        at = 0
        while at < len(entries):
            parts = [bytes((CHANGES,)), entries[at]]
            size = len(entries[at])
            at += 1
            while at < len(entries) and size + len(entries[at]) < CHUNK_BYTES:
                parts.append(entries[at])
                size += len(entries[at])
                at += 1
            body = b"".join(parts)
            if len(body) > 1:
                for peer in peers:
                    self._outbox.send(peer, RETAINED, body)

    def _entry(self, topic: bytes, now: int) -> bytes:
        """The entry of a topic; empty for an unknown topic, or one of the broker's own."""
        if topic.startswith(b"$SYS/"):
            return b""
        message = self.store.message(topic)
        if message is not None and not message.is_expired(now):
            return encode_message(message, self.store.wall_offset_ms)
        version = self.store.version(topic)
        return encode_deletion(topic, version) if version else b""

    def _names(self, bucket: Bucket, after: bytes, through: bytes, now: int) -> list[bytes]:
        """The names in a range, without deletions that all nodes may forget."""
        found: list[bytes] = []
        deleted = bucket.deleted
        for name in bucket.topics():
            if name <= after or (through and name > through):
                continue
            if deleted is not None:
                version = deleted.get(name, 0)
                if version and self.store.tombstones.is_forgotten(version, now + self.store.wall_offset_ms):
                    continue
            found.append(name)
        return found

    def _check_next(self) -> None:
        """Compare with the next peer in turn, unless a repair is under way."""
        if self._to_check and not self.is_busy():
            peer = next(iter(self._to_check))
            del self._to_check[peer]
            self._outbox.send(peer, RETAINED, encode_root(self._root()))

    def _digests(self) -> list[int]:
        return [bucket.digest for bucket in self.store.buckets]

    def _root(self) -> int:
        return int.from_bytes(blake2b(pack_digests(self._digests()), digest_size=8).digest(), "little")

    def _note_ahead(self, peer: int, stamp: int, now: int) -> None:
        self.refused_ahead += 1
        ahead_ms = stamp_wall_ms(stamp) - now - self.store.wall_offset_ms
        self._warn(
            "retained_ahead",
            peer,
            now,
            f"A retained message is stamped {ahead_ms // 1000} s ahead of this node's clock and is not taken over "
            "until then; set the clocks of the nodes right.",
        )

    def _note_full(self, peer: int, topic: bytes, now: int) -> None:
        self.refused_full += 1
        self._warn(
            "retained_over_limit",
            peer,
            now,
            f"The retained message of {topic!r} is on another node and not on this one, which holds twice as many as "
            "it should; raise mqtt.retained_messages_max or mqtt.retained_bytes_max, the same on all nodes.",
        )

    def _warn(self, kind: str, peer: int, now: int, message: str) -> None:
        last = self._warned_at.get(kind)
        if last is None or now - last >= WARN_MS:
            self._warned_at[kind] = now
            self._events.note(kind, {"peer": f"{peer:016x}", "message": message})
