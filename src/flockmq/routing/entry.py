"""All subscriptions to one filter, and the targets that they make where no other filter matches as well.

Of other nodes' subscriptions only this is known: which nodes have some, and how many members of a shared group.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from flockmq.routing.shared import ShareGroup, id_of

if TYPE_CHECKING:
    from flockmq.routing.peer import Peer
    from flockmq.routing.plan import Target
    from flockmq.routing.subscription import Subscription
    from flockmq.session.session import Session


class FilterEntry:
    """The subscribers of ``topic_filter``, alone and in groups. Most filters have one subscriber: it costs no map."""

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.groups: dict[bytes, ShareGroup] | None = None
        self.peers: list[Peer] | None = None
        """Other nodes with clients that subscribed alone, in order of their ids."""
        self._only: Subscription | None = None
        self._many: dict[Session, Subscription] | None = None
        self._targets: list[Target] | None = None

    def add(self, subscription: Subscription, strategy: int, rng: random.Random) -> Subscription | None:
        """Enter a subscription; one of the same session and group is replaced and returned."""
        if subscription.group:
            return self._group(subscription.group, strategy, rng).add(subscription)
        self._targets = None
        many = self._many
        if many is not None:
            old = many.get(subscription.session)
            many[subscription.session] = subscription
            return old
        only = self._only
        if only is None or only.session is subscription.session:
            self._only = subscription
            return only
        self._many = {only.session: only, subscription.session: subscription}
        self._only = None
        return None

    def remove(self, session: Session, group_name: bytes) -> bool:
        """Take a subscription out; False when there is none."""
        if group_name:
            return self._remove_member(session, group_name)
        only = self._only
        many = self._many
        if only is not None and only.session is session:
            self._only = None
        elif many is not None and session in many:
            del many[session]
            if not many:
                self._many = None
        else:
            return False
        self._targets = None
        return True

    def is_empty(self) -> bool:
        """Whether this filter has no subscriber any more."""
        return self._only is None and self._many is None and self.groups is None and self.peers is None

    def has_own(self) -> bool:
        """Whether a client of this node subscribed alone."""
        return self._only is not None or self._many is not None

    def add_peer(self, peer: Peer) -> bool:
        """Enter another node; False when it is in already."""
        peers = self.peers
        if peers is None:
            self.peers = [peer]
            return True
        if peer in peers:
            return False
        self.peers = sorted([*peers, peer], key=id_of)
        return True

    def remove_peer(self, peer: Peer) -> bool:
        """Take another node out; False when it is not in."""
        peers = self.peers
        if peers is None or peer not in peers:
            return False
        self.peers = [other for other in peers if other is not peer] or None  # plans share the old list
        return True

    def set_share(self, name: bytes, peer: Peer, members: int, strategy: int, rng: random.Random) -> bool:
        """Note how many members a group has on another node; False when that was known."""
        groups = self.groups
        if members:
            return self._group(name, strategy, rng).set_remote(peer, members)
        group = groups.get(name) if groups is not None else None
        if group is None or not group.set_remote(peer, 0):
            return False
        self._drop_empty(group)
        return True

    def of(self, session: Session) -> Subscription | None:
        """Find what a session subscribed to alone."""
        if self._many is not None:
            return self._many.get(session)
        only = self._only
        return only if only is not None and only.session is session else None

    def subscriptions(self) -> list[Subscription]:
        """List those that are not shared, in order of subscribing."""
        if self._many is not None:
            return list(self._many.values())
        return [self._only] if self._only is not None else []

    def targets(self) -> list[Target]:
        """List the targets where only this filter matches. The list is shared by plans, and never changed."""
        only = self._only
        if only is not None:
            return [only]
        targets = self._targets
        if targets is None:
            targets = list(self._many.values()) if self._many is not None else []
            self._targets = targets
        return targets

    def _group(self, name: bytes, strategy: int, rng: random.Random) -> ShareGroup:
        groups = self.groups
        if groups is None:
            groups = {}
            self.groups = groups
        group = groups.get(name)
        if group is None:
            group = ShareGroup(name, self.topic_filter, strategy, rng)
            groups[name] = group
        return group

    def _remove_member(self, session: Session, group_name: bytes) -> bool:
        groups = self.groups
        group = groups.get(group_name) if groups is not None else None
        if groups is None or group is None or not group.remove(session):
            return False
        self._drop_empty(group)
        return True

    def _drop_empty(self, group: ShareGroup) -> None:
        groups = self.groups
        if groups is not None and not group.members and group.remote is None:
            del groups[group.name]
            if not groups:
                self.groups = None
