"""The stateful part of ``anomalies``: what is usual for each device and metric, kept in Spark's state store.

```
 a micro-batch of one device and metric --> get baseline --> judge each value, in order of time --> put baseline
                                                                 `--> alerts
```
Spark calls this in its Python workers, once for each group; the state is in RocksDB beside them and in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from flockmq.spark.pipelines.baseline import Baseline, Rule, judge

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ValueState

ALERT: Final = "device string, metric string, value double, expected double, score double, time timestamp"
_ALERT: Final = Row("device", "metric", "value", "expected", "score", "time")
_BASELINE: Final = "values bigint, mean double, variance double"


class Detector(StatefulProcessor):
    """See the module."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._known: ValueState | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark's word before the first group."""
        self._known = handle.getValueState("baseline", _BASELINE)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: ARG002, N803 (Spark's name)
    ) -> Iterator[Row]:
        """The alerts of one group in one micro-batch."""
        assert self._known is not None
        found = self._known.get()
        known = Baseline(*found) if found is not None else Baseline()
        alerts: list[Row] = []
        # One after the other: what is usual depends on all values before.
        for row in sorted(rows, key=_time_of):
            known, verdict = judge(known, row.value, self._rule)
            if verdict.is_strange:
                alerts.append(_ALERT(*key, row.value, verdict.expected, verdict.score, row.time))
        self._known.update(tuple(known))
        yield from alerts

    def close(self) -> None:
        """Nothing is held."""


def _time_of(row: Row) -> datetime:
    time: datetime = row.time
    return time
