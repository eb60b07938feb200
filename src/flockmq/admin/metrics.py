"""Metrics for Prometheus, read from the broker at the moment of the scrape: nothing is counted twice or kept here.

```
 scrape --> BrokerCollector.collect() --> for each METRIC: read(source) --> samples --> text
```
``METRICS`` is the one table: the scrape, ``GET /api/v1/stats`` and the reference page are made from it. Reading costs
the same however many clients there are.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from flockmq.admin.group_metrics import GROUP_METRICS

if TYPE_CHECKING:
    from prometheus_client import Metric as PrometheusMetric

    from flockmq.admin.group_port import GroupFigures
    from flockmq.session.stats import Stats

Number = int | float
MEMBER_STATES: Final = ("alive", "suspect", "dead", "left")
LOGGED_STATES: Final = ("connected", "away")
Sample = tuple[tuple[str, ...], Number]


class Source(Protocol):
    """Where the numbers come from."""

    @property
    def stats(self) -> Stats:
        """The broker's counters."""

    def gauges(self) -> dict[str, Number]:
        """What is there now, by name."""

    def cluster(self) -> dict[str, Number]:
        """Figures of the cluster, by name; empty when the node talks to no others."""

    def durable(self) -> dict[str, Number]:
        """Figures of cluster state and durable topics, by name; empty when the node has none."""

    def committed_records(self) -> int:
        """Committed records of all partitions that this node leads."""

    def topic_ends(self) -> list[tuple[str, str, int]]:
        """Namespace, name and committed records of the topics that this node leads partitions of; bounded."""

    def group_figures(self) -> list[GroupFigures]:
        """How far consumer groups are behind in the partitions that this node leads; bounded."""

    def wall_ms(self) -> int:
        """Now, in milliseconds since 1970."""

    def labels(self) -> dict[str, str]:
        """Version, build and name of the node."""

    def abilities(self) -> dict[str, bool]:
        """What the node can do now, by name."""

    def listeners(self) -> Iterable[tuple[str, str, int]]:
        """Name, protocol and open connections of the listeners that count them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: its name as scraped, what it says, and how to read it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...]
    read: Callable[[Source], list[Sample]]
    names_things: bool = False
    """Whether its labels are names that users gave: scraped with a token only."""

    def family(self, source: Source) -> PrometheusMetric:
        """What prometheus_client encodes."""
        samples = self.read(source)
        if self.kind == "histogram":
            found = HistogramMetricFamily(self.name, self.text)
            if samples:
                *buckets, (_, total) = samples
                found.add_metric((), [(bound, count) for (bound,), count in buckets], total)
            return found
        family = (
            CounterMetricFamily(self.name.removesuffix("_total"), self.text, labels=self.labels)
            if self.kind == "counter"
            else GaugeMetricFamily(self.name, self.text, labels=self.labels)
        )
        for labels, value in samples:
            family.add_metric(labels, value)
        return family


def _counter(name: str, text: str, field: str) -> Metric:
    return Metric(name, "counter", text, (), lambda source: [((), getattr(source.stats, field))])


def _counters(name: str, text: str, label: str, fields: dict[str, str]) -> Metric:
    """``fields`` maps values of the label to fields of ``Stats``."""

    def read(source: Source) -> list[Sample]:
        return [((value,), getattr(source.stats, field)) for value, field in fields.items()]

    return Metric(name, "counter", text, (label,), read)


def _gauge(name: str, text: str) -> Metric:
    key = name.removeprefix("flockmq_")
    return Metric(name, "gauge", text, (), lambda source: [((), source.gauges()[key])])


def _cluster(name: str, kind: Literal["counter", "gauge"], text: str) -> Metric:
    key = name.removeprefix("flockmq_cluster_").removesuffix("_total")

    def read(source: Source) -> list[Sample]:
        figures = source.cluster()
        return [((), figures[key])] if figures else []

    return Metric(name, kind, text, (), read)


def _durable_counter(name: str, text: str) -> Metric:
    return _durable(name, text, "counter")


def _durable(name: str, text: str, kind: Literal["counter", "gauge"] = "gauge") -> Metric:
    key = name.removeprefix("flockmq_").removesuffix("_total")

    def read(source: Source) -> list[Sample]:
        figures = source.durable()
        return [((), figures[key])] if key in figures else []

    return Metric(name, kind, text, (), read)


def _durable_histogram(name: str, text: str) -> Metric:
    """Its samples: (bound) counts up to that, ``+Inf`` the last, then (``sum``)."""
    key = name.removeprefix("flockmq_")
    before = f"{key}_le_"

    def read(source: Source) -> list[Sample]:
        figures = source.durable()
        found: list[Sample] = [
            ((one.removeprefix(before),), count) for one, count in figures.items() if one.startswith(before)
        ]
        return [*found, (("sum",), figures[f"{key}_sum"])] if found else []

    return Metric(name, "histogram", text, ("le",), read)


def _group(
    name: str,
    text: str,
    value: Callable[[GroupFigures, int], Number],
) -> Metric:
    """Of each consumer group; ``value`` gets the wall time as well."""

    def read(source: Source) -> list[Sample]:
        now_ms = source.wall_ms()
        return [((one.namespace, one.name), value(one, now_ms)) for one in source.group_figures()]

    return Metric(name, "gauge", text, ("namespace", "group"), read, names_things=True)


def _members(source: Source) -> list[Sample]:
    figures = source.cluster()
    return [((state,), figures[f"members_{state}"]) for state in MEMBER_STATES] if figures else []


def _logged(source: Source) -> list[Sample]:
    figures = source.durable()
    known = [state for state in LOGGED_STATES if f"sessions_logged_{state}" in figures]
    return [((state,), figures[f"sessions_logged_{state}"]) for state in known]


def _process_cpu(_source: Source) -> list[Sample]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return [((), usage.ru_utime + usage.ru_stime)]


def _process_memory(_source: Source) -> list[Sample]:
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return []  # not Linux
    return [((), pages * resource.getpagesize())]


METRICS: Final = (
    Metric(
        "flockmq_build_info",
        "gauge",
        "Always 1; the labels say which node and software this is",
        ("node", "version", "build"),
        lambda source: [(tuple(source.labels()[name] for name in ("node", "version", "build")), 1)],
    ),
    _gauge("flockmq_uptime_seconds", "Time since the node started"),
    _gauge("flockmq_ready", "1 while listeners take clients, 0 while the node starts or stops"),
    Metric(
        "flockmq_able",
        "gauge",
        "1 for what this node can do now, of clients, cluster, durable and sessions; `/health/ready` says why not",
        ("what",),
        lambda source: [((name,), int(is_able)) for name, is_able in source.abilities().items()],
    ),
    _gauge("flockmq_problems", "What does not work as it should while clients are served; `/health/ready` names it"),
    _gauge("flockmq_event_loop_lag_seconds", "How late the event loop was at the last look"),
    _gauge("flockmq_event_loop_lag_max_seconds", "How late the event loop was at most in about the last minute"),
    _gauge("flockmq_connections", "Network connections, those still before CONNECT included"),
    _gauge("flockmq_strangers", "Network connections that are not let in yet"),
    _gauge("flockmq_strangers_bytes", "Bytes held for connections that are not let in yet"),
    _gauge("flockmq_clients", "Clients that are connected"),
    Metric(
        "flockmq_listener_connections",
        "gauge",
        "Network connections by listener",
        ("listener", "protocol"),
        lambda source: [((name, protocol), count) for name, protocol, count in source.listeners()],
    ),
    _gauge("flockmq_sessions", "Sessions, connected or not"),
    _gauge("flockmq_subscriptions", "Subscriptions, shared ones included"),
    _gauge("flockmq_shared_subscriptions", "Shared subscriptions, each member counted"),
    _gauge("flockmq_retained_messages", "Retained messages, without those under $SYS"),
    _gauge("flockmq_retained_bytes", "Memory taken by retained messages, about"),
    _gauge("flockmq_retained_unsaved", "Topics whose retained message changed and waits to be written to disk"),
    _gauge("flockmq_delayed_messages", "Messages under $delayed that wait for their time"),
    _gauge("flockmq_delayed_bytes", "Size of the messages that wait for their time"),
    _gauge("flockmq_bans", "Bans, those that ran out and are not yet forgotten included"),
    Metric("flockmq_cluster_members", "gauge", "Nodes as this one sees them, by state", ("state",), _members),
    _cluster("flockmq_cluster_links", "gauge", "Nodes that this one has a link with"),
    _cluster("flockmq_cluster_kept_bytes", "gauge", "Messages that other nodes have not acknowledged, in bytes"),
    _cluster("flockmq_cluster_subacks_waiting", "gauge", "SUBACKs that wait until all nodes know the route"),
    _cluster("flockmq_cluster_health", "gauge", "0: this node hears others well; higher: it is slow or overloaded"),
    _cluster("flockmq_cluster_messages_out_total", "counter", "Messages sent to other nodes"),
    _cluster("flockmq_cluster_messages_in_total", "counter", "Messages taken from other nodes"),
    _cluster(
        "flockmq_cluster_dropped_qos0_total", "counter", "QoS 0 messages for other nodes, dropped: no link or room"
    ),
    _cluster("flockmq_cluster_dropped_kept_total", "counter", "QoS 1 and 2 messages for other nodes, dropped: no room"),
    _cluster("flockmq_cluster_given_up_total", "counter", "Runs of messages that were for a node which died"),
    _cluster("flockmq_cluster_resent_total", "counter", "Batches sent again after a link broke"),
    _cluster("flockmq_cluster_sessions_in_total", "counter", "Sessions that came from other nodes"),
    _cluster("flockmq_cluster_sessions_out_total", "counter", "Sessions that went to other nodes"),
    _cluster("flockmq_cluster_datagrams_in_total", "counter", "Datagrams of other nodes"),
    _cluster("flockmq_cluster_datagrams_out_total", "counter", "Datagrams to other nodes"),
    _durable("flockmq_cluster_state_index", "Index of cluster state as this node knows it"),
    _durable("flockmq_cluster_state_leader", "1 on the node that leads group 0 and so decides about cluster state"),
    _durable("flockmq_topics", "Durable topics of the cluster, without hidden ones"),
    _durable("flockmq_partitions", "Partitions of the cluster, also those of hidden topics"),
    _durable("flockmq_partitions_led", "Partitions that this node leads"),
    _durable("flockmq_partition_replicas", "Partitions that this node holds a replica of"),
    _durable("flockmq_partition_replicas_unhealthy", "Replicas here that know no leader or can not go on"),
    _durable(
        "flockmq_replicas_stopped",
        "Replicas here, that of group 0 among them, which stopped for damage, a failed disk or a broken rule of Raft",
    ),
    _durable("flockmq_partitions_moving", "Partitions whose replicas are on their way to other nodes"),
    _durable(
        "flockmq_log_damaged_batches", "Batches in segment files here that can't be read and are not repaired yet"
    ),
    _durable_counter(
        "flockmq_log_damaged_batches_found_total", "Damaged batches that were found in segment files here"
    ),
    _durable_counter("flockmq_log_repaired_batches_total", "Damaged batches that were fetched and written back"),
    _durable_counter("flockmq_log_scrubbed_bytes_total", "Bytes of segment files that were read to verify them"),
    _durable("flockmq_log_differing_blocks", "Blocks of entries that another replica has otherwise; must be 0"),
    _durable("flockmq_sink_staged_bytes", "What sinks have staged in partitions led here and not committed, in bytes"),
    _durable("flockmq_sink_commits", "Batches of sinks that are being committed in partitions led here"),
    Metric(
        "flockmq_sessions_logged",
        "gauge",
        "Persistent sessions of the shards of `$sessions` that this node leads: `connected`, or `away`: no client",
        ("state",),
        _logged,
    ),
    _durable("flockmq_capture_filters", "Filters of persistent sessions that this node knows, of the whole cluster"),
    _durable(
        "flockmq_capture_lease",
        "1: this node knows the filters of all persistent sessions; 0: it may not, and captures every QoS 1 and 2 "
        "message",
    ),
    _durable("flockmq_capture_leases", "Shards of `$sessions` that have granted this node a lease which holds, of 4"),
    _durable("flockmq_capture_bytes", "Captured messages on this node, for persistent sessions, in bytes"),
    _durable_counter(
        "flockmq_session_gap_records_total",
        "Records that sessions here were to read from logs and that were gone by then; see the event `durable_gap`",
    ),
    _durable_counter("flockmq_session_claims_total", "CONNECTs whose sessions were claimed in the log"),
    _durable_histogram(
        "flockmq_session_claim_seconds", "How long CONNECTs waited until their sessions were claimed in the log"
    ),
    _counter(
        "flockmq_captured_messages_total",
        "QoS 1 and 2 messages that were copied into the log of persistent sessions",
        "captured",
    ),
    _counter(
        "flockmq_capture_refused_messages_total",
        "Messages beyond the bytes a second that their namespace may have stored for persistent sessions",
        "capture_refused",
    ),
    Metric(
        "flockmq_committed_records",
        "gauge",
        "End of what is committed, summed over the partitions that this node leads, without those of hidden topics",
        (),
        lambda source: [((), source.committed_records())] if source.durable() else [],
    ),
    Metric(
        "flockmq_topic_committed_offset",
        "gauge",
        "End of what is committed, over the partitions of a topic that this node leads; for the first 200 topics. Only "
        "for a scraper with a token",
        ("namespace", "topic"),
        lambda source: [((namespace, name), end) for namespace, name, end in source.topic_ends()],
        names_things=True,
    ),
    *(_group(*one) for one in GROUP_METRICS),
    _counters(
        "flockmq_durable_messages_total",
        "Messages to durable topics by outcome: `received`, then `stored`, `refused` (certainly not in the log) or "
        "`unknown`",
        "outcome",
        {
            "received": "durable_in",
            "stored": "durable_stored",
            "refused": "durable_refused",
            "unknown": "durable_unknown",
        },
    ),
    _counter("flockmq_connections_opened_total", "Network connections opened", "connections_opened"),
    _counter("flockmq_connections_closed_total", "Network connections closed", "connections_closed"),
    _counters(
        "flockmq_connects_total",
        "CONNECT packets by outcome",
        "outcome",
        {"accepted": "connects_accepted", "refused": "connects_refused"},
    ),
    _counter(
        "flockmq_authentication_failures_total",
        "CONNECT and AUTH exchanges refused for what the client brought to prove itself",
        "authentication_failures",
    ),
    _counter("flockmq_takeovers_total", "Connections closed by a newer one of the same client id", "takeovers"),
    _counter("flockmq_protocol_errors_total", "Connections closed because the client broke MQTT", "protocol_errors"),
    _counters(
        "flockmq_timeouts_total",
        "Connections closed because the client was silent too long",
        "reason",
        {"keep_alive": "keep_alive_timeouts", "connect": "connect_timeouts", "packet": "packet_timeouts"},
    ),
    _counter(
        "flockmq_strangers_closed_total",
        "Connections closed because too many waited to be let in, or held too many bytes",
        "strangers_closed",
    ),
    _counter("flockmq_received_bytes_total", "Bytes received from clients", "bytes_in"),
    _counter("flockmq_sent_bytes_total", "Bytes sent to clients", "bytes_out"),
    _counters(
        "flockmq_messages_received_total",
        "PUBLISH packets received, by QoS",
        "qos",
        {"0": "publishes_in_qos0", "1": "publishes_in_qos1", "2": "publishes_in_qos2"},
    ),
    _counters(
        "flockmq_messages_sent_total",
        "PUBLISH packets sent, by QoS",
        "qos",
        {"0": "publishes_out_qos0", "1": "publishes_out_qos1", "2": "publishes_out_qos2"},
    ),
    _counters(
        "flockmq_messages_dropped_total",
        "Messages that did not reach a subscriber: `slow_client` QoS 0 to a client that reads too slowly or takes no "
        "packet so large; `queue` QoS 1 and 2 for a session whose queue is full, or expired there",
        "reason",
        {"slow_client": "dropped_slow", "queue": "dropped_queue"},
    ),
    _counter("flockmq_messages_unmatched_total", "Messages that no subscription wanted", "publishes_unmatched"),
    _counter("flockmq_messages_denied_total", "Messages refused by the ACL", "publishes_denied"),
    _counter(
        "flockmq_retained_refused_total", "Retained messages refused because a limit was reached", "retained_refused"
    ),
    _counter("flockmq_wills_published_total", "Wills published", "wills_published"),
    _counters(
        "flockmq_delayed_total",
        "Messages under $delayed by what happened to them",
        "event",
        {"accepted": "delayed_accepted", "published": "delayed_published"},
    ),
    _counter(
        "flockmq_sessions_expired_total", "Sessions that ended because their client stayed away", "sessions_expired"
    ),
    _counter("flockmq_subscribes_total", "Filters subscribed", "subscribes"),
    _counter("flockmq_unsubscribes_total", "Filters unsubscribed", "unsubscribes"),
    Metric(
        "flockmq_admin_token_failures_total",
        "counter",
        "Requests to the admin API with a wrong token",
        (),
        lambda source: [((), source.gauges()["admin_token_failures_total"])],
    ),
    Metric("process_cpu_seconds_total", "counter", "CPU time of the process", (), _process_cpu),
    Metric("process_resident_memory_bytes", "gauge", "Memory of the process (Linux)", (), _process_memory),
)
"""All families, in the order in which they are scraped and documented."""


class BrokerCollector(Collector):
    """Gives ``METRICS`` to prometheus_client."""

    def __init__(self, source: Source, with_names: bool) -> None:
        self._source = source
        self._metrics = [metric for metric in METRICS if with_names or not metric.names_things]

    def collect(self) -> Iterator[PrometheusMetric]:
        """Read everything now."""
        for metric in self._metrics:
            yield metric.family(self._source)


class Exposition:
    """The scrape: text in the format that the scraper prefers, and its content type."""

    def __init__(self, source: Source) -> None:
        self._sums = CollectorRegistry(auto_describe=False)
        self._sums.register(BrokerCollector(source, False))
        self._all = CollectorRegistry(auto_describe=False)
        self._all.register(BrokerCollector(source, True))

    def text(self, accept: str, *, with_names: bool = False) -> tuple[bytes, str]:
        """All metrics now; ``with_names``: also those whose labels are names of topics and namespaces."""
        encode, content_type = choose_encoder(accept)
        return encode(self._all if with_names else self._sums), content_type


def flat(source: Source, kind: Literal["counter", "gauge"]) -> dict[str, Number]:
    """The same numbers by name, for the REST API: ``messages_sent_total{qos="1"}`` is ``messages_sent_qos1``."""
    numbers: dict[str, Number] = {}
    for metric in METRICS:
        name = metric.name.removeprefix("flockmq_").removesuffix("_total")
        if metric.kind == "histogram" and kind == "counter":
            for (bound,), value in metric.read(source)[-2:]:
                numbers[f"{name}_sum" if bound == "sum" else f"{name}_count"] = value
        if metric.kind != kind or metric.name in _NOT_NUMBERS:
            continue
        for labels, value in metric.read(source):
            pairs = zip(metric.labels, labels, strict=True)
            numbers[name + "".join(f"_qos{text}" if label == "qos" else f"_{text}" for label, text in pairs)] = value
    return numbers


_NOT_NUMBERS: Final = frozenset(
    {"flockmq_build_info", "flockmq_listener_connections", "flockmq_topic_committed_offset"}
)
