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
    """Who subscribed to ``topic_filter``, alone and in groups. Most filters have one subscriber: it costs no map."""

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.groups: dict[bytes, ShareGroup] | None = None
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
        """Whether nobody wants this filter any more."""
        return self._only is None and self._many is None and self.groups is None

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
        if not group.members:
            del groups[group_name]
            if not groups:
                self.groups = None
        return True
