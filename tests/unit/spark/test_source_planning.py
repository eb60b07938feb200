"""Which task reads what, how much a micro-batch takes, and what words and moments mean in offsets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, IsNull, LessThan, Not

from flockmq.admin.durable_model import Head
from flockmq.errors import FlockError
from flockmq.spark.options import Bound
from flockmq.spark.planning import TASK_RECORDS_MAX, Range, from_json, limit, plan, ranges_between, resolve, to_json
from flockmq.spark.pushdown import Span, Wanted

offsets = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.dictionaries(st.integers(0, 12), st.integers(0, 10_000_000), max_size=5)
)


def reach(**topics: list[tuple[int, int]]) -> dict[str, list[Head]]:
    return {
        topic: [
            Head(shard=shard, group=9, first_offset=first, end_offset=end) for shard, (first, end) in enumerate(one)
        ]
        for topic, one in topics.items()
    }


# --- offsets ----------------------------------------------------------------------------------------------------------


@given(offsets)
def test_offsets_come_back_from_json_and_are_always_the_same_text(found: dict[str, dict[int, int]]) -> None:
    import json

    tree = to_json(found)
    assert from_json(json.loads(json.dumps(tree))) == found
    again = {topic: dict(reversed(shards.items())) for topic, shards in reversed(found.items())}
    assert json.dumps(to_json(again)) == json.dumps(tree)


def test_a_checkpoint_of_another_source_is_refused() -> None:
    with pytest.raises(FlockError, match="another source"):
        from_json({"index": 5})  # type: ignore[dict-item]


def test_words_and_numbers() -> None:
    logs = reach(plant=[(5, 20), (0, 9)])
    assert resolve(Bound(word="earliest"), logs, never) == {"plant": {0: 5, 1: 0}}
    assert resolve(Bound(word="latest"), logs, never) == {"plant": {0: 20, 1: 9}}
    given = Bound(word="latest", offsets={"plant": {0: -2, 1: 7}})
    assert resolve(given, logs, never) == {"plant": {0: 5, 1: 7}}


def never(topic: str, time_ms: int) -> list[int]:
    raise AssertionError((topic, time_ms))


def test_moments() -> None:
    logs = reach(plant=[(0, 20), (0, 9)])
    times = {100: [7, 9], 200: [12, 9]}
    one = Bound(word="latest", time_ms=100)
    assert resolve(one, logs, lambda _, at: times[at], strategy="latest") == {"plant": {0: 7, 1: 9}}
    with pytest.raises(FlockError, match="Shard 1 of topic 'plant' has no record"):
        resolve(one, logs, lambda _, at: times[at], strategy="error")
    each = Bound(word="latest", times_ms={"plant": {0: 200, 1: 100}})
    assert resolve(each, logs, lambda _, at: times[at], strategy="latest") == {"plant": {0: 12, 1: 9}}


@pytest.mark.parametrize("given", [{"plant": {0: 1}}, {"plant": {0: 1, 1: 1, 2: 1}}, {"office": {0: 1}}])
def test_all_shards_must_be_named_and_no_others(given: dict[str, dict[int, int]]) -> None:
    with pytest.raises(FlockError, match="for each shard"):
        resolve(Bound(word="latest", offsets=given), reach(plant=[(0, 5), (0, 5)]), never)


# --- tasks ------------------------------------------------------------------------------------------------------------


@example({}, {"a": {0: 4}}, 3, None, None)
@given(offsets, offsets, st.integers(0, 40), st.none() | st.integers(1_000, 9_000_000), st.none() | st.integers(40, 60))
def test_tasks_have_each_record_once(
    start: dict[str, dict[int, int]],
    end: dict[str, dict[int, int]],
    tasks_min: int,
    task_records_max: int | None,
    tasks_max: int | None,
) -> None:
    if task_records_max is not None and task_records_max < 100_000:
        tasks_max = 60
    ranges = ranges_between(start, end)
    tasks = plan(ranges, tasks_min=tasks_min, task_records_max=task_records_max, tasks_max=tasks_max)
    read = sorted(piece for task in tasks for piece in task.ranges)
    joined: list[Range] = []
    for piece in read:
        assert piece.records > 0
        if joined and joined[-1].topic == piece.topic and joined[-1].shard == piece.shard:
            assert joined[-1].end == piece.start
            joined[-1] = Range(piece.topic, piece.shard, joined[-1].start, piece.end)
        else:
            joined.append(piece)
    assert joined == sorted(ranges)
    if tasks_max is not None:
        assert len(tasks) <= tasks_max
    elif task_records_max is not None:
        assert all(sum(piece.records for piece in task.ranges) <= task_records_max for task in tasks)
    total = sum(one.records for one in ranges)
    assert len(tasks) >= min(tasks_min, total, tasks_max or total)


def test_a_little_is_one_task() -> None:
    tasks = plan([Range("plant", shard, 0, 3) for shard in range(8)])
    assert [len(task.ranges) for task in tasks] == [8]


def test_shards_with_much_have_a_task_each() -> None:
    assert len(plan([Range("plant", shard, 0, 600_000) for shard in range(8)])) == 8


def test_a_very_long_range_is_split() -> None:
    assert len(plan([Range("plant", 0, 0, 3 * TASK_RECORDS_MAX)])) == 3


def test_nothing_to_read_is_no_task() -> None:
    assert plan([]) == []
    assert ranges_between({"a": {0: 5}}, {"a": {0: 5}}) == []


def test_less_than_before_is_nothing_to_read() -> None:
    assert ranges_between({"a": {0: 5}}, {"a": {0: 0}}) == []


# --- limits -----------------------------------------------------------------------------------------------------------


@given(offsets, offsets, st.integers(1, 1_000_000))
def test_a_limit_is_kept_and_something_always_goes_on(
    start: dict[str, dict[int, int]], ahead: dict[str, dict[int, int]], records_max: int
) -> None:
    latest = {
        topic: {shard: start.get(topic, {}).get(shard, 0) + more for shard, more in shards.items()}
        for topic, shards in ahead.items()
    }
    found = limit(start, latest, records_max=records_max)
    taken = sum(one.records for one in ranges_between(start, found))
    total = sum(one.records for one in ranges_between(start, latest))
    assert taken <= records_max
    assert taken == total if total <= records_max else taken > 0
    assert {topic: set(shards) for topic, shards in found.items()} == {t: set(s) for t, s in latest.items()}


def test_bytes_are_counted_by_the_average_record() -> None:
    latest = {"small": {0: 1000}, "large": {0: 1000}}
    found = limit({}, latest, bytes_max=55_000, record_bytes={"small": 10.0, "large": 100.0})
    assert found == {"small": {0: 500}, "large": {0: 500}}


def test_shards_that_are_far_behind_get_more() -> None:
    found = limit({"a": {0: 0, 1: 0}}, {"a": {0: 900, 1: 100}}, records_max=100)
    assert found == {"a": {0: 90, 1: 10}}


# --- predicates -------------------------------------------------------------------------------------------------------

RANGES = [Range("plant", 0, 0, 100), Range("plant", 1, 0, 100), Range("office", 0, 0, 100)]


def cut(*filters: Filter) -> list[Range]:
    return Wanted().narrowed(filters).cut(RANGES, lambda _, at: [at - 1000, at - 1000])


def test_predicates_cut_ranges() -> None:
    assert cut(EqualTo(("offset",), 7), EqualTo(("topic",), "plant")) == [Range("plant", n, 7, 8) for n in (0, 1)]
    assert cut(GreaterThan(("offset",), 7), LessThan(("offset",), 9), EqualTo(("partition",), 1)) == [
        Range("plant", 1, 8, 9)
    ]
    assert cut(In(("offset",), (90, 50)), In(("topic",), ("office", "attic"))) == [Range("office", 0, 50, 91)]
    moment = datetime.fromtimestamp(1.05, UTC)
    assert cut(GreaterThanOrEqual(("timestamp",), moment), EqualTo(("topic",), "office")) == [
        Range("office", 0, 50, 100)
    ]


def test_predicates_that_nothing_can_be_true_of() -> None:
    assert cut(EqualTo(("topic",), "plant"), EqualTo(("topic",), "office")) == []
    assert cut(LessThan(("offset",), 0)) == []


def test_what_is_not_understood_cuts_nothing() -> None:
    assert cut(IsNull(("key",)), Not(EqualTo(("offset",), 7)), EqualTo(("payload", "x"), 1)) == RANGES
    assert cut(EqualTo(("offset",), "7"), EqualTo(("partition",), None)) == RANGES


def test_names_for_the_nodes() -> None:
    assert Wanted().few_names() == ()
    wanted = Wanted().narrowed([In(("mqtt_topic",), ("b", "a", None))])
    assert wanted.few_names() == ("a", "b")
    assert Wanted().narrowed([In(("mqtt_topic",), tuple(map(str, range(100))))]).few_names() == ()


def test_spans_only_get_smaller() -> None:
    assert Span(1, None).within(0, 5).within(3, 9) == Span(3, 5)
