"""Membership of a node: SWIM with suspicion and Lifeguard, as one pure object. Datagrams, link messages and time go in;
datagrams, link messages and events come out.

```
 every probe_interval x (1 + health):                        target's buddy rule: a datagram to a member that this
   PING ------------------------------> next of the round    node does not hold alive says so first, and the
        |  no ACK for ping_timeout                           answer to it begins with the contradiction
        +-- PING_REQ --> 3 others --> PING --> target
        +-- by link, if there is one
        |  no ACK until the interval ends
        v
   SUSPECT, gossiped ... some others look for themselves and confirm ... time runs out
        --> last pings by the node that is about to call it dead: no node is called dead on hearsay
        --> DEAD, gossiped
```
When nothing changes, a node sends a PING and an ACK an interval, whatever the size of the cluster. News rides on them,
and for as long as there is some also goes to a few random members every gossip_interval. Differences that gossip left
are seen by the digests in pings and repaired by ``lists.py``. Dead members and contact points that don't answer are
greeted (HELLO) now and then, which merges what was split.

Time that this node did not see (it was stopped, or its loop was blocked) counts against no member:
see ``Prober.stalled``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.gossip.claims import encode_claim
from flockmq.gossip.counters import Counters
from flockmq.gossip.greeting import Greeter
from flockmq.gossip.lists import Lists
from flockmq.gossip.member import ALIVE, DEAD, LEFT, Member, MemberEvent
from flockmq.gossip.messages import ACK, GOSSIP, HELLO, NACK, PING, PING_REQ, WELCOME, Datagram, decode
from flockmq.gossip.probing import NEVER, Prober
from flockmq.gossip.roster import Roster
from flockmq.gossip.speaking import Address, Speaker

if TYPE_CHECKING:
    import random

    from flockmq.gossip.ports import Digests, Outbox
    from flockmq.gossip.settings import GossipSettings

DIFFERENT_MAX: Final = 3
"""So many datagrams in a row must show another list before a whole comparison is started: news may be on its way."""
FORGET_INTERVAL_MS: Final = 10_000
STALL_MS_MIN: Final = 200


class Swim:
    """One node's membership. Call ``tick`` about every 100 ms, or at ``wake_at``."""

    def __init__(
        self,
        settings: GossipSettings,
        me: Member,
        rng: random.Random,
        now: int,
        outbox: Outbox | None = None,
        maps: Digests | None = None,
    ) -> None:
        encode_claim(me)  # refuses names and hosts that can't be told
        self.settings = settings
        self.roster = Roster(settings, me, rng)
        self.lists = Lists(self.roster, outbox)
        self.counters = Counters()
        self._maps = maps
        self.leaving_until = 0
        self.wake_at = now
        """When ``tick`` has something to do at the latest."""
        self._rng = rng
        self._speaker = Speaker(settings, self.roster, rng, maps)
        self._prober = Prober(settings, self.roster, self.lists, self._speaker, self.counters, rng, now)
        self._greeter = Greeter(settings, self.roster, self._speaker, rng, now)
        self._was_run = False
        self._gossip_at = NEVER
        self._different = 0
        self._different_peer = 0
        self._repair_at = now
        self._ask_soon = 0
        self._compare_at = now + int(rng.random() * settings.compare_interval_ms)
        self._forget_at = now + FORGET_INTERVAL_MS

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
        """Greet these contact points until they answer, and again whenever no live member is there."""
        self._greeter.add_contacts(addresses, now)
        self._wake(now, now)

    def leave(self, now: int) -> None:
        """Tell all that this node goes; it still answers, until ``has_left`` says that enough was told."""
        roster = self.roster
        if roster.me.state == LEFT:
            return
        roster.change_me(roster.me.with_claim(roster.me.incarnation, LEFT))
        self.lists.send_own()
        self._prober.target = 0
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
        self._was_run = False  # until now it may not have been run, as it was part of nothing
        self._speaker.roster = roster
        self._prober.use(roster, self.lists)
        self._greeter.use(roster, now)
        self._wake(now, now)

    def forget(self, node_id: int) -> bool:
        """Drop a dead or left member for good, so that it is not tried again."""
        return self.roster.forget(node_id)

    def take_datagrams(self) -> list[tuple[Address, bytes]]:
        """What is to be sealed and sent, each to its address."""
        out = self._speaker.out
        self._speaker.out = []
        return out

    def take_events(self) -> list[MemberEvent]:
        """What happened to members since the last call, in order."""
        events = self.roster.events
        self.roster.events = []
        return events

    # Links: a Component of the channel MEMBERS

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link: compare lists, or, if the peer is held dead, let it contradict first."""
        known = self.roster.members.get(peer)
        if known is not None and known.state == DEAD:
            self._greeter.introduce((known.host, known.port), peer, now)
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
            self.roster.order.look_at(peer)
            if self._prober.acked:
                self._prober.ends_at = now  # the probe of this interval is done; the next need not wait
                self._wake(now, now)

    def peer_dead(self, peer: int, now: int) -> None:
        """Nothing to do: this object itself declared the peer dead."""

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """A message over a link; GossipError ends the link."""
        sequence = self.lists.receive(peer, body, now)
        if sequence >= 0 and sequence == self._prober.sequence and peer == self._prober.target:
            self._prober.succeeded()
        self._speaker.tell_accused()
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
                self._greeter.answered(datagram)  # a contact point that is this node itself
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
            if roster.hear(claim, now):
                accused = True
        self._note_sender(datagram, address, now)
        self._act(datagram, address, accused, now)
        self._wake_for_news(now)

    def _note_sender(self, datagram: Datagram, address: Address, now: int) -> None:
        """Note that the sender lives, and whether its view of the members is the same."""
        sender = datagram.sender
        known = self.roster.members.get(sender)
        kind = datagram.kind
        if known is None or known.boot < datagram.boot or known.incarnation < datagram.incarnation or not known.is_live:
            has_left = known is not None and known.state == LEFT and known.incarnation >= datagram.incarnation
            if kind < HELLO and not has_left:
                self._greeter.introduce(address, sender, now)
            return
        if datagram.view == self.roster.view:
            self._different = 0
        else:
            self._different += 1
            self._different_peer = sender
            if self._different >= DIFFERENT_MAX and not len(self.roster.news):
                self._wake(self._repair_at, now)
        if datagram.digest and self._maps is not None:
            try:
                self._maps.on_digest(sender, datagram.digest, now)
            except FlockError:  # it is still a ping that wants its answer
                self.counters.malformed += 1

    def _act(self, datagram: Datagram, address: Address, accused: bool, now: int) -> None:
        kind = datagram.kind
        sender = datagram.sender
        if kind == PING:
            if datagram.about == self.roster.me.node_id:
                self._speaker.send(address, sender, ACK, datagram.sequence, datagram.about, own_first=accused)
        elif kind == ACK:
            self._prober.acknowledged(datagram)
            if accused:
                self._speaker.send(address, sender, GOSSIP, 0, 0, own_first=True)
        elif kind == PING_REQ:
            self._prober.help_other(datagram, address, now)
            self._wake(self._prober.relays_at, now)
        elif kind == NACK:
            self._prober.refused(datagram)
        elif kind == HELLO:
            if self._greeter.may_greet(now):
                self._speaker.send(address, sender, WELCOME, datagram.sequence, 0, own_first=True)
        elif kind == WELCOME:
            self._greeter.answered(datagram)
            if accused:
                self._speaker.send(address, sender, GOSSIP, 0, 0, own_first=True)
        elif accused:
            self._speaker.send(address, sender, GOSSIP, 0, 0, own_first=True)

    # Time

    def _wake(self, at: int, now: int) -> None:
        self.wake_at = min(self.wake_at, max(at, now))

    def _wake_for_news(self, now: int) -> None:
        """News that has just come goes out soon."""
        if self._gossip_at == NEVER and len(self.roster.news) and self.roster.live:
            # Not at once: what arrives together goes out together, and not from all nodes at the same moment.
            self._gossip_at = now + 1 + int(self._rng.random() * self.settings.gossip_interval_ms / 2)
            self._wake(self._gossip_at, now)
        roster = self.roster
        if roster.suspicions and (roster.hurry or self._prober.suspicion_at == NEVER) and roster.me.state != LEFT:
            roster.hurry = False
            self._prober.suspicion_at = now
            self._wake(now, now)

    def tick(self, now: int) -> None:
        """Do what is due."""
        prober = self._prober
        greeter = self._greeter
        late_ms = now - self.wake_at
        if self._was_run and late_ms > max(STALL_MS_MIN, self.settings.ping_timeout_ms):
            self.counters.stalls += 1
            self.roster.health.worse()
            self._prober.stalled(late_ms, now)
        self._was_run = True
        if now >= prober.ends_at:
            prober.end(now)
            prober.start(now)
        elif now >= prober.indirect_at:
            prober.ask_others()
        if now >= prober.suspicion_at:
            prober.judge_suspects(now)
        if now >= prober.relays_at:
            prober.end_relays(now)
        if now >= self._gossip_at:
            self._gossip(now)
        if now >= greeter.hello_at:
            greeter.greet_contacts()
        if now >= greeter.revive_at:
            greeter.revive(now)
        self._repair(now)
        if now >= self._forget_at:
            self._forget_at = now + FORGET_INTERVAL_MS
            self.roster.forget_old(now)
        self._wake_for_news(now)
        self._plan(now)

    def _plan(self, now: int) -> None:
        wake_at = min(self._prober.wake_at(), self._greeter.hello_at, self._greeter.revive_at)
        wake_at = min(wake_at, self._gossip_at, self._compare_at, self._forget_at)
        if self._ask_soon or (self._different >= DIFFERENT_MAX and not len(self.roster.news)):
            wake_at = min(wake_at, self._repair_at)
        self.wake_at = max(wake_at, now)

    # Spreading, greeting, comparing

    def _gossip(self, now: int) -> None:
        roster = self.roster
        if not len(roster.news) or not roster.live:
            self._gossip_at = NEVER
            return
        for node_id in roster.order.pick(self.settings.gossip_fanout):
            if len(roster.news):
                self._speaker.send_to(node_id, GOSSIP, 0, 0)
        self._gossip_at = now + self.settings.gossip_interval_ms

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
            for peer in self.roster.order.pick(1):
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
                    self._speaker.send(
                        (member.host, member.port), peer, HELLO, self._speaker.next_sequence(), 0, own_first=True
                    )
