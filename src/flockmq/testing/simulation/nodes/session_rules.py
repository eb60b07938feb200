"""The rules of persistent sessions, as their clients see them: MQTT packets only.

```
 client:  SUBSCRIBE ......... SUBACK ...... away ...... back, at any node ...... all faults are over
 message: acknowledged by    sent after it, and acknowledged: the session must get the message, be it connected,
          then: must not come    away or moved, and whichever nodes die
```

| rule | broken when |
| --- | --- |
| session present | a CONNACK differs from what the table had when the claim was applied, or a session is lost |
| session keeps | a message, sent after the SUBACK and acknowledged, has not come in the end, and no event tells why |
| session order | of one publisher, QoS (1, 2) and name, a message comes first behind a later one of the same SUBACK |
| nothing before | a message comes that was acknowledged before the SUBSCRIBE was sent, or sent after the UNSUBACK |
| no phantom | a message comes that no publisher sent to this name |
| exactly once out | of one owner, a message of QoS 2 comes twice, or its packet id means two |
| live order | a client without a persistent session gets messages of one connection and name in another order |

Which invariant of the design is checked by which rule: docs/how-to/simulate.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.testing.simulation.world import Violation

if TYPE_CHECKING:
    from flockmq.mqtt.packets import Publish
    from flockmq.testing.simulation.nodes.ledger import Ledger, Line
    from flockmq.testing.simulation.nodes.plan import NodesPlan
    from flockmq.testing.simulation.nodes.world import NodesWorld

EXACTLY_ONCE_OUT: Final = True
"""Whether repeats at QoS 2 break the rule also when the session has had another owner in between; else these are
counted."""
NEVER: Final = 1 << 62
UNDER_WAY_US: Final = 500_000
"""A message that was acknowledged this long ago is under way no more, while nodes hear each other."""
STUCK_US: Final = 20_000_000
"""The same where nodes stand still or are apart for a while."""
STICKY: Final = frozenset({"pause", "split", "slow", "delay", "isolate"})
"""Kinds of faults that keep messages under way."""


def under_way_us(plan: NodesPlan) -> int:
    """How long a message may be under way behind its acknowledgement."""
    return STUCK_US if any(fault.kind in STICKY for fault in plan.faults) else UNDER_WAY_US


class SessionStory:
    """What one persistent session was promised, and what came, over all its connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked_at = NEVER
        """When the first SUBSCRIBE was sent. A node may have taken that one even if its SUBACK never came."""
        self.promised_at = NEVER
        """When the SUBACK came: what is sent after this must come."""
        self.is_kept = False
        """Whether a SUBACK ever came: the session must not be lost."""
        self.left_at = -1
        """When an UNSUBACK came last."""
        self.owner = (0, 0, 0)
        """The node that has the session, its boot, and how many had it before."""
        self.owners: dict[bytes, tuple[int, int, int]] = {}
        """QoS 2: payload -> the owner that sent it first, while the session stays there."""
        self.came: dict[bytes, int] = {}
        """Payload -> how often."""
        self.highest: dict[Line, int] = {}
        """The highest number of each line that came."""
        self.ids: dict[int, bytes] = {}
        """QoS 2: packet ids that wait for PUBREL, and their payloads."""


class SessionRules:
    """Clients of persistent sessions report here; ``ledgers`` have all that was published."""

    def __init__(
        self, cluster: NodesWorld, ledgers: list[Ledger], under_way: int, *, exactly_once_out: bool = EXACTLY_ONCE_OUT
    ) -> None:
        """``under_way``: microseconds, see ``under_way_us``."""
        self.stories: list[SessionStory] = []
        self._cluster = cluster
        self._ledgers = ledgers
        self._under_way = under_way
        self._exactly_once_out = exactly_once_out

    # What subscribers say.

    def opened(self, name: str) -> SessionStory:
        """A client that wants a persistent session begins."""
        story = SessionStory(name)
        self.stories.append(story)
        return story

    def connected(self, story: SessionStory, is_present: bool, is_first: bool, node: int) -> None:
        """A CONNACK came from a node; ``is_first``: no CONNECT was sent before that one."""
        machines = self._cluster.session_machines
        owner = machines.tenures.get(story.name.encode(), (0, 0, 0))
        if owner != story.owner:
            story.owner = owner
            story.owners.clear()
        was_there = machines.present.get((story.name.encode(), node))
        if was_there is not None and was_there != is_present:
            text = f"{story.name}: the CONNACK says {is_present}, the record was there: {was_there}"
            raise Violation("session present", text)
        self._cluster.count("session presents checked", int(was_there is not None))
        if is_present and is_first:
            raise Violation("session present", f"{story.name}: there is a session before the first CONNECT")
        if is_present:
            return
        if story.is_kept:
            raise Violation("session present", f"{story.name}: its session is lost")
        story.ids.clear()

    def asked(self, story: SessionStory) -> None:
        """A SUBSCRIBE was sent."""
        story.asked_at = min(story.asked_at, self._cluster.queue.now)

    def granted(self, story: SessionStory) -> None:
        """The SUBACK came."""
        story.is_kept = True
        if story.promised_at == NEVER:
            # Attempts before that one were at other nodes, which may have been ahead of this one in the log.
            story.highest.clear()
        story.promised_at = min(story.promised_at, self._cluster.queue.now)

    def leaving(self, story: SessionStory) -> None:
        """An UNSUBSCRIBE was sent: nothing has to come any more."""
        story.promised_at = NEVER

    def left(self, story: SessionStory) -> None:
        """The UNSUBACK came: what is sent from now on must not come."""
        story.asked_at = NEVER
        story.left_at = self._cluster.queue.now

    def came(self, story: SessionStory, packet: Publish) -> None:
        """A message came, with its QoS and its packet id."""
        if packet.qos == 2 and self._is_same(story, packet):
            self._cluster.count("session QoS 2 resends")
            return
        ledger = self._ledger_of(story, packet)
        self._check_start(story, ledger, packet.payload)
        times = story.came.get(packet.payload, 0)
        story.came[packet.payload] = times + 1
        owner = story.owners.get(packet.payload)
        story.owners[packet.payload] = story.owner
        if not times:
            self._cluster.count("session deliveries")
            if ledger.sent_at[packet.payload] > story.left_at:  # others may wait since an earlier SUBSCRIBE
                self._cluster.positions.came(story.name, packet.topic, packet.payload)
            if packet.qos:  # at QoS 0 a session that was away gets what it missed when it reads the log again, or never
                self._check_order(story, ledger, packet.payload)
        elif packet.qos == 2:
            self._repeated(story, f"{packet.payload!r} came again", owner == story.owner)
        else:
            self._cluster.count("session repeats")

    def released(self, story: SessionStory, packet_id: int) -> None:
        """A PUBREL came."""
        story.ids.pop(packet_id, None)

    def _is_same(self, story: SessionStory, packet: Publish) -> bool:
        """Whether a client takes this for what it has already: the id waits for its PUBREL."""
        known = story.ids.get(packet.packet_id)
        story.ids[packet.packet_id] = packet.payload
        if known is not None and known != packet.payload:
            text = f"packet id {packet.packet_id} was {known!r}, is now {packet.payload!r}"
            self._repeated(story, text, story.owners.get(known) == story.owner)
        return known == packet.payload

    def _repeated(self, story: SessionStory, text: str, is_same_owner: bool) -> None:
        if self._exactly_once_out or is_same_owner:
            raise Violation("exactly once out", f"{story.name}: {text}")
        self._cluster.count("session QoS 2 repeats")

    def _ledger_of(self, story: SessionStory, packet: Publish) -> Ledger:
        for ledger in self._ledgers:
            if ledger.messages.get(packet.payload, (b"", 0))[0] == packet.topic:
                return ledger
        raise Violation("no phantom", f"{story.name}: {packet.payload!r} was never sent to {packet.topic!r}")

    def _check_start(self, story: SessionStory, ledger: Ledger, payload: bytes) -> None:
        """What was sent again, or acknowledged early, may be under way for any time."""
        if payload in ledger.again or ledger.is_early_at(ledger.messages[payload][1]):
            return
        is_early = ledger.acknowledged_at.get(payload, NEVER) + self._under_way < story.asked_at
        if is_early and ledger.sent_at[payload] > story.left_at + self._under_way:
            text = f"{story.name}: {payload!r} came, which was acknowledged before the SUBSCRIBE was sent"
            raise Violation("nothing before", text)

    def _check_order(self, story: SessionStory, ledger: Ledger, payload: bytes) -> None:
        line = ledger.lines[payload]
        if not ledger.has_order(payload) or ledger.is_moved(line[0]):
            return
        if payload in ledger.again and ledger.sent_at[payload] <= story.promised_at:
            return  # the first attempt stands before the start of the subscription, a later one behind newer messages
        number = int(payload.rpartition(b" ")[2])
        if number <= story.highest.get(line, 0):
            raise Violation("session order", f"{story.name}: {payload!r} came behind number {story.highest[line]}")
        story.highest[line] = number

    # In the end.

    def missing(self) -> str:
        """What has to come to some session; empty when each has everything."""
        for story in self.stories:
            lacking = [one for one in sorted(self._due(story) - story.came.keys()) if not self._is_gone(story, one)]
            if lacking:
                return f"{story.name} lacks {len(lacking)} messages, such as {lacking[:3]}"
        return ""

    def check(self) -> None:
        """Each session has everything."""
        lack = self.missing()
        if lack:
            raise Violation("session keeps", lack)
        self._cluster.count("session messages due", sum(len(self._due(story)) for story in self.stories))

    def _is_gone(self, story: SessionStory, payload: bytes) -> bool:
        """Whether an event says that the session could not read a message any more."""
        positions = self._cluster.positions
        places = self._cluster.archive.places.get(payload, [])
        return bool(places) and all(positions.is_in_gap(story.name, group, offset) for group, offset in places)

    def _due(self, story: SessionStory) -> set[bytes]:
        return {
            payload
            for ledger in self._ledgers
            for payload in ledger.promised
            if ledger.sent_at[payload] > story.promised_at
        }


class LiveOrder:
    """What one connection of a client without a persistent session gets of names of no durable topic."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name = name
        self._ledger = ledger
        self._highest: dict[tuple[bytes, int], int] = {}
        self._came: set[bytes] = set()

    def came(self, packet: Publish) -> None:
        """A message came."""
        payload = packet.payload
        if self._ledger.messages.get(payload, (b"", 0))[0] != packet.topic:
            raise Violation("no phantom", f"{self._name}: {payload!r} was never sent to {packet.topic!r}")
        if payload in self._came or payload in self._ledger.again:
            return  # it has no place in the order of one connection
        self._came.add(payload)
        line = (packet.topic, self._ledger.connections[payload])
        number = int(payload.rpartition(b" ")[2])
        if number <= self._highest.get(line, 0):
            raise Violation("live order", f"{self._name}: {payload!r} came behind number {self._highest[line]}")
        self._highest[line] = number
