"""Membership of a node: SWIM with suspicion and Lifeguard, as one pure object. Datagrams, link messages and time go in;
datagrams, link messages and events come out.

```
 every probe_interval x (1 + health):                        target's buddy rule: whatever is sent to somebody whom
   PING ------------------------------> next of the round    this node does not hold alive says so first, and the
        |  no ACK for ping_timeout                           answer to such a word begins with the contradiction
        +-- PING_REQ --> 3 others --> PING --> target
        +-- by link, if there is one
        |  no ACK until the interval ends
        v
   SUSPECT, gossiped ... some others look for themselves and confirm ... time runs out
        --> last pings by whoever is about to call it dead, since nobody is called dead on hearsay
        --> DEAD, gossiped
```
When nothing changes, a node sends a PING and an ACK an interval, whatever the size of the cluster. News rides on them,
and for as long as there is some also goes to a few random members every gossip_interval. Differences that gossip left
are seen by the digests in pings and repaired by ``lists.py``. Dead members and contact points that don't answer are
greeted (HELLO) now and then, which merges what was split.

Time that this node did not see (it was stopped, or the loop was blocked) counts against nobody: see ``_stalled``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.gossip.claims import GossipError, encode_claim
from flockmq.gossip.lists import Lists
from flockmq.gossip.member import ALIVE, DEAD, LEFT, SUSPECT, Member, MemberEvent
from flockmq.gossip.messages import (
    ACK,
    DIGEST_BYTES_MAX,
    GOSSIP,
    HEAD,
    HEAD_BYTES,
    HELLO,
    NACK,
    PING,
    PING_REQ,
    VERSION,
    WELCOME,
    Datagram,
    decode,
)
from flockmq.gossip.roster import Roster
from flockmq.gossip.seal import BODY_BYTES_MAX

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.gossip.ports import Outbox
    from flockmq.gossip.settings import GossipSettings

Address = tuple[str, int]

NEVER: Final = 1 << 60
CONTACTS_MAX: Final = 64
RELAYS_MAX: Final = 1_024
HELLOS_PER_S: Final = 200
DIFFERENT_MAX: Final = 3
"""So many datagrams in a row must show another list before a whole comparison is started: news may be on its way."""
URGENT_STREAK_MAX: Final = 3
"""Of so many probes in a row at least one goes by the round, so that no member waits for ever."""
REVIVERS: Final = 4
"""About so many members of a cluster try to reach its only dead one, each interval."""
FORGET_INTERVAL_MS: Final = 10_000
STALL_MS_MIN: Final = 200


class Relay:
    """A ping on behalf of another node."""

    def __init__(self, origin: Address, sequence: int, target: int, ends_at: int) -> None:
        self.origin = origin
        self.sequence = sequence
        self.target = target
        self.ends_at = ends_at


class Counters:
    """What happened so far."""

    def __init__(self) -> None:
        self.malformed = 0
        """Datagrams that could not be read."""
        self.foreign = 0
        """Datagrams of nodes of another cluster that share the cookie."""
        self.outdated = 0
        """Datagrams of earlier lives of a node."""
        self.probes = 0
        self.probes_failed = 0
        self.probes_indirect = 0
        """Probes that needed the help of others."""
        self.relays_refused = 0
        self.stalls = 0
        """How often this node noticed that it had not been run."""
        self.deaths_declared = 0


class Swim:
    """One node's membership. Call ``tick`` about every 100 ms, or at ``wake_at``."""

    def __init__(
        self, settings: GossipSettings, me: Member, rng: random.Random, now: int, outbox: Outbox | None = None
    ) -> None:
        encode_claim(me)  # refuses names and hosts that can't be told
        self.settings = settings
        self.roster = Roster(settings, me, rng)
        self.lists = Lists(self.roster, outbox)
        self.counters = Counters()
        self.digest = b""
        """The owner's of the maps; sent with each datagram, at most 64 bytes."""
        self.on_digest: Callable[[int, bytes, int], None] | None = None
        """Called with peer, digest and time when a live member sent one."""
        self.leaving_until = 0
        self.wake_at = now
        """When ``tick`` has something to do at the latest."""
        self._rng = rng
        self._out: list[tuple[Address, bytes]] = []
        self._contacts: dict[Address, int] = {}  # and the id of who answered there
        self._greeted: dict[int, Address] = {}  # by sequence; an answer may come from another address than was greeted
        self._was_run = False
        self._sequence = int(rng.random() * 0x7FFF_FFFF)
        self._probe = 0  # whom; 0: nobody
        self._probe_sequence = 0
        self._probe_acked = False
        self._probe_helpers = 0
        self._probe_nacks = 0
        self._urgent_streak = 0
        # Nodes that are started together should not probe in step.
        self._probe_ends_at = now + int(rng.random() * settings.probe_interval_ms)
        self._indirect_at = NEVER
        self._relays: dict[int, Relay] = {}
        self._relays_at = NEVER
        self._suspicion_at = NEVER
        self._gossip_at = NEVER
        self._hello_at = NEVER
        self._revive_at = now + int(rng.random() * settings.revive_interval_ms)
        self._different = 0
        self._different_peer = 0
        self._repair_at = now
        self._ask_soon = 0
        self._compare_at = now + int(rng.random() * settings.compare_interval_ms)
        self._forget_at = now + FORGET_INTERVAL_MS
        self._hellos = HELLOS_PER_S
        self._hellos_at = now

    # What the owner asks for

    @property
    def me(self) -> Member:
        """This node as it tells of itself."""
        return self.roster.me

    @property
    def members(self) -> dict[int, Member]:
        """All that are known, dead and left ones and this node among them."""
        return self.roster.members

    def alive(self) -> list[Member]:
        """This node and all others that are not dead or left; suspects count as alive."""
        members = self.roster.members
        return [self.roster.me, *[members[node_id] for node_id in self.roster.live]]

    def state_of(self, node_id: int) -> int:
        """A member's state; DEAD for those not known."""
        member = self.roster.members.get(node_id)
        return DEAD if member is None else member.state

    @property
    def view(self) -> int:
        """The same on two nodes that see the same live members."""
        return self.roster.view

    @property
    def health(self) -> int:
        """0: this node hears well; up to ``health_max``."""
        return self.roster.health.score

    def join(self, addresses: list[Address], now: int) -> None:
        """Greet these contact points until they answer, and again whenever nobody lives there."""
        for address in addresses:
            if address not in self._contacts:
                self._make_room_for_contact()
                self._contacts[address] = 0
        self._hello_at = now
        self._wake(now, now)

    def _make_room_for_contact(self) -> None:
        """Too many: the one that has been there the longest without an answer goes, else just the oldest."""
        if len(self._contacts) >= CONTACTS_MAX:
            silent = self._open_contacts()
            del self._contacts[silent[0] if silent else next(iter(self._contacts))]

    def leave(self, now: int) -> None:
        """Tell all that this node goes; it still answers, until ``has_left`` says that enough was told."""
        roster = self.roster
        if roster.me.state == LEFT:
            return
        roster.change_me(roster.me.with_claim(roster.me.incarnation, LEFT))
        self.lists.send_own()
        self._probe = 0
        self.leaving_until = now + self.settings.leave_ms
        self._gossip(now)
        self._wake(self.leaving_until, now)

    def has_left(self, now: int) -> bool:
        """Whether the process may end after ``leave``."""
        if self.roster.me.state != LEFT:
            return False
        return now >= self.leaving_until or not self.roster.live or not len(self.roster.news)

    def update_me(self, now: int, host: str, port: int, version: str, role: int) -> None:
        """This node has another address, version or role; all others get CHANGED."""
        me = self.roster.me
        changed = Member(
            me.node_id, me.boot, me.name, host, port, me.incarnation + 1, me.state, version, role, me.cluster_id
        )
        encode_claim(changed)
        self.roster.change_me(changed)
        self._wake_for_news(now)

    def adopt_cluster(self, cluster_id: int, now: int) -> None:
        """This node belongs to another cluster now: nothing that was known counts, contacts are greeted anew."""
        old = self.roster
        me = old.me
        mine = Member(
            me.node_id,
            me.boot,
            me.name,
            me.host,
            me.port,
            me.incarnation + 1,
            ALIVE,
            me.version,
            me.role,
            cluster_id,
        )
        for node_id in old.live.copy():
            known = old.members[node_id]
            old.end(known.with_claim(known.incarnation, LEFT), now, spread=False)
        roster = Roster(self.settings, mine, self._rng)
        roster.events = old.events
        linked = self.lists.linked
        self.roster = roster
        self.lists = Lists(roster, self.lists.outbox)
        self.lists.linked = linked
        self._probe = 0
        self._was_run = False  # until now it may not have been run, as it was part of nothing
        self._suspicion_at = NEVER
        for address in self._contacts:
            self._contacts[address] = 0
        self._hello_at = now
        self._wake(now, now)

    def forget(self, node_id: int) -> bool:
        """Drop a dead or left member for good, so that it is not tried again."""
        return self.roster.forget(node_id)

    def take_datagrams(self) -> list[tuple[Address, bytes]]:
        """What is to be sealed and sent, each to its address."""
        out = self._out
        self._out = []
        return out

    def take_events(self) -> list[MemberEvent]:
        """What happened to members since the last call, in order."""
        events = self.roster.events
        self.roster.events = []
        return events

    # Links: a Component of the channel MEMBERS

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link: compare lists, or, if it is to one who is held dead, let it contradict first."""
        known = self.roster.members.get(peer)
        if known is not None and known.state == DEAD:
            self._introduce((known.host, known.port), peer, now)
            return
        self.lists.linked[peer] = now
        if self.lists.completed == 0 or now >= self._repair_at:
            self._ask(peer, now)
        else:
            self._ask_soon = peer
            self._wake(self._repair_at, now)

    def peer_down(self, peer: int, now: int) -> None:
        """A lost link is a hint: look at this peer before others."""
        self.lists.link_lost(peer)
        member = self.roster.members.get(peer)
        if member is not None and member.is_live:
            self.roster.look_at(peer)
            if self._probe_acked:
                self._probe_ends_at = now  # the probe of this interval is done; the next need not wait
                self._wake(now, now)

    def peer_dead(self, peer: int, now: int) -> None:
        """It was this object that said so; nothing to do."""

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """A message over a link; GossipError ends the link."""
        sequence = self.lists.receive(peer, body, now)
        if sequence >= 0 and sequence == self._probe_sequence and peer == self._probe:
            self._probe_succeeded()
        self._tell_accused()
        self._wake_for_news(now)

    def flush(self, now: int) -> None:
        """Nothing is kept back for the end of a turn."""

    # Datagrams that arrive

    def receive_datagram(self, body: bytes, address: Address, now: int) -> None:
        """A datagram, opened already. What is wrong with it is counted, never raised."""
        try:
            datagram = decode(body)
        except FlockError:
            self.counters.malformed += 1
            return
        roster = self.roster
        me = roster.me
        if datagram.sender == me.node_id:
            if datagram.boot == me.boot:
                self._answered(datagram)  # a contact point that is this node itself
            return
        if datagram.cluster_id != me.cluster_id:
            self.counters.foreign += 1
            return
        known = roster.members.get(datagram.sender)
        if known is not None and known.boot > datagram.boot:
            self.counters.outdated += 1
            return
        accused = False
        for claim in datagram.claims:
            if roster.hear(claim, now, from_list=False, spread=True):
                accused = True
        self._note_sender(datagram, address, now)
        self._act(datagram, address, accused, now)
        self._wake_for_news(now)

    def _note_sender(self, datagram: Datagram, address: Address, now: int) -> None:
        """Who spoke, and does it see what this node sees?"""
        sender = datagram.sender
        known = self.roster.members.get(sender)
        kind = datagram.kind
        if known is None or known.boot < datagram.boot or known.incarnation < datagram.incarnation or not known.is_live:
            has_left = known is not None and known.state == LEFT and known.incarnation >= datagram.incarnation
            if kind < HELLO and not has_left:
                self._introduce(address, sender, now)
            return
        if datagram.view == self.roster.view:
            self._different = 0
        else:
            self._different += 1
            self._different_peer = sender
            if self._different >= DIFFERENT_MAX and not len(self.roster.news):
                self._wake(self._repair_at, now)
        if datagram.digest and self.on_digest is not None:
            try:
                self.on_digest(sender, datagram.digest, now)
            except FlockError:  # it is still a ping that wants its answer
                self.counters.malformed += 1

    def _act(self, datagram: Datagram, address: Address, accused: bool, now: int) -> None:
        kind = datagram.kind
        sender = datagram.sender
        if kind == PING:
            if datagram.about == self.roster.me.node_id:
                self._send(address, sender, ACK, datagram.sequence, datagram.about, own_first=accused)
        elif kind == ACK:
            self._acknowledged(datagram)
            if accused:
                self._send(address, sender, GOSSIP, 0, 0, own_first=True)
        elif kind == PING_REQ:
            self._help(datagram, address, now)
        elif kind == NACK:
            if datagram.sequence == self._probe_sequence and datagram.about == self._probe:
                self._probe_nacks += 1
        elif kind == HELLO:
            if self._may_greet(now):
                self._send(address, sender, WELCOME, datagram.sequence, 0, own_first=True)
        elif kind == WELCOME:
            self._answered(datagram)
            if accused:
                self._send(address, sender, GOSSIP, 0, 0, own_first=True)
        elif accused:
            self._send(address, sender, GOSSIP, 0, 0, own_first=True)

    def _answered(self, datagram: Datagram) -> None:
        """Who is behind a contact point is known now."""
        address = self._greeted.pop(datagram.sequence, None)
        if address is not None and address in self._contacts:
            self._contacts[address] = datagram.sender

    def _introduce(self, address: Address, node_id: int, now: int) -> None:
        """Somebody not known as it is now: greet it, its answer says who it is."""
        if self._may_greet(now):
            self._send(address, node_id, HELLO, 0, 0, own_first=True)

    def _may_greet(self, now: int) -> bool:
        earned = (now - self._hellos_at) * HELLOS_PER_S // 1_000
        if earned > 0:
            self._hellos = min(HELLOS_PER_S, self._hellos + earned)
            self._hellos_at = now
        if self._hellos <= 0:
            return False
        self._hellos -= 1
        return True

    def _acknowledged(self, datagram: Datagram) -> None:
        sequence = datagram.sequence
        if sequence == self._probe_sequence and datagram.about == self._probe:
            self._probe_succeeded()
            return
        relay = self._relays.get(sequence)
        if relay is not None and relay.target == datagram.about == datagram.sender:
            del self._relays[sequence]
            self._send(relay.origin, 0, ACK, relay.sequence, relay.target)

    def _help(self, datagram: Datagram, address: Address, now: int) -> None:
        """Ping somebody for another node."""
        target = self.roster.members.get(datagram.about)
        if target is None or not target.is_live or len(self._relays) >= RELAYS_MAX:
            self.counters.relays_refused += 1
            self._send(address, datagram.sender, NACK, datagram.sequence, datagram.about)
            return
        sequence = self._next_sequence()
        ends_at = now + self.settings.ping_timeout_ms * 4 // 5  # the origin still has time to hear of it
        self._relays[sequence] = Relay(address, datagram.sequence, target.node_id, ends_at)
        self._relays_at = min(self._relays_at, ends_at)
        self._wake(ends_at, now)
        self._send((target.host, target.port), target.node_id, PING, sequence, target.node_id)

    # Datagrams that leave

    def _next_sequence(self) -> int:
        self._sequence = (self._sequence + 1) & 0x7FFF_FFFF
        return self._sequence

    def _send(
        self, address: Address, receiver: int, kind: int, sequence: int, about: int, *, own_first: bool = False
    ) -> None:
        """Queue a datagram, with as much news as fits; ``receiver`` is 0 if it is not known who is there."""
        roster = self.roster
        me = roster.me
        digest = self.digest
        if len(digest) > DIGEST_BYTES_MAX:
            raise FlockError(f"A digest of {len(digest)} bytes is over the limit of {DIGEST_BYTES_MAX}.")
        head = HEAD.pack(
            VERSION,
            kind,
            me.cluster_id,
            me.node_id,
            me.boot,
            me.incarnation,
            sequence,
            about,
            roster.view,
            len(digest),
        )
        parts = [head, digest]
        room = BODY_BYTES_MAX - HEAD_BYTES - len(digest)
        if own_first:
            claim = encode_claim(me)
            parts.append(claim)
            room -= len(claim)
        if receiver:
            known = roster.members.get(receiver)
            if known is not None and known.state != ALIVE:  # the buddy rule
                claim = encode_claim(known, me.node_id, brief=True)
                parts.append(claim)
                room -= len(claim)
        if len(roster.news):
            limit = self.settings.retransmits(len(roster.live) + 1)
            for claim in roster.news.take(room, limit):
                parts.append(claim)
                room -= len(claim)
        if kind == WELCOME:
            self._add_some_members(parts, room)
        self._out.append((address, b"".join(parts)))

    def _add_some_members(self, parts: list[bytes], room: int) -> None:
        """Who else is there: a random stretch of the list."""
        roster = self.roster
        size = len(roster.live)
        if not size:
            return
        place = int(self._rng.random() * size)
        for step in range(min(size, 32)):
            claim = encode_claim(roster.members[roster.live[(place + step) % size]], roster.me.node_id)
            if len(claim) > room:
                return
            parts.append(claim)
            room -= len(claim)

    def _send_to(self, node_id: int, kind: int, sequence: int, about: int) -> None:
        member = self.roster.members[node_id]
        self._send((member.host, member.port), node_id, kind, sequence, about)

    def _tell_accused(self) -> None:
        """Whom a list calls dead hears it, and contradicts to all if it lives."""
        roster = self.roster
        if not roster.accused:
            return
        accused = roster.accused
        roster.accused = []
        me = roster.me
        for node_id in accused:
            known = roster.members.get(node_id)
            if known is None or not known.is_live:
                continue
            head = HEAD.pack(VERSION, GOSSIP, me.cluster_id, me.node_id, me.boot, me.incarnation, 0, 0, roster.view, 0)
            said = known.with_claim(known.incarnation, DEAD)
            self._out.append(((known.host, known.port), head + encode_claim(said, brief=True)))

    # Time

    def _wake(self, at: int, now: int) -> None:
        self.wake_at = min(self.wake_at, max(at, now))

    def _wake_for_news(self, now: int) -> None:
        """News that has just come goes out soon."""
        if self._gossip_at == NEVER and len(self.roster.news) and self.roster.live:
            # Not at once: what arrives together goes out together, and not everybody at the same moment.
            self._gossip_at = now + 1 + int(self._rng.random() * self.settings.gossip_interval_ms / 2)
            self._wake(self._gossip_at, now)
        roster = self.roster
        if roster.suspicions and (roster.hurry or self._suspicion_at == NEVER) and roster.me.state != LEFT:
            roster.hurry = False
            self._suspicion_at = now
            self._wake(now, now)

    def tick(self, now: int) -> None:
        """Do what is due."""
        late_ms = now - self.wake_at
        if self._was_run and late_ms > max(STALL_MS_MIN, self.settings.ping_timeout_ms):
            self._stalled(late_ms, now)
        self._was_run = True
        if now >= self._probe_ends_at:
            self._end_probe(now)
            self._start_probe(now)
        elif now >= self._indirect_at:
            self._ask_others()
        if now >= self._suspicion_at:
            self._judge_suspects(now)
        if now >= self._relays_at:
            self._end_relays(now)
        if now >= self._gossip_at:
            self._gossip(now)
        if now >= self._hello_at:
            self._greet_contacts()
        if now >= self._revive_at:
            self._revive(now)
        self._repair(now)
        if now >= self._forget_at:
            self._forget_at = now + FORGET_INTERVAL_MS
            self.roster.forget_old(now)
        self._wake_for_news(now)
        self._plan(now)

    def _plan(self, now: int) -> None:
        wake_at = min(self._probe_ends_at, self._indirect_at, self._relays_at, self._suspicion_at, self._gossip_at)
        wake_at = min(wake_at, self._hello_at, self._revive_at, self._compare_at, self._forget_at)
        if self._ask_soon or (self._different >= DIFFERENT_MAX and not len(self.roster.news)):
            wake_at = min(wake_at, self._repair_at)
        self.wake_at = max(wake_at, now)

    def _stalled(self, late_ms: int, now: int) -> None:
        """This node was not run for a while: whatever was not answered meanwhile is nobody else's fault."""
        self.counters.stalls += 1
        self.roster.health.worse()
        self._probe = 0
        self._probe_sequence = -1
        self._probe_ends_at = min(self._probe_ends_at, now)
        for suspicion in self.roster.suspicions.values():
            suspicion.began += late_ms
            suspicion.last_words = 0
        self._relays.clear()
        self._relays_at = NEVER

    # Probes

    def _start_probe(self, now: int) -> None:
        roster = self.roster
        interval = roster.health.scale(self.settings.probe_interval_ms)
        self._probe_ends_at = now + interval
        self._indirect_at = NEVER
        self._probe = 0
        if roster.me.state == LEFT:
            return
        target = self._choose_target()
        if not target:
            return
        self.counters.probes += 1
        self._probe = target
        self._probe_sequence = self._next_sequence()
        self._probe_acked = False
        self._probe_helpers = 0
        self._probe_nacks = 0
        self._indirect_at = now + roster.health.scale(self.settings.ping_timeout_ms)
        self._send_to(target, PING, self._probe_sequence, target)

    def _choose_target(self) -> int:
        roster = self.roster
        if roster.check_soon and self._urgent_streak < URGENT_STREAK_MAX:
            self._urgent_streak += 1
            for node_id in roster.check_soon:
                del roster.check_soon[node_id]
                return node_id
        self._urgent_streak = 0
        return roster.next_in_order()

    def _ask_others(self) -> None:
        """No answer so far: by other ways, since perhaps only ours is broken."""
        self._indirect_at = NEVER
        target = self._probe
        if not target or self._probe_acked:
            return
        self.counters.probes_indirect += 1
        self.lists.ping(target, self._probe_sequence)
        self._send_to(target, PING, self._probe_sequence, target)  # the first may just have been lost
        wanted = self.settings.indirect_probes
        for node_id in self.roster.random_live(wanted + 1):
            if node_id != target and self._probe_helpers < wanted:
                self._probe_helpers += 1
                self._send_to(node_id, PING_REQ, self._probe_sequence, target)

    def _probe_succeeded(self) -> None:
        if not self._probe_acked:
            self._probe_acked = True
            self._indirect_at = NEVER
            self.roster.health.better()

    def _end_probe(self, now: int) -> None:
        roster = self.roster
        target = self._probe
        if not target or self._probe_acked:
            return
        self.counters.probes_failed += 1
        # Helpers that did not even say no: the fault may be here.
        if self._probe_helpers:
            roster.health.worse(self._probe_helpers - min(self._probe_nacks, self._probe_helpers))
        else:
            roster.health.worse()
        known = roster.members.get(target)
        if known is not None and known.is_live:
            was_alive = known.state == ALIVE
            roster.suspect(known, known.incarnation, roster.me.node_id, now)
            if was_alive:  # tell it at once, it may contradict before others hear of it
                self._send_to(target, PING, self._next_sequence(), target)

    def _end_relays(self, now: int) -> None:
        over = [sequence for sequence, relay in self._relays.items() if now >= relay.ends_at]
        for sequence in over:
            relay = self._relays.pop(sequence)
            self._send(relay.origin, 0, NACK, relay.sequence, relay.target)
        self._relays_at = min([relay.ends_at for relay in self._relays.values()], default=NEVER)

    def _judge_suspects(self, now: int) -> None:
        """Whose time is over is called dead, after two last pings of this node's own."""
        roster = self.roster
        if roster.me.state == LEFT:
            self._suspicion_at = NEVER
            return
        step = roster.health.scale(self.settings.ping_timeout_ms)
        next_at = NEVER
        dead: list[int] = []
        for node_id, suspicion in roster.suspicions.items():
            ends_at = suspicion.ends_at()
            if suspicion.last_words == 0:
                due = ends_at - 2 * step
            else:
                due = suspicion.last_word_at + step
                if suspicion.last_words == 2:
                    due = max(due, ends_at)
            if now >= due:
                if suspicion.last_words == 2:
                    dead.append(node_id)
                    continue
                suspicion.last_words += 1
                suspicion.last_word_at = now
                sequence = self._next_sequence()
                self._send_to(node_id, PING, sequence, node_id)
                due = now + step
            next_at = min(next_at, due)
        self._suspicion_at = next_at
        for node_id in dead:
            known = roster.members[node_id]
            if known.state == SUSPECT:
                self.counters.deaths_declared += 1
                roster.end(known.with_claim(known.incarnation, DEAD), now, spread=True)

    # Spreading, greeting, comparing

    def _gossip(self, now: int) -> None:
        roster = self.roster
        if not len(roster.news) or not roster.live:
            self._gossip_at = NEVER
            return
        for node_id in roster.random_live(self.settings.gossip_fanout):
            if len(roster.news):
                self._send_to(node_id, GOSSIP, 0, 0)
        self._gossip_at = now + self.settings.gossip_interval_ms

    def _open_contacts(self) -> list[Address]:
        """Contact points behind which nobody is known to live."""
        members = self.roster.members
        found: list[Address] = []
        for address, node_id in self._contacts.items():
            member = members.get(node_id)
            if member is None or not member.is_live:
                found.append(address)
        return found

    def _greet_contacts(self) -> None:
        self._hello_at = NEVER
        for address in self._open_contacts():
            self._greet_contact(address)

    def _greet_contact(self, address: Address) -> None:
        sequence = self._next_sequence()
        if len(self._greeted) >= 2 * CONTACTS_MAX:
            del self._greeted[next(iter(self._greeted))]
        self._greeted[sequence] = address
        self._send(address, 0, HELLO, sequence, 0, own_first=True)

    def _revive(self, now: int) -> None:
        """Greet one of the dead, or a silent contact point: after a partition somebody must take the first step."""
        # Spread a little: two nodes that try each other in step would do so for ever.
        interval = self.settings.revive_interval_ms
        self._revive_at = now + interval * 3 // 4 + int(self._rng.random() * interval / 2)
        roster = self.roster
        if roster.me.state == LEFT:
            return
        contacts = self._open_contacts()
        if not roster.live:  # alone: all of them
            self._greet_contacts()
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
            if member.state == DEAD and not roster.is_replaced(member):  # who left did so on purpose
                address = (member.host, member.port)
                self._send(address, member.node_id, HELLO, self._next_sequence(), 0, own_first=True)
                return

    def _ask(self, peer: int, now: int) -> bool:
        if not self.lists.ask(peer, now):
            return False
        interval = self.settings.repair_interval_ms
        self._repair_at = now + interval // 2 + int(self._rng.random() * interval)
        self._different = 0
        return True

    def _repair(self, now: int) -> None:
        """Compare whole lists where something hints at a difference, and now and then without a hint."""
        if self.roster.me.state == LEFT:
            self._compare_at = NEVER
            return
        if now >= self._compare_at:
            self._compare_at = now + self.settings.compare_interval_ms
            for peer in self.roster.random_live(1):
                self._ask(peer, now)
        if now < self._repair_at:
            return
        if self._ask_soon:
            peer = self._ask_soon
            self._ask_soon = 0
            self._ask(peer, now)
        elif self._different >= DIFFERENT_MAX and not len(self.roster.news):
            peer = self._different_peer
            if not self._ask(peer, now):
                self._different = 0
                self._repair_at = now + self.settings.repair_interval_ms
                member = self.roster.members.get(peer)
                if member is not None and member.is_live:  # no link: at least some of its list
                    self._send((member.host, member.port), peer, HELLO, self._next_sequence(), 0, own_first=True)


__all__ = ["Address", "Counters", "GossipError", "Swim"]
