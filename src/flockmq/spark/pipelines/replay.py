"""``replay``: a time range of a topic, or an archived table, back into a topic, as fast as it was or faster.

```
 tape (topic or table) --> slice: what came in the last second of the tape's time
     plan.json: number and marks of the slice, before it is published
     frame of the slice --> sink, query = id of this replay, batch = number of the slice
     `-- killed in between: the same slice again, and shards that have it take it as done
 the tape's time = begin + speed x time that went by; behind it, slices grow until it has caught up
```
So nothing is lost or published twice in a shard, and a replay that was stopped goes on where it was. When it is
through, its plan is removed: the same command plays it again from the beginning.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from flockmq.errors import FlockError
from flockmq.spark.pipelines.folders import Folder, open_folder
from flockmq.spark.pipelines.parameters import Kind, Parameter, Values
from flockmq.spark.pipelines.progress import Tally
from flockmq.spark.pipelines.registry import Pipeline
from flockmq.spark.pipelines.summary import Summary
from flockmq.spark.pipelines.tape import LakeTape, Mark, Tape, TopicTape, clamped, moment_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flockmq.spark.pipelines.run import Job

PLAN: Final = "plan.json"
SLICE_RECORDS: Final = 100_000
"""About how many records are published at once when there is no speed to keep."""
SLICES_MAX: Final = 1_000
"""A table does not tell how many records it has, so it is cut into at most so many slices, each a second or more."""

PARAMETERS: Final = (
    Parameter("topic", Kind.TEXT, None, "Durable topic to replay."),
    Parameter("lake", Kind.PATH, None, "Table to replay instead, as archive wrote it."),
    Parameter("from", Kind.TEXT, None, "First moment: 2026-03-01T12:00:00Z, or 2h for two hours ago; else the oldest."),
    Parameter("until", Kind.TEXT, "now", "Moment to end before."),
    Parameter("speed", Kind.TEXT, "1.0", "1.0 is as fast as it was, 10 ten times that, max as fast as it goes."),
    Parameter("to", Kind.TEXT, None, "Put this and a slash before MQTT topic names; else they stay as they were."),
    Parameter("filter", Kind.TEXT, None, "Only MQTT topic names that match these filters."),
    Parameter("every", Kind.DURATION, "1s", "Time between slices.", minimum=50),
)


@dataclass(slots=True)
class Plan:
    """How far a replay is. Written before a slice is published, so that the slice never changes."""

    id: str
    begin_ms: int
    end_ms: int
    """Of the tape."""
    start: Mark
    """Of the slice that is next, or under way."""
    last: Mark
    """Where the tape ends."""
    end: Mark | None = None
    """Of the slice; None: it is not cut yet."""
    number: int = 0
    at_ms: int = 0
    next_ms: int = 0
    """Where the tape is after the slice."""
    records: int = 0

    def save(self, folder: Folder) -> None:
        """Keep it."""
        folder.replace(PLAN, json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Folder) -> Plan | None:
        """The one that was kept."""
        text = folder.read(PLAN)
        return None if text is None else cls(**json.loads(text))


class Clock:
    """Where the tape should be: ``speed`` times as far as time went by. Speed 0 is as fast as it goes."""

    def __init__(self, speed: float, tape_ms: int, now_s: float) -> None:
        self._speed = speed
        self._tape_ms = tape_ms
        self._begun_s = now_s

    def tape_ms(self, now_s: float, end_ms: int) -> int:
        """The moment of the tape that is now."""
        if not self._speed:
            return end_ms
        return min(end_ms, self._tape_ms + int((now_s - self._begun_s) * 1_000 * self._speed))


def parse_speed(text: str) -> float:
    """0 for ``max``."""
    if text == "max":
        return 0.0
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < 1e9:
        raise FlockError(f"--speed can't be {text!r}: give a number like 1.0 or 10, or max.")
    return speed


def slice_ms_max(span_ms: int, records: int | None) -> int:
    """The longest slice: as long as holds about SLICE_RECORDS records, when they came evenly."""
    if records is None:
        return max(1_000, span_ms // SLICES_MAX)
    return max(1, span_ms * SLICE_RECORDS // max(1, records))


def run(job: Job) -> Summary:
    """See the module."""
    values = job.values
    speed = parse_speed(values.text("speed"))
    folder = open_folder(job.checkpoint(f"replay-{_identity(job, values)}"), job.spark)
    tape = _tape(job, values)
    plan = Plan.load(folder)
    resumed = plan is not None
    if plan is None:
        now_ms = time.time_ns() // 1_000_000
        begin = moment_ms("from", values.text("from"), now_ms) if "from" in values else None
        span = tape.span(begin, moment_ms("until", values.text("until"), now_ms))
        plan = Plan(f"replay-{uuid.uuid4().hex}", *span, at_ms=span.begin_ms)
        plan.save(folder)
    verb = "Going on with" if resumed else "Playing"
    what = _what(values)
    job.say(f"{verb} {what}, {_moment(plan.at_ms)} to {_moment(plan.end_ms)}")
    tally = _play(job, tape, plan, folder, speed)
    is_done = plan.at_ms >= plan.end_ms
    if is_done:
        folder.remove(PLAN)
    summary = Summary(f"Replayed {what}" if is_done else f"Replayed a part of {what}; run it again to go on")
    summary.add("records", plan.records)
    summary.add("slices", plan.number)
    summary.add("tape seconds", (plan.at_ms - plan.begin_ms) / 1_000)
    summary.add("seconds", round(job.elapsed_s, 1))
    summary.add("slice ms (median)", tally.trigger_ms_median)
    summary.add("complete", is_done)
    return summary


def _play(job: Job, tape: Tape, plan: Plan, folder: Folder, speed: float) -> Tally:
    tally = Tally("replay")
    clock = Clock(speed, plan.at_ms, time.monotonic())
    step_ms = slice_ms_max(plan.end_ms - plan.begin_ms, tape.count(plan.start, plan.last))
    every_s = job.values.integer("every") / 1_000
    try:
        while plan.at_ms < plan.end_ms and not job.is_over:
            begun_s = time.monotonic()
            if plan.end is None:
                plan.next_ms = min(clock.tape_ms(begun_s, plan.end_ms), plan.at_ms + step_ms)
                if plan.next_ms <= plan.at_ms:
                    job.stopping.wait(every_s)
                    continue
                is_last = plan.next_ms >= plan.end_ms
                plan.end = plan.last if is_last else clamped(tape.mark(plan.next_ms), plan.start, plan.last)
                plan.save(folder)
            plan.records += _publish(job, tape, plan)
            plan.number, plan.at_ms, plan.start, plan.end = plan.number + 1, plan.next_ms, plan.end, None
            plan.save(folder)
            tally.count(plan.records, plan.number, int((time.monotonic() - begun_s) * 1_000))
            job.display.show([tally])
            behind_ms = clock.tape_ms(time.monotonic(), plan.end_ms) - plan.at_ms
            if speed and behind_ms < step_ms and plan.at_ms < plan.end_ms:
                job.stopping.wait(max(0.0, every_s - (time.monotonic() - begun_s)))
    finally:
        job.display.close()
    return tally


def _publish(job: Job, tape: Tape, plan: Plan) -> int:
    """Publish a slice; how many records it has."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812  (PySpark's usual name)

    assert plan.end is not None
    if tape.count(plan.start, plan.end) == 0:
        return 0
    seen = Observation("slice")
    frame = mapped(tape.frame(plan.start, plan.end), job.values.text("to"))
    options = {**job.write_options(), "query": plan.id, "batch": str(plan.number), "clientId": "replay"}
    writer = frame.observe(seen, F.count(F.lit(1)).alias("records")).write.format("flockmq").options(**options)
    writer.mode("append").save()
    found: dict[str, Any] = seen.get
    return int(found["records"])


def mapped(frame: DataFrame, prefix: str) -> DataFrame:
    """The frame with the prefix before its MQTT topic names."""
    from pyspark.sql import functions as F  # noqa: N812

    if not prefix:
        return frame
    return frame.withColumn("mqtt_topic", F.concat(F.lit(prefix.rstrip("/") + "/"), F.col("mqtt_topic")))


def _tape(job: Job, values: Values) -> Tape:
    if ("topic" in values) == ("lake" in values):
        raise FlockError("Say what to replay: --topic NAME or --lake FOLDER, one of them.")
    if "topic" in values:
        return TopicTape(job, values.text("topic"), values.text("filter"))
    return LakeTape(job, values.text("lake"), values.text("filter"))


def _what(values: Values) -> str:
    return f"topic {values.text('topic')}" if "topic" in values else values.text("lake")


def _identity(job: Job, values: Values) -> str:
    """Which replay this is: the same words to the same cluster go on with what was begun; only the pace may change."""
    words = [values.text(name) for name in ("topic", "lake", "from", "until", "to", "filter")]
    return sha256(json.dumps([*words, job.servers.urls, job.servers.namespace]).encode()).hexdigest()[:12]


def _moment(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment / 1_000))


PIPELINE: Final = Pipeline(
    name="replay",
    summary="A time range of a topic, or an archived table, back into a topic at a chosen speed.",
    parameters=PARAMETERS,
    run=run,
    example="flockmq pipeline run replay --topic factory --from 2h --to again --speed 10",
)
