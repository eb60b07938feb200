from __future__ import annotations

from flockmq.gossip.suspicion import Suspicion


def test_confirmations_shorten_the_time_to_the_least() -> None:
    suspicion = Suspicion(1, 2_000, 12_000, 3, now=100)
    times = [suspicion.timeout_ms()]
    for source in (2, 3, 4):
        assert suspicion.confirm(source)
        times.append(suspicion.timeout_ms())
    assert times == [12_000, 7_000, 4_075, 2_000]
    assert suspicion.ends_at() == 2_100


def test_one_source_counts_once_and_more_than_needed_do_not_count() -> None:
    suspicion = Suspicion(1, 2_000, 12_000, 1, now=0)
    assert not suspicion.confirm(1)
    assert suspicion.confirm(2)
    assert not suspicion.confirm(3)
    assert len(suspicion.sources) == 2


def test_where_nobody_can_confirm_the_least_time_counts() -> None:
    assert Suspicion(1, 2_000, 12_000, 0, now=0).timeout_ms() == 2_000
