"""What a run came to: one flat value that prints as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from flockmq.client.load.engine import Progress
from flockmq.client.load.histogram import Histogram
from flockmq.client.load.plan import Load, expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of one run. Rates are messages a second; ``None`` means not measured."""

    sent: int
    received: int
    expected: int
    duplicates: int
    refused: int
    elapsed_s: float
    publish_rate: float
    deliver_rate: float
    latency_us_p50: float | None = None
    latency_us_p99: float | None = None
    latency_us_p999: float | None = None
    latency_us_max: float | None = None
    client_busy: float
    """Share of the run in which the busiest generator process computed; near 1 it may itself be the limit."""
    broker_cpu_s: float | None = None
    messages_per_cpu_s: float | None = None
    broker_memory_kb: float | None = None

    @property
    def lost(self) -> int:
        """Messages that subscribers should have received and did not."""
        return max(0, self.expected - self.received)

    def as_json(self) -> dict[str, object]:
        """All figures for programs."""
        return {**asdict(self), "lost": self.lost}


def conclude(
    load: Load,
    shares: Sequence[Progress],
    latency: Histogram,
    *,
    broker_cpu_s: float | None = None,
    broker_memory_kb: float | None = None,
) -> Outcome:
    """Add up what all processes measured."""
    sent_by: dict[int, int] = {}
    for share in shares:
        sent_by.update(share.sent)
    sent = sum(sent_by.values())
    received = sum(share.received for share in shares)
    started = min(share.started_ns for share in shares)
    if not load.publishers:  # a pure listener knows only when the first message came
        started = min((share.arrived_ns for share in shares if share.arrived_ns), default=started)
    moved = max(max(share.moved_ns, share.acknowledged_ns) for share in shares)
    published = max(share.acknowledged_ns or share.moved_ns for share in shares)
    elapsed_s = max(moved - started, 1) / 1e9
    publish_s = max(published - started, 1) / 1e9
    busy = max(share.cpu_s for share in shares) / elapsed_s
    return Outcome(
        sent=sent,
        received=received,
        expected=expected(load, [sent_by.get(index, 0) for index in range(load.publishers)]),
        duplicates=sum(share.duplicates for share in shares),
        refused=sum(share.refused for share in shares),
        elapsed_s=elapsed_s,
        publish_rate=sent / publish_s,
        deliver_rate=received / elapsed_s,
        **_quantiles(latency),
        client_busy=min(1.0, busy),
        broker_cpu_s=broker_cpu_s,
        messages_per_cpu_s=(sent + received) / broker_cpu_s if broker_cpu_s else None,
        broker_memory_kb=broker_memory_kb,
    )


def _quantiles(latency: Histogram) -> dict[str, float]:
    if not latency.total:
        return {}
    names = {"latency_us_p50": 0.5, "latency_us_p99": 0.99, "latency_us_p999": 0.999}
    found = {name: latency.quantile(share) / 1_000 for name, share in names.items()}
    return {**found, "latency_us_max": latency.highest / 1_000}
