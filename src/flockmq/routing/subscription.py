"""One subscription of one session, as the router sees it, and how several that match the same name become one copy.

A subscription is a value: to change it, add another in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.routing.plan import IDENTIFIERS_MAX, Target

if TYPE_CHECKING:
    from flockmq.session.session import Session


class Subscription(Target):
    """What a session asked for with one filter. When shared, ``$share/<group>/`` is off it and ``group`` not empty.

    It is the target as well where no other subscription of its session matches.
    """

    def __init__(
        self,
        session: Session,
        topic_filter: bytes,
        group: bytes,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        retain_handling: int,
        identifier: int,
    ) -> None:
        super().__init__(session, qos, retain_as_published, (identifier,) if identifier else (), no_local, None)
        self.topic_filter = topic_filter
        self.group = group
        self.no_local = no_local
        self.retain_handling = retain_handling
        self.identifier = identifier
        """0 when it has none."""
        self.replaces = False
        """The client had a subscription with this filter before."""
        self.sequence = 0
        """Place in the order of subscribing, set by the table; a replacement keeps its predecessor's."""

    def routes_like(self, other: Subscription) -> bool:
        """Whether plans made with the other one are right for this one, too (same session, group and filter)."""
        return (
            self.qos == other.qos
            and self.no_local == other.no_local
            and self.retain_as_published == other.retain_as_published
            and self.identifier == other.identifier
        )

    def target(self) -> Target:
        """What the session gets where only this subscription matches."""
        return self


def merge(subscriptions: list[Subscription]) -> Target:
    """Make one target of a session's subscriptions, given in order of subscribing: one copy, at the highest QoS."""
    if len(subscriptions) == 1:
        return subscriptions[0]
    qos = 0
    retain_as_published = False
    identifiers: tuple[int, ...] = ()
    others: list[Subscription] = []
    for subscription in subscriptions:
        qos = max(qos, subscription.qos)
        retain_as_published = retain_as_published or subscription.retain_as_published
        if len(identifiers) < IDENTIFIERS_MAX:
            identifiers += subscription.identifiers
        if not subscription.no_local:
            others.append(subscription)
    has_no_local = len(others) < len(subscriptions)
    own = merge(others) if others and has_no_local else None
    return Target(subscriptions[0].session, qos, retain_as_published, identifiers, has_no_local, own)
