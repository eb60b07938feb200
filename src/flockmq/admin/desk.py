"""What the operations work with: the broker, the clocks, and the few things that the composition gives them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from flockmq.admin.durable_polls import Polls
from flockmq.admin.metrics import Exposition
from flockmq.admin.moments import Moments
from flockmq.admin.node_listings import NodeListings
from flockmq.admin.readiness import NAMES, NodeFacts, assess
from flockmq.cluster.model import is_hidden
from flockmq.drivers.clock import wall_ms
from flockmq.durable.sessions.lag import NO_LAG, Lag
from flockmq.errors import UNAVAILABLE, ApiError

if TYPE_CHECKING:
    from flockmq.admin.cluster_port import ClusterPort
    from flockmq.admin.description import Description
    from flockmq.admin.durable_port import DurablePort
    from flockmq.admin.group_port import GroupFigures
    from flockmq.admin.guard import Guard
    from flockmq.admin.loop_lag import LagWindow
    from flockmq.admin.metrics import Number
    from flockmq.admin.model import Build, Listener, Readiness
    from flockmq.admin.paging import Pager
    from flockmq.cluster.model import TopicRecord
    from flockmq.node.broker import Broker
    from flockmq.session.session import Session
    from flockmq.session.stats import Stats

TOPICS_MEASURED_MAX = 200
"""Topics that have a metric of their own."""
GROUPS_MEASURED_MAX = 200
"""Consumer groups that have metrics of their own."""
SCRAPE_MS = 200
"""How long an assessment is good for in metrics."""
State = Literal["starting", "ready", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """What does not change while the node runs."""

    name: str
    version: str
    build: Build


class LogEvent(Protocol):
    """Writes one structured line; ``level`` is debug, info, warning or error."""

    def __call__(self, level: str, event: str, **fields: object) -> None:
        """Never blocks, never raises; escapes what callers sent."""


def no_port() -> None:
    """There is none."""


def no_log(level: str, event: str, **fields: object) -> None:
    """Drop the event: there is no log."""


def alone(state: State) -> NodeFacts:
    """The facts of a node that was never meant to have others."""
    return NodeFacts(state=state, why_alone="This node was started without others.", is_meant_alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the composition gives the API beside the broker."""

    broker: Callable[[], Broker]
    """The broker of the life that the node leads now."""
    clock: Callable[[], int]
    """The broker's ``now``."""
    flush: Callable[[], None]
    """Lets the drivers write what a call left in ``broker.dirty``."""
    listeners: Callable[[], Sequence[Listener]] = tuple
    config: Callable[[], Mapping[str, object]] | None = None
    """The configuration in effect, secrets already blacked out."""
    reload: Callable[[], Awaitable[Sequence[str]]] | None = None
    """Reads passwords, ACL and certificates again; raises FlockError and changes nothing when one can't be used."""
    log: LogEvent = no_log
    wall_clock: Callable[[], int] = wall_ms
    find_cluster: Callable[[], ClusterPort | None] = no_port
    """The cluster; None when this node talks to no others, or not yet."""
    find_durable: Callable[[], DurablePort | None] = no_port
    """Cluster state and durable topics, where they are not those of the cluster."""
    facts: Callable[[State], NodeFacts] = alone
    """What the node knows about itself, with the state that the API is in."""

    @property
    def cluster(self) -> ClusterPort | None:
        """The cluster as it is now."""
        return self.find_cluster()

    @property
    def durable(self) -> DurablePort | None:
        """Cluster state and durable topics as they are now; None when this node has none, or not yet."""
        cluster = self.find_cluster()
        return self.find_durable() or (cluster.durable if cluster is not None else None)


class Desk:
    """Everything at hand for one AdminApi. Also the ``Source`` of the metrics."""

    def __init__(
        self, node: NodeInfo, ports: Ports, pager: Pager, guard: Guard, lag: LagWindow, description: Description
    ) -> None:
        self.node = node
        self.ports = ports
        self.pager = pager
        self.guard = guard
        self.lag = lag
        self.clock = ports.clock
        self.moments = Moments(ports.clock, ports.wall_clock)
        self.state: State = "starting"
        self.started_at_ms = ports.broker().node.started_at
        self.description = description
        self.polls = Polls()
        self.listings = NodeListings(ports.broker, self.moments, pager, node.name, self._lag_of)
        self.exposition = Exposition(self)
        self._readiness: Readiness | None = None
        self._readiness_at = 0

    @property
    def broker(self) -> Broker:
        """The broker of the life that the node leads now."""
        return self.ports.broker()

    @property
    def uptime_s(self) -> float:
        """How long this node runs."""
        return (self.clock() - self.started_at_ms) / 1000

    def mark_ready(self) -> None:
        """All listeners serve, unless the node is about to stop."""
        if self.state == "starting":
            self.state = "ready"

    def mark_stopping(self) -> None:
        """The node is about to stop."""
        self.state = "stopping"

    def check_running(self) -> None:
        """Refuse to change anything while the node stops."""
        if self.state == "stopping":
            raise ApiError(UNAVAILABLE, "The broker is stopping; ask another node, or this one once it is back")

    def readiness(self) -> Readiness:
        """What the node can do now."""
        return assess(self.ports.facts(self.state))

    def _lag_of(self, session: Session) -> Lag:
        port = self.ports.durable
        return NO_LAG if port is None else port.session_lag(session)

    # --- Source of the metrics ---

    def abilities(self) -> dict[str, bool]:
        """What the node can do now, by name."""
        found = self._recent()
        return {name: getattr(found, name).ok for name in NAMES}

    def _recent(self) -> Readiness:
        """The same for all metrics of one scrape, which reads them one by one."""
        now = self.clock()
        found = self._readiness
        if found is None or now - self._readiness_at >= SCRAPE_MS or found.status != self.state:
            found = self._readiness = self.readiness()
            self._readiness_at = now
        return found

    @property
    def stats(self) -> Stats:
        """The broker's counters."""
        return self.broker.stats

    def gauges(self) -> dict[str, Number]:
        """What is there now, by name."""
        broker = self.broker
        return {
            "uptime_seconds": self.uptime_s,
            "ready": int(self.state == "ready"),
            "problems": len(self._recent().problems),
            "event_loop_lag_seconds": self.lag.last_s,
            "event_loop_lag_max_seconds": self.lag.max_s,
            "connections": len(broker.connections),
            "strangers": broker.node.strangers.count,
            "strangers_bytes": broker.node.strangers.held_bytes,
            "clients": broker.node.online,
            "sessions": len(broker.sessions),
            "subscriptions": broker.subscriptions.count,
            "shared_subscriptions": broker.subscriptions.count_shared,
            "retained_messages": broker.retained.usage.count,
            "retained_bytes": broker.retained.usage.bytes,
            "retained_unsaved": len(broker.retained.unsaved.topics) if broker.retained.unsaved is not None else 0,
            "delayed_messages": len(broker.node.delayed),
            "delayed_bytes": broker.node.delayed_bytes,
            "bans": len(broker.bans.bans),
            "admin_token_failures_total": self.guard.failures,
        }

    def cluster(self) -> dict[str, Number]:
        """Figures of the cluster."""
        return self.ports.cluster.figures() if self.ports.cluster is not None else {}

    def durable(self) -> dict[str, Number]:
        """Figures of cluster state and durable topics."""
        return self.ports.durable.figures() if self.ports.durable is not None else {}

    def committed_records(self) -> int:
        """Committed records of all partitions of users' topics that this node leads."""
        return sum(end for _, end in self._led_topics())

    def topic_ends(self) -> list[tuple[str, str, int]]:
        """Committed records of topics, for those partitions that this node leads."""
        ends: dict[tuple[str, str], int] = {}
        for topic, end in self._led_topics():
            key = (topic.namespace, topic.name)
            if key in ends or len(ends) < TOPICS_MEASURED_MAX:
                ends[key] = ends.get(key, 0) + end
        return [(namespace, name, end) for (namespace, name), end in ends.items()]

    def group_figures(self) -> list[GroupFigures]:
        """How far consumer groups are behind in the partitions that this node leads."""
        port = self.ports.durable
        return [] if port is None else port.groups.figures(GROUPS_MEASURED_MAX)

    def wall_ms(self) -> int:
        """Now, in milliseconds since 1970."""
        return self.moments.wall_ms

    def _led_topics(self) -> Iterator[tuple[TopicRecord, int]]:
        """For each partition that this node leads, its topic, unless that is hidden, and its committed end."""
        port = self.ports.durable
        if port is None:
            return
        state = port.state()
        for group, end in port.ends().items():
            topic = state.topic_of_group(group)
            if topic is not None and not is_hidden(topic.name):
                yield topic, end

    def labels(self) -> dict[str, str]:
        """Version, build and name of the node."""
        return {"node": self.node.name, "version": self.node.version, "build": self.node.build}

    def listeners(self) -> Iterable[tuple[str, str, int]]:
        """Name, protocol and open connections of the listeners that count them."""
        counts: dict[tuple[str, str], int] = {}
        for listener in self.ports.listeners():
            if listener.connections is not None:
                key = (listener.name, listener.protocol)
                counts[key] = counts.get(key, 0) + listener.connections
        return [(name, protocol, count) for (name, protocol), count in counts.items()]
