"""Which sessions subscribed to which filters, and so, quickly, where a message on a topic name goes.

```
 add / remove --> exact: name -> FilterEntry      wild: filter -> FilterEntry, with a trie over them
      |
      `--> drops the kept plans of the names that the filter matches, found through a tree of those names

 plan(topic) --> plans: name -> RoutePlan                            known name: one dict lookup
      `-- miss --> exact[topic] + trie.match(topic) --> RoutePlan    kept when the name has come before;
                                                                     the oldest makes room
```
A filter such as ``+/x/#`` may have to look at every kept name. What walks may cost is therefore bounded by what
keeping plans has cost: when a storm of such subscriptions has used that up, all plans are forgotten at once, which
is cheaper than to go on looking.

Durable topics (``topics``) are looked up when a plan is made, and stand in it.

In a cluster the same table holds the routes of other nodes (``add_route``, ``set_share``), and notes the filters whose
subscribers on this node came or went (``touched``), so that the others can be told once per loop turn.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from flockmq.errors import ConfigError
from flockmq.mqtt.topics import has_wildcard
from flockmq.routing.capture import Capture
from flockmq.routing.durable import DurableTopic, TopicMap
from flockmq.routing.entry import FilterEntry
from flockmq.routing.familiar import FamiliarNames
from flockmq.routing.names import NameTree
from flockmq.routing.plan import RoutePlan, Target
from flockmq.routing.shared import ShareGroup, strategy_number
from flockmq.routing.subscription import Subscription, merge
from flockmq.routing.trie import FilterTrie

if TYPE_CHECKING:
    from flockmq.routing.peer import Peer
    from flockmq.session.session import Session

STEPS_PER_PLAN: Final = 16
"""Steps of walks that one kept plan pays for: they take about as long as making and keeping it took."""

KEPT_BYTES_MAX: Final = 1_024
KEPT_LEVELS_MAX: Final = 16
"""Longest and deepest names whose plans are kept: the number of plans alone would not bound their memory."""

NO_TARGETS: Final[list[Target]] = []
NO_GROUPS: Final[list[ShareGroup]] = []
NO_PEERS: Final[list[Peer]] = []


class SubscriptionTable:
    """All subscriptions of a node, with the plans made from them."""

    def __init__(self, plan_cache_max: int, shared_strategy: str, rng: random.Random, node_id: int = 0) -> None:
        """``node_id``: of a node among others; 0: a node alone, which fills neither ``touched`` nor ``noticed``."""
        if plan_cache_max < 1:
            raise ConfigError("plan_cache_max must be at least 1: without kept plans every message is routed anew")
        self.plans: dict[bytes, RoutePlan] = {}
        """Plans by topic name, to look into first; ``plan`` fills it."""
        self.count = 0
        """Subscriptions, shared ones included."""
        self.count_shared = 0
        self.node_id = node_id
        """This node's id, for choices that must be the same from all nodes of a cluster."""
        self.links = 0
        """Counts links to other nodes that came or went: choices of shared groups depend on them."""
        self.touched: set[tuple[bytes, bytes]] | None = set() if node_id else None
        """In a cluster: groups (or none) and filters whose subscribers here came or went since the routes looked."""
        self.noticed: set[bytes] | None = set() if node_id else None
        """The same for delivery from logs: filters that clients here subscribed to alone."""
        self.capture = Capture()
        """What persistent sessions of all nodes wait for."""
        self._topics = TopicMap()
        self._strategy = strategy_number(shared_strategy)
        self._rng = rng
        self._exact: dict[bytes, FilterEntry] = {}
        self._wild: dict[bytes, FilterEntry] = {}
        self._trie = FilterTrie()
        self._familiar = FamiliarNames(4 * plan_cache_max)
        self._names: NameTree[RoutePlan] = NameTree()
        self._sequence = 0
        # Plans by age: a ring whose hand stands at the oldest, so that evicting costs no search.
        self._ring: list[RoutePlan | None] = []
        self._ring_max = plan_cache_max
        self._hand = 0
        self._steps_paid_max = STEPS_PER_PLAN * plan_cache_max
        self._steps_paid = 0

    def filters(self) -> list[bytes]:
        """List the distinct filters that any client subscribed to, here or on another node."""
        return [*self._exact, *self._wild]

    def entry(self, topic_filter: bytes) -> FilterEntry | None:
        """Find the subscribers of exactly this filter."""
        entry = self._exact.get(topic_filter)
        return entry if entry is not None else self._wild.get(topic_filter)

    def matching(self, topic: bytes) -> list[FilterEntry]:
        """Find the subscribers of all filters that match a topic name."""
        return self._matching(topic, topic.split(b"/"))

    def add(self, subscription: Subscription) -> bool:
        """Enter a subscription; True when new, False when it replaces the session's of the same group and filter."""
        topic_filter = subscription.topic_filter
        entry = self._enter(topic_filter)
        old = entry.add(subscription, self._strategy, self._rng)
        if old is None or not subscription.routes_like(old):  # clients that come back ask for the same again
            self._forget(topic_filter)
        if old is not None:
            subscription.sequence = old.sequence
            return False
        if self.touched is not None:
            self.touched.add((subscription.group, topic_filter))
        if self.noticed is not None and not subscription.group:
            self.noticed.add(topic_filter)
        self._sequence += 1
        subscription.sequence = self._sequence
        self.count += 1
        if subscription.group:
            self.count_shared += 1
        return True

    def remove(self, session: Session, group: bytes, topic_filter: bytes) -> bool:
        """Take a subscription out; False when there is none."""
        entry = self.entry(topic_filter)
        if entry is None or not entry.remove(session, group):
            return False
        self._changed(entry)
        if self.touched is not None:
            self.touched.add((group, topic_filter))
        if self.noticed is not None and not group:
            self.noticed.add(topic_filter)
        self.count -= 1
        if group:
            self.count_shared -= 1
        return True

    # --- other nodes ---

    def count_own(self, group: bytes, topic_filter: bytes) -> int:
        """Count the members of a group on this node; without a group: 1 when a client here subscribed alone."""
        entry = self.entry(topic_filter)
        if entry is None:
            return 0
        if not group:
            return 1 if entry.has_own() else 0
        found = entry.groups.get(group) if entry.groups is not None else None
        return len(found.members) if found is not None else 0

    def add_route(self, topic_filter: bytes, peer: Peer) -> bool:
        """Clients of another node want this filter; False when that was known."""
        if not self._enter(topic_filter).add_peer(peer):
            return False
        peer.routes.add(topic_filter)
        self._forget(topic_filter)
        return True

    def remove_route(self, topic_filter: bytes, peer: Peer) -> bool:
        """No client of another node wants this filter any more; False when none did."""
        peer.routes.discard(topic_filter)
        entry = self.entry(topic_filter)
        if entry is None or not entry.remove_peer(peer):
            return False
        self._changed(entry)
        return True

    def set_share(self, group: bytes, topic_filter: bytes, peer: Peer, members: int) -> bool:
        """Note how many members a shared group has on another node, 0 when no more; False when that was known."""
        entry = self._enter(topic_filter) if members else self.entry(topic_filter)
        if members:
            peer.shares.add((group, topic_filter))
        else:
            peer.shares.discard((group, topic_filter))
        if entry is None or not entry.set_share(group, peer, members, self._strategy, self._rng):
            return False
        self._changed(entry)
        return True

    def remove_peer(self, peer: Peer) -> None:
        """Another node is gone, and all its routes with it."""
        for topic_filter in list(peer.routes):
            self.remove_route(topic_filter, peer)
        for group, topic_filter in list(peer.shares):
            self.set_share(group, topic_filter, peer, 0)

    def _enter(self, topic_filter: bytes) -> FilterEntry:
        """Find the entry of a filter, or make it."""
        entry = self.entry(topic_filter)
        if entry is None:
            entry = FilterEntry(topic_filter)
            if has_wildcard(topic_filter):
                self._wild[topic_filter] = entry
                self._trie.add(entry)
            else:
                self._exact[topic_filter] = entry
        return entry

    def _changed(self, entry: FilterEntry) -> None:
        """Drop an entry without subscribers, and the plans that are wrong now."""
        topic_filter = entry.topic_filter
        if entry.is_empty():
            if has_wildcard(topic_filter):
                del self._wild[topic_filter]
                self._trie.remove(topic_filter)
            else:
                del self._exact[topic_filter]
        self._forget(topic_filter)

    # --- durable topics ---

    @property
    def topics(self) -> TopicMap:
        """The durable topics that names are looked up in."""
        return self._topics

    @topics.setter
    def topics(self, topics: TopicMap) -> None:
        self._topics = topics
        self._forget_all()

    def topics_changed(self, filters: list[bytes]) -> None:
        """Some durable topics came, went or changed within ``topics``: drop the plans that their filters match."""
        for topic_filter in filters:
            self._forget(topic_filter)

    def capture_in(self, topic: DurableTopic) -> None:
        """Messages for persistent sessions go to this hidden topic from now on."""
        if self.capture.topic is None:
            self.capture.lapses_at = 0  # this node knows of no filter yet
        self.capture.topic = topic
        self.capture.groups = frozenset(topic.groups)
        self._forget_all()

    # --- plans ---

    def plan(self, topic: bytes) -> RoutePlan:
        """Say where messages on a topic name go. Use the answer at once: only plans in ``plans`` are kept current."""
        plan = self.plans.get(topic)
        if plan is not None:
            return plan
        levels = topic.split(b"/")
        plan = self._compile(topic, levels)
        if self._topics.topics:
            durable = self._topics.find_levels(topic, levels)
            if durable is not None:
                plan.durable = durable
                plan.group = durable.group_of(topic)
        capture = self.capture
        if capture.topic is not None and plan.durable is None and capture.matches(topic, levels):
            plan.captured = capture.topic
        if len(topic) <= KEPT_BYTES_MAX and len(levels) <= KEPT_LEVELS_MAX and self._familiar.meet(topic):
            self._keep(plan, levels)
        return plan

    def _matching(self, topic: bytes, levels: list[bytes]) -> list[FilterEntry]:
        entries = self._trie.match_levels(levels, topic.startswith(b"$"))
        exact = self._exact.get(topic)
        if exact is not None:
            entries.append(exact)
        return entries

    def _compile(self, topic: bytes, levels: list[bytes]) -> RoutePlan:
        entries = self._matching(topic, levels)
        if not entries:
            return RoutePlan(topic, NO_TARGETS, NO_GROUPS, NO_PEERS)
        groups = NO_GROUPS
        remotes = NO_PEERS
        for entry in entries:
            if entry.groups is not None:
                groups = groups + list(entry.groups.values())
            peers = entry.peers
            if peers is not None:
                remotes = remotes + [peer for peer in peers if peer not in remotes] if remotes else peers
        if len(entries) == 1:
            return RoutePlan(topic, entries[0].targets(), groups, remotes)
        return RoutePlan(topic, targets_of(entries), groups, remotes)

    def _keep(self, plan: RoutePlan, levels: list[bytes]) -> None:
        if len(self._ring) < self._ring_max:
            plan.slot = len(self._ring)
            self._ring.append(plan)
        else:
            hand = self._hand
            oldest = self._ring[hand]
            if oldest is not None:
                self._drop(oldest)
            plan.slot = hand
            self._ring[hand] = plan
            hand += 1
            self._hand = hand if hand < self._ring_max else 0
        plan.current = True
        self.plans[plan.topic] = plan
        self._names.set_levels(plan, levels)
        if self._steps_paid < self._steps_paid_max:
            self._steps_paid += STEPS_PER_PLAN

    def _forget(self, topic_filter: bytes) -> None:
        """Drop the plans that a change at this filter makes wrong."""
        if not has_wildcard(topic_filter):
            plan = self.plans.get(topic_filter)
            if plan is not None:
                self._drop(plan)
            return
        if not self.plans:
            return
        found = self._names.match_within(topic_filter, self._steps_paid)
        if found is None or len(found) * 2 > len(self.plans):
            self._forget_all()  # the rest comes back cheaper than these are picked out one by one
            return
        self._steps_paid -= self._names.steps
        for plan in found:
            self._drop(plan)

    def _drop(self, plan: RoutePlan) -> None:
        plan.current = False
        self._ring[plan.slot] = None
        del self.plans[plan.topic]
        self._names.remove(plan.topic)

    def _forget_all(self) -> None:
        for plan in self.plans.values():
            plan.current = False
        self.plans.clear()
        self._names.clear()
        self._ring.clear()
        self._hand = 0
        self._steps_paid = 0


def targets_of(entries: list[FilterEntry]) -> list[Target]:
    """List one target for each session, however many of the filters are its own."""
    by_session: dict[Session, list[Subscription]] = {}
    for entry in entries:
        for subscription in entry.subscriptions():
            matching = by_session.get(subscription.session)
            if matching is None:
                by_session[subscription.session] = [subscription]
            else:
                matching.append(subscription)
    targets: list[Target] = []
    for matching in by_session.values():
        if len(matching) > 1:
            matching.sort(key=sequence_of)
        targets.append(merge(matching))
    return targets


def sequence_of(subscription: Subscription) -> int:
    """Order subscriptions as they were made."""
    return subscription.sequence
