"""Rights that change while clients are connected: which clients must go, which subscriptions are no longer allowed.

```
 the gate's users or rules changed --review--> gone: DISCONNECT 0x98, its session ends
                                               other credentials: DISCONNECT 0x87, its session stays
                                               other rights: subscriptions are judged again, at once
                                               other rules for a whole namespace: the same, a few thousand a tick
 a session is resumed ----------------------> judged again, by its user and address
```
Publishing needs no review: the broker keeps verdicts for one version of the gate only. A will is given long before it
is published, so it is judged with the subscriptions. A dropped subscription or will is an event; MQTT has no packet to
tell the client. Messages that waited for a dropped subscription are still delivered.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt import reasons
from flockmq.mqtt.namespaces import split_client_id
from flockmq.node.lifecycle import disconnect, end_session, forget_will
from flockmq.node.ports import Identify, Identity
from flockmq.node.state import NodeState
from flockmq.node.subscribing import is_captured, leave
from flockmq.session.session import Session

CHECKS_PER_TICK: Final = 5_000
SESSIONS_AT_ONCE: Final = 5_000
"""With more sessions than this, changes that come in quick succession are reviewed together."""
GAP_MS: Final = 400
"""Between two looks at all sessions, then."""


class Review:
    """A change of rights: its kind and its users. User names have their namespace in front."""

    def __init__(
        self,
        identify: Identify,
        removed: frozenset[str] = frozenset(),
        changed: frozenset[str] = frozenset(),
        rights: frozenset[str] = frozenset(),
        namespaces: frozenset[str] | None = frozenset(),
    ) -> None:
        self.identify = identify
        self.removed = removed
        self.changed = changed
        """Users with other credentials."""
        self.rights = rights
        self.namespaces = namespaces
        """Namespaces with other rules; None: all namespaces."""

    def with_later(self, later: Review) -> Review:
        """Both changes as one."""
        namespaces = None
        if self.namespaces is not None and later.namespaces is not None:
            namespaces = self.namespaces | later.namespaces
        return Review(
            later.identify,
            self.removed | later.removed,
            self.changed | later.changed,
            self.rights | later.rights,
            namespaces,
        )


def review(node: NodeState, found: Review, now: int) -> None:
    """Review a change of users and rules: at once, or together with others where many sessions make a review long."""
    reviews = node.reviews
    reviews.identify = found.identify
    if found.removed and node.ports.sessions is not None:
        node.ports.sessions.users_removed(found.removed)
    if len(node.sessions) <= SESSIONS_AT_ONCE and not reviews.pending:
        act_on(node, found, now)
        return
    before = reviews.pending
    if isinstance(before, Review):
        found = before.with_later(found)
    else:
        reviews.due_at = max(reviews.due_at, now)
    reviews.pending = found


def act_on(node: NodeState, found: Review, now: int) -> None:
    """Go through all sessions once."""
    refuse_waiting(node, found, now)
    waiting: list[str] = []
    for session in list(node.sessions.values()):
        name = session.username
        if name is not None and name in found.removed:
            remove(node, session, now)
            continue
        connection = session.connection
        if name is not None and name in found.changed and connection is not None:
            text = "The credentials of this client have changed"
            disconnect(node, connection, reasons.NOT_AUTHORIZED, text, now)
        if name is not None and name in found.rights:
            review_session(node, session, found.identify)
        elif found.namespaces is None or (
            found.namespaces and split_client_id(session.client_id)[0] in found.namespaces
        ):
            waiting.append(session.client_id)
    if waiting:
        node.reviews.waiting = list({*waiting, *node.reviews.waiting})
        node.reviews.identify = found.identify


def refuse_waiting(node: NodeState, found: Review, now: int) -> None:
    """Review clients that the gate accepted before the change, and whose claim is under way."""
    gone = found.removed | found.changed
    if not gone:
        return
    for connection in list(node.connections.values()):
        admitted = connection.admitted_as
        if connection.session is None and admitted is not None and admitted in gone:
            disconnect(node, connection, reasons.NOT_AUTHORIZED, "The credentials have changed meanwhile", now)


def remove(node: NodeState, session: Session, now: int) -> None:
    """The client of a session is no longer registered: end the session."""
    connection = session.connection
    if connection is not None:
        disconnect(node, connection, reasons.ADMINISTRATIVE_ACTION, "This client was removed", now)
    if node.sessions.get(session.client_id) is session:
        end_session(node, session, now)


def ask_for_proof(node: NodeState, proving: frozenset[str], now: int) -> None:
    """Clients needed no credentials so far: the names and namespaces that they gave no longer count.

    Where clients have passwords now (``proving``), sessions wait for a client that proves the name that was given.
    """
    for connection in list(node.connections.values()):
        identity = connection.identity
        connection.verdicts = None
        if identity is None or connection.session is None:
            continue
        identity.username = None
        if identity.namespace != node.spaces.of_listener(connection.listener):
            text = "Clients must prove now that they belong to this namespace"
            disconnect(node, connection, reasons.NOT_AUTHORIZED, text, now)
    for session in node.sessions.values():
        if split_client_id(session.client_id)[0] not in proving:
            session.username = None


def go_on_reviewing(node: NodeState, now: int) -> None:
    """Take up changes that waited, and look at some of the sessions that wait for it."""
    reviews = node.reviews
    pending = reviews.pending
    if isinstance(pending, Review) and now >= reviews.due_at:
        reviews.pending = None
        reviews.due_at = now + GAP_MS
        act_on(node, pending, now)
    checks = 0
    while reviews.waiting and checks < CHECKS_PER_TICK:
        session = node.sessions.get(reviews.waiting.pop())
        if session is not None and reviews.identify is not None:
            checks += 1 + review_session(node, session, reviews.identify)


def review_session(node: NodeState, session: Session, identify: Identify | None) -> int:
    """Drop subscriptions and the will that are no longer allowed; returns how many were judged."""
    connection = session.connection
    identity = connection.identity if connection is not None else None
    if identity is None and identify is not None:
        namespace, client_id = split_client_id(session.client_id)
        identity = identify(client_id, session.username, namespace, session.peer)
    if identity is None or node.gate_is_open:
        return 0
    gate = node.gate
    review_will(node, session, identity)
    checks = 0
    revoked: list[bytes] = []
    for full_filter, subscription in list(session.subscriptions.items()):
        checks += 1
        is_captured_one = is_captured(session, subscription.group, subscription.qos)
        reason = ""
        if not gate.may_subscribe(identity, subscription.topic_filter):
            reason = "This client may not subscribe to it any more"
        elif is_captured_one and not gate.may_capture(identity, subscription.topic_filter):
            reason = "This client may not have its messages stored for a persistent session any more"
        if not reason:
            continue
        leave(node, session, full_filter)
        revoked.append(full_filter)
        node.events.note(
            "subscription_revoked",
            {
                "client_id": session.client_id,
                "username": session.username,
                "filter": full_filter,
                "reason": reason,
            },
        )
    if revoked and node.ports.sessions is not None:
        node.ports.sessions.revoked(session, revoked)
    return checks


def review_will(node: NodeState, session: Session, identity: Identity) -> None:
    """Forget a will that its client may not publish any more."""
    will = session.will
    if will is None or node.gate.may_publish(identity, will.topic):
        return
    forget_will(node, session)
    node.events.note(
        "will_revoked",
        {
            "client_id": session.client_id,
            "username": session.username,
            "topic": will.topic,
            "reason": "This client may not publish to it any more",
        },
    )
