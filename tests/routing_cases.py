"""What the tests of routing share: sessions with and without a client, subscriptions, and names that meet filters."""

from __future__ import annotations

from hypothesis import strategies as st

from flockmq.mqtt.run import Run, make_run
from flockmq.node.settings import Limits
from flockmq.routing.peer import Peer
from flockmq.routing.subscription import Subscription
from flockmq.session.bounds import stranger_bounds
from flockmq.session.connection import Connection
from flockmq.session.session import Session
from flockmq.session.stats import Stats

# Few levels, so that names and filters meet often: empty ones, ones with $, and one that is the start of another.
LEVEL = st.sampled_from([b"a", b"b", b"ab", b"", b"$a", b"$SYS"])
NAME = st.lists(LEVEL, min_size=1, max_size=5).map(b"/".join).filter(bool)
PLAIN_OR_PLUS = st.one_of(LEVEL, st.just(b"+"))
FILTER = st.one_of(
    st.lists(PLAIN_OR_PLUS, min_size=1, max_size=5).map(b"/".join).filter(bool),
    st.lists(PLAIN_OR_PLUS, max_size=4).map(lambda levels: b"/".join([*levels, b"#"])),
)
WILDCARD_FILTER = FILTER.filter(lambda topic_filter: b"+" in topic_filter or b"#" in topic_filter)


def session_of(client_id: str, connected: bool = True) -> Session:
    session = Session(client_id, 5, 0)
    if connected:
        connect(session)
    return session


def connect(session: Session) -> None:
    session.connection = Connection(1, "tcp:default", stranger_bounds(Limits()), "192.0.2.1", 0, [], Stats())


def disconnect(session: Session) -> None:
    session.connection = None


def subscription_of(
    session: Session,
    topic_filter: bytes,
    group: bytes = b"",
    *,
    qos: int = 0,
    no_local: bool = False,
    retain_as_published: bool = False,
    identifier: int = 0,
) -> Subscription:
    return Subscription(session, topic_filter, group, qos, no_local, retain_as_published, 0, identifier)


def run_of(topic: bytes, payload: bytes = b"x", expires_at: int = 0) -> Run:
    return make_run(5, 0, True, topic, payload, expires_at=expires_at)


def peer_of(node_id: int, linked: bool = True) -> Peer:
    peer = Peer(node_id, f"node{node_id}", node_id, Limits(), 0, [], Stats())
    peer.linked = linked
    return peer
