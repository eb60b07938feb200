"""Nodes with owned maps and nothing else, links that break, and an obvious model to hold them against.

Whoever looks at a copy must find exactly what the owner had at that version; what ``take_changes`` gave away must add
up to it; and nobody may believe that a peer has more than it gave away.
"""

from __future__ import annotations

import random
from collections import deque

from flockmq.gossip.maps import OwnedMaps
from flockmq.gossip.maps_settings import MapsSettings

Map = dict[bytes, bytes]

SMALL = MapsSettings(
    key_bytes_max=40,
    value_bytes_max=40,
    chunk_bytes_max=140,
    log_bytes_max=1_500,
    relay_log_bytes_max=700,
    window_chunks=2,
    window_bytes=600,
    digest_interval_ms=300,
    pull_after_ms=200,
    pull_timeout_ms=500,
    stale_ms=600,
    forget_ms=2_000,
)


class Node:
    """One life of one node."""

    def __init__(self, network: Network, number: int, boot: int, settings: MapsSettings) -> None:
        self.network = network
        self.number = number
        self.maps = OwnedMaps(number, boot, self, settings, random.Random(boot), network.now)
        self.history: dict[int, Map] = {0: {}}
        """The own map at every version."""
        self.view: dict[int, Map] = {}
        """What all changes taken so far add up to."""
        self.consumed: dict[tuple[int, int], int] = {}
        """By owner and boot: the highest version whose changes were taken."""
        self.sent_bytes = 0

    def send(self, peer: int, channel: int, body: bytes) -> None:
        assert channel == 2
        self.sent_bytes += len(body)
        self.network.carry(self.number, peer, body)

    def change(self, key: bytes, value: bytes | None) -> int:
        before = self.maps.version
        version = self.maps.delete(key) if value is None else self.maps.set(key, value)
        if version != before:
            assert version == before + 1
            self.history[version] = dict(self.maps.items(self.number))
        return version

    def take(self) -> None:
        for change in self.maps.take_changes():
            view = self.view.setdefault(change.owner, {})
            if change.value is None:
                del view[change.key]  # nothing is deleted that was not there
            else:
                assert view.get(change.key) != change.value, "a change that changes nothing"
                view[change.key] = change.value
        for owner in self.maps.owners():
            if owner != self.number:
                boot, version = self.maps.place_of(owner)
                self.consumed[owner, boot] = max(version, self.consumed.get((owner, boot), 0))

    def end_turn(self) -> None:
        self.take()
        self.maps.flush(self.network.now)


class Link:
    """What is under way between two nodes, in order, and who has noticed that it broke."""

    def __init__(self) -> None:
        self.up = True
        self.deaf = False
        self.queues: dict[int, deque[bytes]] = {}
        self.unaware: set[int] = set()


class Network:
    """All nodes and links."""

    def __init__(self, count: int, settings: MapsSettings = SMALL, checked: bool = True) -> None:
        self.now = 1_000
        self.settings = settings
        self.checked = checked
        self.boots = 100_000
        self.lives: dict[tuple[int, int], Node] = {}
        """By number and boot: whose history holds for that boot."""
        self.links: dict[frozenset[int], Link] = {}
        self.nodes: dict[int, Node] = {}
        for number in range(1, count + 1):
            self.start(number)

    # --- nodes ---

    def start(self, number: int, boot: int = 0) -> Node:
        self.boots += 10_000
        node = Node(self, number, boot or self.boots, self.settings)
        self.nodes[number] = node
        self._note_boot(node)
        return node

    def restart(self, number: int, boot: int = 0) -> Node:
        """The process is gone at once; the others find out one by one."""
        for pair, link in self.links.items():
            if number in pair:
                self._break(pair, link)
                link.unaware.discard(number)
        return self.start(number, boot)

    def set(self, number: int, key: bytes, value: bytes | None) -> int:
        return self.nodes[number].change(key, value)

    def dead(self, at: int, who: int) -> None:
        if at != who:
            self.nodes[at].maps.peer_dead(who, self.now)

    def alive(self, at: int, who: int) -> None:
        self.nodes[at].maps.peer_alive(who, self.nodes[who].maps.boot, self.now)

    def datagram(self, sender: int, receiver: int) -> None:
        self.nodes[receiver].maps.on_digest(sender, self.nodes[sender].maps.digest(), self.now)

    # --- links ---

    def join(self, one: int, other: int) -> None:
        """A link, if there is none; whoever has not noticed the end of the last one does so now."""
        if one == other:
            return
        pair = frozenset((one, other))
        old = self.links.get(pair)
        if old is not None:
            if old.up and not old.deaf:
                return
            self._break(pair, old)
            for number in sorted(old.unaware):
                self.notice(number, one + other - number)
        link = Link()
        link.queues = {one: deque(), other: deque()}
        self.links[pair] = link
        for number in (one, other):
            self.nodes[number].maps.peer_up(one + other - number, self.now)

    def cut(self, one: int, other: int) -> None:
        """The link is gone, but nobody has noticed yet."""
        link = self.links.get(frozenset((one, other)))
        if link is not None:
            self._break(frozenset((one, other)), link)

    def deafen(self, one: int, other: int) -> None:
        """From now on nothing arrives any more, and nothing tells that."""
        link = self.links.get(frozenset((one, other)))
        if link is not None:
            link.deaf = True
            for queue in link.queues.values():
                queue.clear()

    def notice(self, at: int, other: int) -> None:
        link = self.links.get(frozenset((at, other)))
        if link is not None and at in link.unaware:
            link.unaware.discard(at)
            self.nodes[at].maps.peer_down(other, self.now)

    def blink(self, at: int, other: int) -> None:
        """One side takes the link for lost and found; the other notices nothing."""
        link = self.links.get(frozenset((at, other)))
        if link is not None and link.up:
            self.nodes[at].maps.peer_down(other, self.now)
            self.nodes[at].maps.peer_up(other, self.now)

    def carry(self, sender: int, receiver: int, body: bytes) -> None:
        link = self.links.get(frozenset((sender, receiver)))
        if link is not None and link.up and not link.deaf:
            link.queues[receiver].append(body)

    def _break(self, pair: frozenset[int], link: Link) -> None:
        if link.up:
            link.up = False
            link.unaware = set(pair)
            for queue in link.queues.values():
                queue.clear()

    # --- time ---

    def deliver(self, number: int, most: int = 1_000_000) -> int:
        """A turn of one node: so many messages at most from each link."""
        node = self.nodes[number]
        delivered = 0
        for pair, link in list(self.links.items()):
            if number in pair:
                peer = next(other for other in pair if other != number)
                queue = link.queues[number]
                for _ in range(min(most, len(queue))):
                    node.maps.receive(peer, queue.popleft(), self.now)
                    self._note_boot(node)
                    delivered += 1
        node.end_turn()
        self.check(node)
        return delivered

    def tick(self, number: int) -> None:
        self.nodes[number].maps.tick(self.now)

    def settle(self) -> None:
        """Until nothing is under way."""
        for _ in range(10_000):
            for number in self.nodes:
                self.deliver(number)
            if not any(queue for link in self.links.values() for queue in link.queues.values()):
                return
        raise AssertionError("they never stop talking")

    def run(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 100):
            self.now += 100
            for number in self.nodes:
                self.tick(number)
            self.settle()

    def heal(self, edges: list[tuple[int, int]] | None = None) -> None:
        """All live, and these links are there (all, if none are given); then some seconds."""
        numbers = sorted(self.nodes)
        wanted = edges if edges is not None else [(one, other) for one in numbers for other in numbers if one < other]
        for pair, link in self.links.items():
            if tuple(sorted(pair)) not in wanted:
                self._break(pair, link)
            for number in sorted(link.unaware):
                self.notice(number, next(other for other in pair if other != number))
        for one, other in wanted:
            self.join(one, other)
        for at in numbers:
            for who in numbers:
                self.alive(at, who)
        self.converge(8_000)

    def converge(self, duration_ms: int) -> None:
        """Until all are equal; however long it takes, they must stay so."""
        for _ in range(duration_ms // 100):
            self.run(100)
            if self.is_equal():
                break
        self.run(300)

    def is_equal(self) -> bool:
        places = {number: node.maps.place_of(number) for number, node in self.nodes.items()}
        return all(
            number == at or (node.maps.place_of(number) == place and node.maps.is_level(number))
            for at, node in self.nodes.items()
            for number, place in places.items()
        )

    # --- truth ---

    def _note_boot(self, node: Node) -> None:
        assert self.lives.setdefault((node.number, node.maps.boot), node) is node, "the same boot twice"

    def check(self, node: Node) -> None:
        """What must be true at any time, right after changes were taken."""
        if not self.checked:
            return
        maps = node.maps
        for owner in {*maps.owners(), *node.view}:
            if owner == node.number:
                continue
            held = dict(maps.items(owner))
            assert node.view.get(owner, {}) == held
            boot, version = maps.place_of(owner)
            if boot:
                assert held == self.lives[owner, boot].history[version]
            else:
                assert not held
        for peer, other in self.nodes.items():
            link = self.links.get(frozenset((node.number, peer)))
            if link is not None and link.up:
                assert maps.acknowledged(peer) <= other.consumed.get((node.number, maps.boot), 0)

    def check_equal(self) -> None:
        """What must be true after healing."""
        truth = {number: dict(node.maps.items(number)) for number, node in self.nodes.items()}
        for number, node in self.nodes.items():
            assert {owner: dict(node.maps.items(owner)) for owner in node.maps.owners()} == truth
            assert node.maps.digest()[1:9] == self.nodes[1].maps.digest()[1:9]
            for owner in truth:
                assert owner == number or node.maps.is_level(owner)
        for pair, link in self.links.items():
            if link.up:
                one, other = pair
                assert self.nodes[one].maps.acknowledged(other) == self.nodes[one].maps.version
                assert self.nodes[other].maps.acknowledged(one) == self.nodes[other].maps.version
