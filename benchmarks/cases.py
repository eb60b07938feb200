"""What is measured, and what must come of it. One entry for every line of the speed table.

A *figure* is a number by name that a measurement yields; a *goal* compares a figure of FlockMQ with the same figure
of a peer, with another figure of its own, or with a number. 64-byte payloads throughout, as the goals are stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from flockmq.client.load.plan import Load

FLOCKMQ: Final = "flockmq"
MOSQUITTO: Final = "mosquitto"
NATS: Final = "nats"
BROKERS: Final = (FLOCKMQ, MOSQUITTO, NATS)

Kind = Literal["rate", "latency", "memory", "cost"]
Setup = Literal["plain", "acl", "tls", "ws", "cluster"]


@dataclass(frozen=True, slots=True)
class Goal:
    """FlockMQ's ``figure`` is at least (or at most) ``factor`` times that of ``against``.

    ``against`` is the name of a peer, of another figure of FlockMQ, or empty: then ``factor`` is the limit itself.
    """

    figure: str
    relation: Literal["at least", "at most"]
    factor: float
    against: str = ""

    def __str__(self) -> str:
        sign = ">=" if self.relation == "at least" else "<="
        what = {"p50_us": "p50 ", "p99_us": "p99 "}.get(self.figure, "")
        if not self.against:
            return f"{what}{sign} {self.factor:g} KB" if self.figure == "kb" else f"{what}{sign} {self.factor:g}"
        other = "with 100" if self.against == "few_us" else self.against
        return f"{what}{sign} {self.factor:g}x {other}" if self.factor != 1 else f"{what}{sign} {other}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table."""

    name: str
    title: str
    kind: Kind = "rate"
    load: Load
    setup: Setup = "plain"
    brokers: tuple[str, ...] = (FLOCKMQ, MOSQUITTO)
    goals: tuple[Goal, ...]


def _rate(factor: float, *peers: str) -> tuple[Goal, ...]:
    """At least ``factor`` times mosquitto; at least as much as the other peers."""
    return tuple(Goal("rate", "at least", factor if peer == MOSQUITTO else 1, peer) for peer in peers)


ONE: Final = Load()
TEN: Final = Load(publishers=10, subscribers=10, topics=10)
TEN_QOS_1: Final = Load(publishers=10, subscribers=10, topics=10, qos=1)
AS_FAST: Final = _rate(1, MOSQUITTO)


def _variants() -> list[Case]:
    """Everything that must be at least as fast as mosquitto, both one to one and with acknowledgements."""
    five: dict[str, int] = {"version": 5, "user_properties": 2}
    ways: list[tuple[str, str, Setup, dict[str, int]]] = [
        ("v5", "MQTT 5 -> 5, 2 user properties", "plain", five),
        ("v5-v4", "MQTT 5 -> 3.1.1, 2 user properties", "plain", {**five, "subscriber_version": 4}),
        ("acl", "with ACL", "acl", {}),
        ("tls", "over TLS", "tls", {}),
        ("ws", "over WebSocket", "ws", {}),
    ]
    found = []
    for name, title, setup, extra in ways:
        for qos, people, words in ((0, 1, "QoS 0, 1 -> 1"), (1, 10, "QoS 1, 10 -> 10")):
            load = Load(publishers=people, subscribers=people, topics=people, qos=qos, **extra)  # type: ignore[arg-type]
            title_ = f"{title}, {words}"
            found.append(Case(name=f"{name}-qos{qos}", title=title_, setup=setup, load=load, goals=AS_FAST))
    return found


def _wildcards(name: str, title: str, *, fresh: bool) -> Case:
    load = Load(subscribers=10, topics=100, subscriptions=100, filter="plus", fresh_names=fresh)
    return Case(
        name=name,
        title=title,
        kind="cost",
        load=load,
        goals=(Goal("many_us", "at most", 2, "few_us"),),
    )


CASES: Final[tuple[Case, ...]] = (
    Case(
        name="qos0-1-1",
        title="QoS 0, 1 publisher -> 1 subscriber",
        load=ONE,
        brokers=BROKERS,
        goals=_rate(10, MOSQUITTO, NATS),
    ),
    Case(
        name="qos0-10-10",
        title="QoS 0, 10 -> 10 on 10 topics",
        load=TEN,
        brokers=BROKERS,
        goals=_rate(10, MOSQUITTO, NATS),
    ),
    Case(
        name="fan-out",
        title="QoS 0, 1 -> 20 fan-out",
        load=Load(subscribers=20),
        brokers=BROKERS,
        goals=_rate(20, MOSQUITTO),
    ),
    Case(
        name="qos1-10-10",
        title="QoS 1, 10 -> 10",
        load=TEN_QOS_1,
        brokers=BROKERS,
        goals=_rate(6, MOSQUITTO),
    ),
    Case(
        name="qos2-10-10",
        title="QoS 2, 10 -> 10",
        load=Load(publishers=10, subscribers=10, topics=10, qos=2),
        goals=_rate(4, MOSQUITTO),
    ),
    *_variants(),
    Case(
        name="cluster-qos0",
        title="3 nodes, every message crosses: QoS 0, 10 -> 10",
        load=TEN,
        setup="cluster",
        brokers=(FLOCKMQ, NATS),
        goals=_rate(1, NATS),
    ),
    Case(
        name="cluster-qos1",
        title="3 nodes, every message crosses: QoS 1, 10 -> 10",
        load=TEN_QOS_1,
        setup="cluster",
        brokers=(FLOCKMQ, NATS),
        goals=_rate(1, NATS),
    ),
    Case(
        name="latency",
        title="QoS 1 latency at 2,000 msg/s, p50 / p99",
        kind="latency",
        load=Load(qos=1, rate=2_000),
        brokers=BROKERS,
        goals=(Goal("p50_us", "at most", 1, MOSQUITTO), Goal("p99_us", "at most", 2, MOSQUITTO)),
    ),
    Case(
        name="memory",
        title="memory per idle connection",
        kind="memory",
        load=ONE,
        brokers=BROKERS,
        goals=(Goal("kb", "at most", 4),),
    ),
    _wildcards("wildcards-known", "100,000 wildcard subscriptions, known names: CPU a publish", fresh=False),
    _wildcards("wildcards-fresh", "100,000 wildcard subscriptions, never-seen names: CPU a publish", fresh=True),
)

MANY_SUBSCRIPTIONS: Final = 100_000
