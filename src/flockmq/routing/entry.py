"""All subscriptions to one filter, and the targets that they make where no other filter matches as well."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from flockmq.routing.shared import ShareGroup

if TYPE_CHECKING:
    from flockmq.routing.plan import Target
    from flockmq.routing.subscription import Subscription
    from flockmq.session.session import Session


class FilterEntry:
    """Who subscribed to ``topic_filter``, alone and in groups."""

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.subscriptions: dict[Session, Subscription] = {}
        """Those that are not shared, in order of subscribing."""
        self.groups: dict[bytes, ShareGroup] | None = None
        self._targets: list[Target] | None = None

    def add(self, subscription: Subscription, strategy: int, rng: random.Random) -> Subscription | None:
        """Enter a subscription; one of the same session and group is replaced and returned."""
        if subscription.group:
            if self.groups is None:
                self.groups = {}
            group = self.groups.get(subscription.group)
            if group is None:
                group = ShareGroup(subscription.group, self.topic_filter, strategy, rng)
                self.groups[subscription.group] = group
            return group.add(subscription)
        self._targets = None
        old = self.subscriptions.get(subscription.session)
        self.subscriptions[subscription.session] = subscription
        return old

    def remove(self, session: Session, group_name: bytes) -> bool:
        """Take a subscription out; False when there is none."""
        if group_name:
            group = self.groups.get(group_name) if self.groups is not None else None
            if group is None or not group.remove(session):
                return False
            if not group.members and self.groups is not None:
                del self.groups[group_name]
                if not self.groups:
                    self.groups = None
            return True
        if self.subscriptions.pop(session, None) is None:
            return False
        self._targets = None
        return True

    def is_empty(self) -> bool:
        """Whether nobody wants this filter any more."""
        return not self.subscriptions and self.groups is None

    def targets(self) -> list[Target]:
        """List the targets where only this filter matches: one list, shared by all such plans, never changed."""
        targets = self._targets
        if targets is None:
            targets = [subscription.target() for subscription in self.subscriptions.values()]
            self._targets = targets
        return targets
