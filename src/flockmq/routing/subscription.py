"""One subscription of one session, as the router sees it. A value: to change it, add another in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.routing.plan import Target

if TYPE_CHECKING:
    from flockmq.session.session import Session


class Subscription:
    """What a session asked for with one filter. When shared, ``$share/<group>/`` is off it and ``group`` not empty."""

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
        self.session = session
        self.topic_filter = topic_filter
        self.group = group
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier
        """0 when it has none."""
        self.sequence = 0
        """Place in the order of subscribing, set by the table; a replacement keeps its predecessor's."""
        self._target: Target | None = None

    def target(self) -> Target:
        """What the session gets where only this subscription matches. Built once and shared by all plans."""
        target = self._target
        if target is None:
            target = Target([self])
            self._target = target
        return target
