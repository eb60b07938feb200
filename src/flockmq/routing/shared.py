"""Which member of a shared subscription gets a message.

```
 strategy     choice                                       member away
 random       anew for each message                        anew among the connected
 round_robin  the next one for each message                passed over
 sticky       one, kept                                    another one, kept
 hash_client  by the publisher's client id                 by hashing again
 hash_topic   by the topic name                            by hashing again
```
Connected members come first. Only when all are away, one of them is chosen as if connected: its session queues the
message. The common case, all connected, looks at one member; a few tries find one where many are away, and
only after those the whole group is looked through.

In a cluster a group may have members on several nodes. Each node knows how many there are elsewhere, not which. So the
publisher's node chooses a node first, and that node chooses the member:

```
 random, round_robin       nodes in proportion to their members, for each message
 sticky                    the node with the highest hash of group, filter and node id: the same from everywhere
 hash_client, hash_topic   the hash is a place in the row of all members, nodes in order of their ids
```
This node counts only while one of its members is connected, other nodes only while there is a link to them; when that
leaves none, the message waits for a member of this node, else for a node.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from typing import TYPE_CHECKING, Final
from zlib import crc32

from flockmq.errors import ConfigError
from flockmq.routing.spreading import spread

if TYPE_CHECKING:
    from flockmq.routing.peer import Peer
    from flockmq.routing.subscription import Subscription
    from flockmq.session.session import Session

RANDOM: Final = 0
ROUND_ROBIN: Final = 1
STICKY: Final = 2
HASH_CLIENT: Final = 3
HASH_TOPIC: Final = 4
TRIES_MAX: Final = 8
STRATEGIES: Final = ("random", "round_robin", "sticky", "hash_client", "hash_topic")


def strategy_number(name: str) -> int:
    """Look up a strategy by its configured name."""
    for number, known in enumerate(STRATEGIES):
        if known == name:
            return number
    raise ConfigError(f"Unknown strategy for shared subscriptions {name!r}: use one of {', '.join(STRATEGIES)}")


class ShareGroup:
    """The members of ``$share/<name>/<topic_filter>`` and whose turn it is."""

    def __init__(self, name: bytes, topic_filter: bytes, strategy: int, rng: random.Random) -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.members: list[Subscription] = []
        self.spreads = strategy <= ROUND_ROBIN
        """True: the choice is made for each message. False: one choice holds for a whole run of messages."""
        self._strategy = strategy
        self._rng = rng
        self._turn = 0
        self._kept: Subscription | None = None
        self.remote: list[Peer] | None = None
        """Other nodes with members, in order of their ids; how many stands at the same place of the next list."""
        self.remote_members: list[int] = []
        self._node_turn = -1
        # The nodes that can be chosen, as of these links and members; sums of their members, for finding a place.
        self._row: list[Choice] = []
        self._sums: list[int] = []
        self._row_links = -1
        self._row_here = False
        self._highest = 0

    def add(self, subscription: Subscription) -> Subscription | None:
        """Let a member in; one of the same session is replaced, keeps its place and is returned."""
        members = self.members
        for index in range(len(members)):
            old = members[index]
            if old.session is subscription.session:
                members[index] = subscription
                if self._kept is old:
                    self._kept = subscription
                return old
        members.append(subscription)
        self._row_links = -1
        return None

    def remove(self, session: Session) -> bool:
        """Let the member of this session go, so that no other member misses a turn."""
        members = self.members
        for index in range(len(members)):
            old = members[index]
            if old.session is session:
                del members[index]
                self._row_links = -1
                if index < self._turn:
                    self._turn -= 1
                if self._kept is old:
                    self._kept = None
                return True
        return False

    def pick(self, publisher_id: str, topic: bytes) -> Subscription | None:
        """Choose the member that gets the next message (or run, unless ``spreads``); None when no member is left."""
        members = self.members
        count = len(members)
        if count == 0:
            return None
        strategy = self._strategy
        if strategy == ROUND_ROBIN:
            return self._next(members, count)
        if strategy == RANDOM:
            return self._draw(members, count)
        if strategy == STICKY:
            kept = self._kept
            if kept is None or kept.session.connection is None:
                chosen = self._draw(members, count)
                if kept is None or chosen.session.connection is not None:
                    self._kept = kept = chosen
            return kept
        number = spread(topic) if strategy == HASH_TOPIC else spread(publisher_id.encode())
        return self._hashed(members, count, number)

    def _next(self, members: list[Subscription], count: int) -> Subscription:
        """Take the first connected member from the one whose turn it is; that one itself when all are away."""
        turn = self._turn
        if turn >= count:
            turn = 0
        for step in range(count):
            index = turn + step
            if index >= count:
                index -= count
            member = members[index]
            if member.session.connection is not None:
                self._turn = index + 1
                return member
        self._turn = turn + 1
        return members[turn]

    def _draw(self, members: list[Subscription], count: int) -> Subscription:
        """Draw one of the connected members; any when all are away."""
        rng = self._rng
        first = members[int(rng.random() * count)]
        if first.session.connection is not None:
            return first
        for _ in range(TRIES_MAX):
            member = members[int(rng.random() * count)]
            if member.session.connection is not None:
                return member
        connected = self._connected()
        return connected[int(rng.random() * len(connected))] if connected else first

    def _hashed(self, members: list[Subscription], count: int, number: int) -> Subscription:
        """Take the member that the hash says; hash on when it is away, so that its share is spread over the others."""
        first = members[number % count]
        if first.session.connection is not None:
            return first
        for _ in range(TRIES_MAX):
            number = spread(number.to_bytes(4, "big"))
            member = members[number % count]
            if member.session.connection is not None:
                return member
        connected = self._connected()
        return connected[number % len(connected)] if connected else first

    # --- several nodes ---

    def set_remote(self, peer: Peer, members: int) -> bool:
        """Note how many members another node has; False when that was known."""
        known: dict[Peer, int] = {}
        if self.remote is not None:
            known = dict(zip(self.remote, self.remote_members, strict=True))
        if known.get(peer, 0) == members:
            return False
        known[peer] = members
        peers = sorted([one for one, count in known.items() if count], key=id_of)
        self.remote = peers or None
        self.remote_members = [known[one] for one in peers]
        self._row_links = -1
        return True

    def has_connected(self) -> bool:
        """Whether a client of this node is there to get a message."""
        return any(member.session.connection is not None for member in self.members)

    def choose(
        self, count: int, publisher_id: str, topic: bytes, own_id: int, links: int, local_first: bool
    ) -> list[Choice]:
        """Choose nodes for ``count`` messages of a run: which gets how many, in order of the run.

        ``links`` is another number after any link came or went.
        """
        here = self.has_connected()
        if here and (local_first or self.remote is None):
            return [Choice(None, count)]
        if links != self._row_links or here != self._row_here:
            self._line_up(here, own_id)
            self._row_links = links
            self._row_here = here
        row = self._row
        if len(row) <= 1:
            return [Choice(row[0].peer, count)] if row else []
        sums = self._sums
        total = sums[-1]
        strategy = self._strategy
        if strategy == ROUND_ROBIN:
            turn = self._node_turn
            if turn < 0:
                turn = crc32(own_id.to_bytes(8, "big"))  # not all nodes shall begin with the same member
            turn %= total
            self._node_turn = (turn + count) % total
            if count == 1:
                return [Choice(row[bisect_right(sums, turn)].peer, 1)]
            return dealt(row, total, turn, count)
        if strategy == RANDOM:
            rng = self._rng
            if count == 1:
                return [Choice(row[bisect_right(sums, int(rng.random() * total))].peer, 1)]
            drawn = [0] * len(row)
            for _ in range(count):
                drawn[bisect_right(sums, int(rng.random() * total))] += 1
            return [Choice(row[index].peer, drawn[index]) for index in range(len(row)) if drawn[index]]
        if strategy == STICKY:
            return [Choice(row[self._highest].peer, count)]
        number = spread(topic) if strategy == HASH_TOPIC else spread(publisher_id.encode())
        return [Choice(row[bisect_right(sums, number % total)].peer, count)]

    def _line_up(self, here: bool, own_id: int) -> None:
        """Note the nodes that can be chosen, with their members, in order of their ids."""
        row = self._candidates(here, own_id)
        sums: list[int] = []
        total = 0
        highest = -1
        start = crc32(self.topic_filter, crc32(self.name))
        for index, place in enumerate(row):
            total += place.count
            sums.append(total)
            number = crc32(node_of(place, own_id).to_bytes(8, "big"), start)
            if number > highest:
                highest = number
                self._highest = index
        self._row = row
        self._sums = sums

    def _candidates(self, here: bool, own_id: int) -> list[Choice]:
        peers = self.remote
        members = self.remote_members
        row: list[Choice] = []
        if peers is not None:
            row = [Choice(peers[index], members[index]) for index in range(len(peers)) if peers[index].linked]
        if not here and not row:
            if self.members:
                return [Choice(None, len(self.members))]
            if peers is not None:
                return [Choice(peers[index], members[index]) for index in range(len(peers))]
        if here:
            at = 0
            while at < len(row) and node_of(row[at], own_id) < own_id:
                at += 1
            row.insert(at, Choice(None, len(self.members)))
        return row

    def _connected(self) -> list[Subscription]:
        return [member for member in self.members if member.session.connection is not None]


class Choice:
    """A node (None: this one) and how many messages it gets, or members it has."""

    def __init__(self, peer: Peer | None, count: int) -> None:
        self.peer = peer
        self.count = count


def id_of(peer: Peer) -> int:
    """Order peers the same way on all nodes."""
    return peer.node_id


def node_of(place: Choice, own_id: int) -> int:
    """Id of the node that is meant."""
    peer = place.peer
    return peer.node_id if peer is not None else own_id


def dealt(row: list[Choice], total: int, turn: int, count: int) -> list[Choice]:
    """Deal ``count`` messages to the row of ``total`` members, beginning with the one whose ``turn`` it is."""
    rounds = count // total
    rest = count % total
    found: list[Choice] = []
    low = 0
    for place in row:
        high = low + place.count
        # The rest goes to places from turn on, and round the end to the beginning.
        extra = max(0, min(high, turn + rest) - max(low, turn))
        extra += max(0, min(high, turn + rest - total) - low)
        if rounds or extra:
            found.append(Choice(place.peer, rounds * place.count + extra))
        low = high
    return found
