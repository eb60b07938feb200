"""Whether one session gets a message to a topic name, and why, for ``explain``.

| what is found, in this order | gets |
| --- | --- |
| no session; or its time is over | no |
| none of its subscriptions matches | no |
| the ACL does not allow the subscription any more, and its client is not connected | no |
| only `$share` subscriptions match | maybe: one member of the group gets it |
| its client is connected | now |
| its client is away, the subscription is of QoS 0 | no |
| its client is away, a log keeps the message, or its node's memory | later |
| its client is away, the node that answers does not know yet that a session waits for the name | maybe |
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from flockmq.admin import cluster_model as model
from flockmq.admin.cluster_listings import find_everywhere, list_everywhere
from flockmq.admin.model import PAGE_LIMIT_MAX, Session, Subscription, SubscriptionQuery
from flockmq.admin.node_listings import SESSIONS, SUBSCRIPTIONS
from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.mqtt.namespaces import inside_client_id, qualified, split_topic
from flockmq.mqtt.topics import split_shared
from flockmq.node.namespaces import inside_filter
from flockmq.security.gate import BrokerGate
from flockmq.session.space import Space

if TYPE_CHECKING:
    from flockmq.admin.desk import Desk

PAGES_MAX: Final = 20
NEVER_EXPIRES: Final = 0xFFFF_FFFF
QOS_0_NOTE: Final = "A message of QoS 0 reaches it only while its client is connected."
NO_SESSION_NOTE: Final = (
    "It has no session: it never connected, or its session ended with the connection, was deleted, or has expired."
)
NOT_KNOWN_NOTE: Final = (
    "Its client is away, and the node that answers does not know yet that a session waits for this name; ask again."
)
EXPIRY_NOTE: Final = "A message with an expiry does not come once that is over."


class Facts:
    """What is known of a session and a name."""

    def __init__(
        self,
        client_id: str,
        session: Session | None,
        matching: list[Subscription],
        denied: list[Subscription],
        log: str,
        wall_ms: int,
    ) -> None:
        self.client_id = client_id
        self.session = session
        self.matching = matching
        """Its subscriptions that match the name and that it may have."""
        self.denied = denied
        """Those that the ACL does not allow any more."""
        self.log = log
        """The log that keeps a message of QoS 1 or 2; empty: none."""
        self.wall_ms = wall_ms


async def session_verdict(desk: Desk, found: model.Explanation, topic: bytes, client_id: str) -> model.SessionVerdict:
    """Whether the session of a client gets a message that takes this way."""
    namespace, name = split_topic(topic)
    session = await find_everywhere(desk, SESSIONS, inside_client_id(namespace, client_id), None)
    matching: list[Subscription] = []
    denied: list[Subscription] = []
    if isinstance(session, Session):
        query = SubscriptionQuery(
            client_id=client_id, namespace=namespace, match=name.decode("utf-8", "replace"), limit=PAGE_LIMIT_MAX
        )
        for one in await _all(desk, query):
            (matching if session.connected or _may_subscribe(desk, session, one) else denied).append(one)
    log = found.durable.topic if found.durable is not None else CAPTURE_TOPIC if found.captured else ""
    seen = session if isinstance(session, Session) else None
    return judge(Facts(client_id, seen, matching, denied, log, desk.moments.wall_ms))


async def _all(desk: Desk, query: SubscriptionQuery) -> list[Subscription]:
    found: list[Subscription] = []
    after: str | None = None
    for _ in range(PAGES_MAX):
        page = await list_everywhere(desk, SUBSCRIPTIONS, _behind(query, after))
        found += page.items
        after = page.next
        if after is None:
            break
    return found


def _behind(query: SubscriptionQuery, after: str | None) -> SubscriptionQuery:
    return SubscriptionQuery(
        client_id=query.client_id, namespace=query.namespace, match=query.match, limit=query.limit, after=after
    )


def _may_subscribe(desk: Desk, session: Session, subscription: Subscription) -> bool:
    """Whether rules still allow a subscription; True where only the client's token or address could tell."""
    gate = desk.broker.node.gate
    if not isinstance(gate, BrokerGate):
        return True
    username = None if session.username is None else qualified(session.namespace, session.username)
    identity = gate.identify(session.client_id, username, session.namespace, "")
    if identity is None:
        return True
    full_filter = inside_filter(Space(session.namespace), subscription.filter.encode())
    return gate.may_subscribe(identity, split_shared(full_filter)[1])


def judge(facts: Facts) -> model.SessionVerdict:
    """See the module."""
    session = facts.session
    if session is None:
        return _verdict(facts, "no", [NO_SESSION_NOTE])
    if _is_over(session, facts.wall_ms):
        left = f"its client left at {session.disconnected_at}, {session.expiry_s:,} s or more ago"
        return _verdict(facts, "no", [f"Its session is over: {left}."])
    if not facts.matching:
        if facts.denied:
            names = ", ".join(one.filter for one in facts.denied[:5])
            return _verdict(facts, "no", [f"The ACL does not allow its subscription any more, by its user: {names}."])
        return _verdict(facts, "no", [f"None of its {session.subscriptions:,} subscriptions matches."])
    own = [one for one in facts.matching if one.share_group is None]
    if not own:
        one = facts.matching[0]
        why = f"{one.filter} matches: one member of the group gets it, and that may be another client."
        return _verdict(facts, "maybe", [why], one)
    best = max(own, key=_qos)
    matches = f"{best.filter} matches, at most QoS {best.qos}."
    if session.connected:
        return _verdict(facts, "now", [matches, *_from_log(facts, session, best)], best)
    if not best.qos:
        return _verdict(facts, "no", [matches, "Its client is away: QoS 0 goes to connected clients only."], best)
    if facts.log:
        waits = f"Its client is away: QoS 1 and 2 wait in {facts.log}. Up to {_count(session.lag)} wait already."
        return _verdict(facts, "later", [matches, waits, *_gap(session), QOS_0_NOTE, EXPIRY_NOTE], best)
    if session.state == "disconnected":
        waits = f"Its client is away: QoS 1 and 2 wait in the memory of {session.node or 'its node'}."
        return _verdict(facts, "later", [matches, waits, QOS_0_NOTE, EXPIRY_NOTE], best)
    return _verdict(facts, "maybe", [matches, NOT_KNOWN_NOTE], best)


def _verdict(
    facts: Facts, gets: model.Gets, reasons: list[str], best: Subscription | None = None
) -> model.SessionVerdict:
    return model.SessionVerdict(
        client_id=facts.client_id,
        gets=gets,
        filter=None if best is None else best.filter,
        qos=None if best is None else best.qos,
        reasons=reasons,
    )


def _from_log(facts: Facts, session: Session, best: Subscription) -> list[str]:
    if not facts.log or not best.qos or not session.expiry_s:
        return []
    return [f"QoS 1 and 2 come from {facts.log}, after commit; up to {_count(session.lag)} come first.", *_gap(session)]


def _gap(session: Session) -> list[str]:
    return [f"A gap: retention removed {session.gap:,} offsets before it read them."] if session.gap else []


def _count(lag: int | None) -> str:
    return "an unknown number of messages" if lag is None else f"{lag:,} message{'' if lag == 1 else 's'}"


def _is_over(session: Session, wall_ms: int) -> bool:
    if session.connected or session.disconnected_at is None or session.expiry_s == NEVER_EXPIRES:
        return False
    left_s = datetime.fromisoformat(session.disconnected_at).timestamp()
    return wall_ms / 1_000 >= left_s + session.expiry_s


def _qos(subscription: Subscription) -> int:
    return subscription.qos
