"""The table of durable topics: figures, verdicts, and loads that reach every shard."""

from __future__ import annotations

import pytest
from benchmarks.durable.__main__ import text, verdict
from benchmarks.durable.cases import FLOCKMQ, LINES, MANY_NAMES, MANY_TOPICS
from benchmarks.durable.flockmq import SHARDS, even_prefix, share_names

from flockmq.client.load.plan import Load, topic_name
from flockmq.errors import FlockError
from flockmq.routing.durable import shard_of


@pytest.mark.parametrize(
    ("name", "figures", "met"),
    [
        ("publish", {"rate": 150_000.0}, True),
        ("publish", {"rate": 149_999.0}, False),
        ("end-to-end", {"deliver_rate": 100_000.0, "lost": 0.0}, True),
        ("end-to-end", {"deliver_rate": 100_000.0, "lost": 1.0}, False),
        ("single", {"p50_ms": 2.0, "p99_ms": 9.0}, True),
        ("thin", {"rate": 1.0}, None),
        ("idle", {"core_percent": 10.0}, False),
    ],
)
def test_verdicts(name: str, figures: dict[str, float], met: bool | None) -> None:
    line = next(line for line in LINES if line.name == name)
    assert verdict(line, {name: {FLOCKMQ: figures}}) is met
    assert verdict(line, {}) is None


def test_figures_with_their_units() -> None:
    assert text("single", {"p50_ms": 1.234, "p99_ms": 5.0}) == "1.23 / 5.00 ms"
    assert text("end-to-end", {"rate": 9.0, "deliver_rate": 1_000.0, "lost": 2.0}) == "1,000/s\n(2 lost)"
    assert text("create", {"seconds": 12.34}) == "12.3 s"
    assert text("idle", None) == "-"


def test_names_fall_on_all_shards_evenly() -> None:
    load = Load(topics=10, prefix=even_prefix(10, SHARDS))
    shards = [shard_of(topic_name(load, number).encode(), SHARDS) for number in range(10)]
    assert sorted(shards.count(shard) for shard in range(SHARDS)) == [1, 1, 2, 2, 2, 2]


def test_every_shard_of_every_topic_has_a_name() -> None:
    load = Load(publishers=10, topics=MANY_NAMES, prefix="many")
    filters = share_names(load, MANY_TOPICS, SHARDS)
    assert all({shard_of(name.encode(), SHARDS) for name in names} == set(range(SHARDS)) for names in filters)
    assert len({name for names in filters for name in names}) == MANY_NAMES
    with pytest.raises(FlockError, match="don't reach"):
        share_names(Load(publishers=10, topics=60, prefix="many"), MANY_TOPICS, SHARDS)
