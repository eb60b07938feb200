"""Probes: the own one of this interval, those for other nodes, and the last pings before a suspect is called dead.

```
 start --PING--> target      ping_timeout: PING again, PING_REQ to 3 others, by link      ends_at: SUSPECT
 help_other <--PING_REQ      PING --> target      its ACK is passed on, or NACK in time
 judge_suspects: time is over --> two last PINGs --> DEAD
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.gossip.member import ALIVE, DEAD, LEFT, SUSPECT
from flockmq.gossip.messages import ACK, NACK, PING, PING_REQ, Datagram

if TYPE_CHECKING:
    import random

    from flockmq.gossip.counters import Counters
    from flockmq.gossip.lists import Lists
    from flockmq.gossip.roster import Roster
    from flockmq.gossip.settings import GossipSettings
    from flockmq.gossip.speaking import Address, Speaker

NEVER: Final = 1 << 60
RELAYS_MAX: Final = 1_024
URGENT_STREAK_MAX: Final = 3
"""Of so many probes in a row and one more, at least one goes by the round, so that no member waits for ever."""


class Relay:
    """A ping on behalf of another node."""

    def __init__(self, origin: Address, sequence: int, target: int, ends_at: int) -> None:
        self.origin = origin
        self.sequence = sequence
        self.target = target
        self.ends_at = ends_at


class Prober:
    """What this node is finding out, and by when."""

    def __init__(
        self,
        settings: GossipSettings,
        roster: Roster,
        lists: Lists,
        speaker: Speaker,
        counters: Counters,
        rng: random.Random,
        now: int,
    ) -> None:
        self.settings = settings
        self.roster = roster
        self.lists = lists
        self.counters = counters
        self._speaker = speaker
        self.target = 0
        """The member that is probed; 0: none."""
        self.sequence = 0
        self.acked = False
        self.nacks = 0
        # Nodes that are started together should not probe in step.
        self.ends_at = now + int(rng.random() * settings.probe_interval_ms)
        self.indirect_at = NEVER
        self.relays_at = NEVER
        self.suspicion_at = NEVER
        self._helpers = 0
        self._urgent_streak = 0
        self._relays: dict[int, Relay] = {}

    def use(self, roster: Roster, lists: Lists) -> None:
        """Another cluster: begin anew."""
        self.roster = roster
        self.lists = lists
        self.target = 0
        self.suspicion_at = NEVER

    def wake_at(self) -> int:
        """When there is something to do."""
        return min(self.ends_at, self.indirect_at, self.relays_at, self.suspicion_at)

    def stalled(self, late_ms: int, now: int) -> None:
        """This node was not run for a while: members that did not answer meanwhile are not to blame."""
        self.target = 0
        self.sequence = -1
        self.ends_at = min(self.ends_at, now)
        for suspicion in self.roster.suspicions.values():
            suspicion.began = min(suspicion.began + late_ms, now)
            suspicion.last_words = 0
        self._relays.clear()
        self.relays_at = NEVER

    def refused(self, datagram: Datagram) -> None:
        """A NACK: the helper lives, the target did not answer it."""
        if datagram.sequence == self.sequence and datagram.about == self.target:
            self.nacks += 1

    def start(self, now: int) -> None:
        """Ping the next one."""
        roster = self.roster
        interval = roster.health.scale(self.settings.probe_interval_ms)
        self.ends_at = now + interval
        self.indirect_at = NEVER
        self.target = 0
        if roster.me.state == LEFT:
            return
        target = self._choose_target()
        if not target:
            return
        self.counters.probes += 1
        self.target = target
        self.sequence = self._speaker.next_sequence()
        self.acked = False
        self._helpers = 0
        self.nacks = 0
        self.indirect_at = now + roster.health.scale(self.settings.ping_timeout_ms)
        self._speaker.send_to(target, PING, self.sequence, target)

    def _choose_target(self) -> int:
        order = self.roster.order
        if order.check_soon and self._urgent_streak < URGENT_STREAK_MAX:
            self._urgent_streak += 1
            return order.take_urgent()
        self._urgent_streak = 0
        return order.take_next()

    def ask_others(self) -> None:
        """No answer so far: by other ways, since perhaps only ours is broken."""
        self.indirect_at = NEVER
        target = self.target
        if not target or self.acked:
            return
        self.lists.ping(target, self.sequence)
        self._speaker.send_to(target, PING, self.sequence, target)  # the first may just have been lost
        wanted = self.settings.indirect_probes
        for node_id in self.roster.order.pick(wanted + 1):
            if node_id != target and self._helpers < wanted:
                self._helpers += 1
                self._speaker.send_to(node_id, PING_REQ, self.sequence, target)

    def succeeded(self) -> None:
        """The target answered, by whatever way."""
        if not self.acked:
            self.acked = True
            self.indirect_at = NEVER
            self.roster.health.better()

    def end(self, now: int) -> None:
        """The interval is over: a target that did not answer by any way is a suspect."""
        roster = self.roster
        target = self.target
        if not target or self.acked:
            return
        self.counters.probes_failed += 1
        # Helpers that did not even say no: the fault may be here.
        if self._helpers:
            roster.health.worse(self._helpers - min(self.nacks, self._helpers))
        else:
            roster.health.worse()
        known = roster.members.get(target)
        if known is not None and known.is_live:
            was_alive = known.state == ALIVE
            roster.suspect(known, known.incarnation, roster.me.node_id, now)
            if was_alive:  # tell it at once, it may contradict before others hear of it
                self._speaker.send_to(target, PING, self._speaker.next_sequence(), target)

    def end_relays(self, now: int) -> None:
        """Tell the nodes that asked for help that there was no answer."""
        over = [sequence for sequence, relay in self._relays.items() if now >= relay.ends_at]
        for sequence in over:
            relay = self._relays.pop(sequence)
            self._speaker.send(relay.origin, 0, NACK, relay.sequence, relay.target)
        self.relays_at = min([relay.ends_at for relay in self._relays.values()], default=NEVER)

    def judge_suspects(self, now: int) -> None:
        """Whose time is over is called dead, after two last pings of this node's own."""
        roster = self.roster
        if roster.me.state == LEFT:
            self.suspicion_at = NEVER
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
                sequence = self._speaker.next_sequence()
                self._speaker.send_to(node_id, PING, sequence, node_id)
                due = now + step
            next_at = min(next_at, due)
        self.suspicion_at = next_at
        for node_id in dead:
            known = roster.members[node_id]
            if known.state == SUSPECT:
                roster.end(known.with_claim(known.incarnation, DEAD), now, spread=True)

    def acknowledged(self, datagram: Datagram) -> None:
        """An ACK: of the own probe, or of one for another node."""
        sequence = datagram.sequence
        if sequence == self.sequence and datagram.about == self.target:
            self.succeeded()
            return
        relay = self._relays.get(sequence)
        if relay is not None and relay.target == datagram.about == datagram.sender:
            del self._relays[sequence]
            self._speaker.send(relay.origin, 0, ACK, relay.sequence, relay.target)

    def help_other(self, datagram: Datagram, address: Address, now: int) -> None:
        """Ping a member for another node."""
        target = self.roster.members.get(datagram.about)
        if target is None or not target.is_live or len(self._relays) >= RELAYS_MAX:
            self._speaker.send(address, datagram.sender, NACK, datagram.sequence, datagram.about)
            return
        sequence = self._speaker.next_sequence()
        ends_at = now + self.settings.ping_timeout_ms * 4 // 5  # the origin still has time to hear of it
        self._relays[sequence] = Relay(address, datagram.sequence, target.node_id, ends_at)
        self.relays_at = min(self.relays_at, ends_at)
        self._speaker.send((target.host, target.port), target.node_id, PING, sequence, target.node_id)
