from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.client.load.histogram import Histogram, bucket_of, upper_edge

values = st.lists(st.integers(0, 10**10), min_size=1, max_size=200)


@given(values, st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_two_percent_of_the_sorted_list(numbers: list[int], share: float) -> None:
    histogram = Histogram()
    histogram.record(numbers)
    ranked = sorted(numbers)
    exact = ranked[max(0, -int(-share * len(ranked) // 1) - 1)]
    assert exact <= histogram.quantile(share) <= exact * 1.02 + 1


@given(values, values)
def test_two_histograms_add_up_to_one(left: list[int], right: list[int]) -> None:
    both, one, other = Histogram(), Histogram(), Histogram()
    both.record(left + right)
    one.record(left)
    other.record(right)
    one.add(Histogram(other.counts, other.highest))
    assert (one.counts, one.total, one.highest) == (both.counts, both.total, both.highest)


@given(st.integers(0, 10**15))
def test_a_value_lies_in_its_bucket(value: int) -> None:
    bucket = bucket_of(value)
    assert value <= upper_edge(bucket)
    assert bucket_of(upper_edge(bucket)) == bucket
    assert bucket_of(upper_edge(bucket) + 1) > bucket


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) == 0


def test_a_clock_that_stepped_back_counts_as_nothing() -> None:
    histogram = Histogram()
    histogram.record([-5])
    assert (histogram.total, histogram.quantile(1.0)) == (1, 0)
