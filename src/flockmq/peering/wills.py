"""Wills of clients whose node dies: two other nodes have a copy, and one of them publishes it.

```
 CONNECT with a will --> KEEP to the two first nodes for the client id, without the owner --> copies
 will void, published, changed ------------> DROP or KEEP again
 the owner dies --> the first holder that is alive takes the copy on: publishes it, or waits for its delay,
                    and is the owner of the will meanwhile (with two holders of its own)
                    the other holders send it theirs: it may have missed the original
 the owner leaves --> GOODBYE: it has published its wills itself; copies are dropped
 the client is back --> the registrar of its client id, which is the first holder, has the will dropped
```
A copy is published once: its holder remembers that for a while. Only when a holder dies in the very moment
between publishing and telling the other can it be published twice; never, when the owner and both holders die at once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.mqtt.packets import Will
from flockmq.mqtt.run import make_run
from flockmq.node.publishing import forwardable, publish_message
from flockmq.peering.channels import WILLS
from flockmq.peering.fields import Reader, malformed, sized
from flockmq.peering.rendezvous import Ranking
from flockmq.peering.session_codec import decode_will, encode_will

if TYPE_CHECKING:
    from flockmq.node.broker import Broker
    from flockmq.peering.ports import Outbox
    from flockmq.session.session import Session

KEEP: Final = 1
"""Keep this copy of a will of mine (or of ``owner``, which is dead, for you to take on)."""
DROP: Final = 2
HELLO: Final = 3
"""This is the boot of mine that my wills are of; what you have of older ones is due."""
GOODBYE: Final = 4
"""I leave, and have published my wills myself."""
BACK: Final = 5
"""A client is back whose will you have taken on."""

HEAD: Final = struct.Struct("<BBQQ")
"""Kind, flags, owner, boot."""
IS_VERSION_5: Final = 1
IS_CLEAN: Final = 2
COPY: Final = struct.Struct("<QQQ")
"""Delay in ms from the moment the client is gone, and the two holders."""

HOLDERS: Final = 2
COPIES_MAX: Final = 1_000_000
COPIES_BYTES_MAX: Final = 268_435_456
COPY_OVERHEAD_BYTES: Final = 500
PUBLISH_BUDGET: Final = 1_000
"""Wills published in one tick: a node with a hundred thousand clients may die."""
PLACE_BUDGET: Final = 2_000
"""Wills whose holders are looked at again in one tick after nodes came or went."""
HELLO_MS: Final = 5_000
"""A greeting that comes later than this after the link did is news."""
ORPHANS_MS: Final = 1_000
"""How often copies of dead nodes' wills are sent to the node that is to take them on, until it says that it has."""
TAKEN_MAX: Final = 100_000
BODY_BYTES_MAX: Final = 262_144


class Copy:
    """A will that another node's client left, or that this node has taken on."""

    def __init__(self, client_id: str, owner: int, boot: int, will: Will, version: int, delay_ms: int) -> None:
        self.client_id = client_id
        self.owner = owner
        self.boot = boot
        self.will = will
        self.version = version
        self.delay_ms = delay_ms
        self.due_at = 0
        """When it is to be published, once its client is gone; 0: the client is connected."""
        self.holders: list[int] = []
        self.size = len(will.payload) + len(will.topic) + COPY_OVERHEAD_BYTES


class WillCopies:
    """Copies of wills: those of this node's clients at others, and those of others here. Channel WILLS."""

    def __init__(self, broker: Broker, node_id: int, boot: int, outbox: Outbox) -> None:
        self.broker = broker
        self.node = broker.node
        self.me = node_id
        self.boot = boot
        self.outbox = outbox
        self.ranking = Ranking([node_id])
        self.linked: set[int] = set()
        self.held: dict[int, dict[str, Copy]] = {}
        """Copies by owner and client id."""
        self.held_count = 0
        self.held_bytes = 0
        self.adopted: dict[str, Copy] = {}
        """Wills of dead nodes' clients that are this node's to publish."""
        self.due: list[Copy] = []
        self.placed: dict[str, list[int]] = {}
        """Which nodes hold the wills of this node's clients, and those it has taken on."""
        self.dirty: dict[str, bool] = {}
        self.taken: dict[tuple[int, int, str], bool] = {}
        """Copies taken on, by owner, boot and client id: when another holder sends one, it is known."""
        self.boots: dict[int, int] = {}
        self.up_at: dict[int, int] = {}
        """When links came up."""
        self.waiting: dict[int, list[bytes]] = {}
        self.place_list: list[str] = []
        self.orphans_at = 0
        self.published = 0
        self.refused = 0
        """Copies that there was no room for."""

    # --- as owner ---

    def changed(self, session: Session) -> None:
        """A session's will is another, or none; or its client has gone."""
        if session.will is not None or session.client_id in self.placed:
            self.dirty[session.client_id] = True

    def leave(self, now: int) -> None:
        """This node leaves in good order: after ``Broker.shutdown`` has published all wills."""
        for copy in list(self.adopted.values()):
            self.publish(copy, now)
        for peer in self.linked:
            self.say(peer, HEAD.pack(GOODBYE, 0, self.me, self.boot) + sized(b""))
        self.flush(now)

    def place(self, client_id: str, again: bool, now: int) -> None:
        """See to it that the right nodes hold the right will of a client, and others none."""
        will, version, delay_ms, due_in = self.current(client_id, now)
        placed = self.placed.get(client_id)
        if will is None:
            if placed is not None:
                del self.placed[client_id]
                for peer in placed:
                    self.say_drop(peer, self.me, self.boot, client_id)
            return
        holders = self.ranking.top(client_id, HOLDERS, self.me)
        if placed is not None:
            for peer in placed:
                if peer not in holders:
                    self.say_drop(peer, self.me, self.boot, client_id)
        self.placed[client_id] = holders
        if again or placed != holders:
            body = self.copy_body(self.me, self.boot, client_id, will, version, delay_ms, due_in, holders)
            for peer in holders:
                self.say(peer, body)

    def current(self, client_id: str, now: int) -> tuple[Will | None, int, int, int]:
        """The will of a client of this node, or taken on by it: will, version, delay, and when due (-1: not yet)."""
        session = self.node.sessions.get(client_id)
        if session is not None and session.will is not None:
            delay_ms = min(session.will.properties.will_delay_s or 0, session.expiry_s) * 1000
            due_in = -1
            if session.connection is None:
                due_in = max(session.detached_at + delay_ms - now, 0)
            return session.will, session.version, delay_ms, due_in
        copy = self.adopted.get(client_id)
        if copy is not None:
            return copy.will, copy.version, copy.delay_ms, max(copy.due_at - now, 0)
        return None, 0, 0, 0

    def copy_body(
        self,
        owner: int,
        boot: int,
        client_id: str,
        will: Will,
        version: int,
        delay_ms: int,
        due_in: int,
        holders: list[int],
    ) -> bytes:
        """A copy as bytes."""
        pair = [*holders, 0, 0]
        return (
            HEAD.pack(KEEP, IS_VERSION_5 if version == 5 else 0, owner, boot)
            + sized(client_id.encode())
            + COPY.pack(delay_ms, pair[0], pair[1])
            + encode_will(will, due_in)
        )

    # --- members ---

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link to this peer now: what it holds may be out of date."""
        self.linked.add(peer)
        self.say(peer, HEAD.pack(HELLO, 0, self.me, self.boot) + sized(b""))
        if peer not in self.ranking.members:
            self.set_members([*self.ranking.members, peer], now)
        self.up_at[peer] = now
        self.place_again(peer)

    def place_again(self, peer: int) -> None:
        """Send a holder all it should have."""
        for client_id, holders in self.placed.items():
            if peer in holders:
                self.dirty[client_id] = True

    def peer_down(self, peer: int, now: int) -> None:  # noqa: ARG002 every component is told in the same words
        """The link to this peer is lost."""
        self.linked.discard(peer)
        self.waiting.pop(peer, None)
        self.up_at.pop(peer, None)

    def peer_dead(self, peer: int, now: int) -> None:
        """This peer is dead. If it has left in good order, call ``peer_left`` first."""
        self.linked.discard(peer)
        self.set_members([member for member in self.ranking.members if member != peer], now)

    def peer_left(self, peer: int, now: int) -> None:  # noqa: ARG002 every component is told in the same words
        """This peer has taken its leave, and published its wills before."""
        for copy in self.held.pop(peer, {}).values():
            self.uncount(copy)

    def set_members(self, members: list[int], now: int) -> None:
        """These nodes are alive (SUSPECT ones among them); this one is one of them."""
        ranking = Ranking([*members, self.me])
        if ranking.digest == self.ranking.digest:
            return
        gone = [member for member in self.ranking.members if member not in ranking.members]
        self.ranking = ranking
        self.place_list = list(self.placed)
        if gone:
            for owner in list(self.held):
                if owner not in ranking.members:
                    self.orphaned(owner, now)

    def orphaned(self, owner: int, now: int) -> None:
        """The owner of some copies is dead: take them on, or see to it that the first of their holders can."""
        copies = self.held.get(owner)
        if copies is None:
            return
        for copy in list(copies.values()):
            first = self.first_holder(copy)
            if first == self.me:
                self.forget(copy)
                self.adopt(copy, now)
            elif first in self.linked:
                due_in = max(copy.due_at - now, 0) if copy.due_at else -1
                self.say(
                    first,
                    self.copy_body(
                        owner, copy.boot, copy.client_id, copy.will, copy.version, copy.delay_ms, due_in, copy.holders
                    ),
                )

    def first_holder(self, copy: Copy) -> int:
        """The node that takes a dead node's will on; this one, should it be the only one that knows of it."""
        for holder in copy.holders:
            if holder in self.ranking.members:
                return holder
        return self.me

    def adopt(self, copy: Copy, now: int) -> None:
        """Take a dead node's will on."""
        key = (copy.owner, copy.boot, copy.client_id)
        for holder in copy.holders:
            if holder != self.me and holder in self.linked:
                self.say_drop(holder, copy.owner, copy.boot, copy.client_id)
        if key in self.taken:
            return
        self.taken[key] = True
        if len(self.taken) > TAKEN_MAX:
            del self.taken[next(iter(self.taken))]
        if not copy.due_at:
            copy.due_at = now + copy.delay_ms
        earlier = self.adopted.get(copy.client_id)
        if earlier is not None:  # of another node that died: both clients are gone
            self.due.append(earlier)
        if copy.due_at <= now:
            self.adopted.pop(copy.client_id, None)
            self.due.append(copy)
        else:
            self.adopted[copy.client_id] = copy
            self.dirty[copy.client_id] = True

    def client_back(self, client_id: str, clean: bool, now: int) -> None:
        """This node, as the registrar, lets a client in that no node has: a will of it that waits is void.

        Unless the client wants no old session: then that one ends, and its will is due. [MQTT-3.1.2-10]
        """
        copy = self.adopted.pop(client_id, None)
        if copy is not None:
            self.dirty[client_id] = True
            if clean:
                self.publish(copy, now)
        for owner, copies in self.held.items():
            known = copies.get(client_id)
            if known is not None and known.due_at and owner in self.linked:
                flags = IS_CLEAN if clean else 0
                self.say(owner, HEAD.pack(BACK, flags, owner, 0) + sized(client_id.encode()))

    # --- as holder ---

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """What the peer's component said."""
        reader = Reader(body)
        while reader.pos < reader.end:
            kind = reader.u8()
            flags = reader.u8()
            owner = reader.u64()
            boot = reader.u64()
            client_id = reader.text()
            if kind == KEEP:
                delay_ms = reader.number()
                holders = [reader.u64(), reader.u64()]
                will, due_in = decode_will(reader)
                copy = Copy(client_id, owner, boot, will, 5 if flags & IS_VERSION_5 else 4, delay_ms)
                copy.due_at = now + due_in if due_in >= 0 else 0
                copy.holders = [holder for holder in holders if holder]
                self.keep(peer, copy, now)
            elif kind == DROP:
                self.on_drop(peer, owner, boot, client_id)
            elif kind == HELLO:
                self.on_hello(peer, boot, now)
            elif kind == GOODBYE:
                self.peer_left(peer, now)
            elif kind == BACK:
                self.client_back(client_id, flags & IS_CLEAN != 0, now)
            else:
                raise malformed(f"something of kind {kind} about wills")

    def keep(self, peer: int, copy: Copy, now: int) -> None:
        """Take a copy in; the one of a dead owner is for this node to take on."""
        key = (copy.owner, copy.boot, copy.client_id)
        if peer == copy.owner:
            self.taken.pop(key, None)  # it lives, whatever was thought of it
        elif key in self.taken:
            self.say_drop(peer, copy.owner, copy.boot, copy.client_id)
            return
        copies = self.held.get(copy.owner)
        old = copies.get(copy.client_id) if copies is not None else None
        if old is not None:
            if old.boot > copy.boot or (old.boot == copy.boot and peer != copy.owner):
                return  # the owner's own word is newer than what another holder has
            self.forget(old)
        if peer != copy.owner and copy.owner not in self.ranking.members:
            self.adopt(copy, now)
            return
        if self.held_count >= COPIES_MAX or self.held_bytes + copy.size > COPIES_BYTES_MAX:
            self.refused += 1
            return
        copies = self.held.get(copy.owner)
        if copies is None:
            copies = {}
            self.held[copy.owner] = copies
        copies[copy.client_id] = copy
        self.held_count += 1
        self.held_bytes += copy.size

    def on_drop(self, peer: int, owner: int, boot: int, client_id: str) -> None:
        """A copy is not needed any more."""
        copies = self.held.get(owner)
        copy = copies.get(client_id) if copies is not None else None
        if copy is not None and copy.boot <= boot and (peer == owner or peer in copy.holders):
            self.forget(copy)

    def on_hello(self, peer: int, boot: int, now: int) -> None:
        """A node is there (again): wills of an earlier boot of it are due, no other node will say so."""
        self.boots[peer] = boot
        if now - self.up_at.get(peer, 0) >= HELLO_MS:  # only the peer thought that there was no way to it
            self.place_again(peer)
        copies = self.held.get(peer)
        if copies is None:
            return
        for copy in list(copies.values()):
            if copy.boot < boot and self.first_holder(copy) == self.me:
                self.forget(copy)
                self.adopt(copy, now)

    def forget(self, copy: Copy) -> None:
        """Let go of a copy."""
        copies = self.held.get(copy.owner)
        if copies is not None and copies.get(copy.client_id) is copy:
            del copies[copy.client_id]
            self.uncount(copy)
            if not copies:
                del self.held[copy.owner]

    def uncount(self, copy: Copy) -> None:
        """A copy is gone."""
        self.held_count -= 1
        self.held_bytes -= copy.size

    def publish(self, copy: Copy, now: int) -> None:
        """Publish a dead node's client's will, as that node would have."""
        will = copy.will
        properties = b""
        expires_at = 0
        if copy.version == 5:
            properties = forwardable(will.properties)
            if will.properties.message_expiry_s is not None:
                expires_at = now + max(will.properties.message_expiry_s * 1000, 1)
        self.published += 1
        self.node.stats.wills_published += 1
        self.node.events.note("will_published", {"client_id": copy.client_id, "topic": will.topic})
        run = make_run(copy.version, will.qos, will.retain, will.topic, will.payload, properties, expires_at)
        publish_message(self.node, run, now)
        if self.adopted.get(copy.client_id) is copy:
            del self.adopted[copy.client_id]
            self.dirty[copy.client_id] = True

    # --- time ---

    def tick(self, now: int) -> None:
        """Publish what is due; look at holders again."""
        if self.adopted:
            for copy in list(self.adopted.values()):
                if copy.due_at <= now:
                    del self.adopted[copy.client_id]
                    self.dirty[copy.client_id] = True
                    self.due.append(copy)
        if self.due:
            taken = self.due[:PUBLISH_BUDGET]
            del self.due[:PUBLISH_BUDGET]
            for copy in taken:
                self.publish(copy, now)
        if self.orphans_at <= now:
            self.orphans_at = now + ORPHANS_MS
            for owner in list(self.held):
                if owner not in self.ranking.members:
                    self.orphaned(owner, now)
        if self.place_list:
            budget = self.ranking.affordable(PLACE_BUDGET)
            again = self.place_list[-budget:]
            del self.place_list[-budget:]
            for client_id in again:
                self.place(client_id, False, now)

    def flush(self, now: int) -> None:
        """A loop turn ends: tell holders what has changed in it."""
        if self.dirty:
            dirty = self.dirty
            self.dirty = {}
            for client_id in dirty:
                self.place(client_id, True, now)
        if self.waiting:
            waiting = self.waiting
            self.waiting = {}
            for peer, parts in waiting.items():
                self.send(peer, parts)

    def say(self, peer: int, body: bytes) -> None:
        """Say something with this turn's frame."""
        waiting = self.waiting.get(peer)
        if waiting is None:
            waiting = []
            self.waiting[peer] = waiting
        waiting.append(body)

    def say_drop(self, peer: int, owner: int, boot: int, client_id: str) -> None:
        """Have a copy dropped."""
        self.say(peer, HEAD.pack(DROP, 0, owner, boot) + sized(client_id.encode()))

    def send(self, peer: int, parts: list[bytes]) -> None:
        """Hand over what was collected, in pieces."""
        body: list[bytes] = []
        size = 0
        for part in parts:
            if body and size + len(part) > BODY_BYTES_MAX:
                self.outbox.send(peer, WILLS, b"".join(body))
                body = []
                size = 0
            body.append(part)
            size += len(part)
        self.outbox.send(peer, WILLS, b"".join(body))
