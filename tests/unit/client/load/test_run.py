"""When a run is over: the judge, with time given by hand."""

from __future__ import annotations

from flockmq.client.load.engine import Progress
from flockmq.client.load.histogram import Histogram
from flockmq.client.load.outcome import conclude
from flockmq.client.load.plan import Load
from flockmq.client.load.run import Judge

SECOND = 1_000_000_000


def progress(sent: int, received: int, completed: int = 0, *, all_sent: bool = True, publisher: int = 0) -> Progress:
    return Progress(
        sent={publisher: sent},
        received=received,
        completed=completed,
        all_sent=all_sent,
        started_ns=SECOND,
        moved_ns=2 * SECOND,
        arrived_ns=SECOND + 1,
        acknowledged_ns=2 * SECOND if all_sent else 0,
        cpu_s=0.5,
    )


def test_publishing_by_time_stops_when_it_is_up() -> None:
    judge = Judge(Load(seconds=5))
    assert not judge.stop_due(0, 5 * SECOND - 1)
    assert judge.stop_due(0, 5 * SECOND)
    assert not Judge(Load(messages=10)).stop_due(0, 100 * SECOND)


def test_a_run_is_over_when_everything_arrived() -> None:
    judge = Judge(Load(messages=10))
    assert not judge.over([progress(10, 9)], 2 * SECOND)
    assert judge.over([progress(10, 10)], 2 * SECOND)


def test_above_qos_0_the_acknowledgements_must_have_come_too() -> None:
    judge = Judge(Load(messages=10, qos=1))
    assert not judge.over([progress(10, 10, 9)], 2 * SECOND)
    assert judge.over([progress(10, 10, 10)], 2 * SECOND)


def test_bytes_that_are_not_written_keep_it_going() -> None:
    assert not Judge(Load(messages=10)).over([progress(10, 10, all_sent=False)], 2 * SECOND)


def test_silence_ends_it_and_movement_does_not() -> None:
    judge = Judge(Load(messages=10, idle_s=3))
    assert not judge.over([progress(10, 5)], 2 * SECOND)
    assert not judge.over([progress(10, 6)], 6 * SECOND)
    assert not judge.over([progress(10, 6)], 8 * SECOND)
    assert judge.over([progress(10, 6)], 10 * SECOND)


def test_who_only_listens_ends_by_time_or_by_count() -> None:
    by_time = Judge(Load(publishers=0, seconds=4))
    assert not by_time.over([progress(0, 7)], 4 * SECOND)
    assert by_time.over([progress(0, 7)], 5 * SECOND)
    by_count = Judge(Load(publishers=0, messages=8))
    assert not by_count.over([progress(0, 7)], 100 * SECOND)
    assert by_count.over([progress(0, 8)], 5 * SECOND)


def test_shares_of_several_processes_add_up() -> None:
    load = Load(publishers=2, subscribers=1, messages=10)
    shares = [progress(10, 15), progress(10, 0, publisher=1)]
    outcome = conclude(load, shares, Histogram({5: 2}, 5), broker_cpu_s=2.0)
    assert (outcome.sent, outcome.received, outcome.expected, outcome.lost) == (20, 15, 20, 5)
    assert (outcome.elapsed_s, outcome.deliver_rate, outcome.publish_rate) == (1.0, 15.0, 20.0)
    assert (outcome.client_busy, outcome.messages_per_cpu_s) == (0.5, 17.5)
    assert outcome.latency_us_max == 0.005
    assert outcome.as_json()["lost"] == 5
