"""The stateful part of ``anomalies``: what is usual for each device and metric, kept in Spark's state store.

```
 a micro-batch of one device and metric --> get baseline --> judge each value, in order of time --> put baseline
                                                                 `--> alerts
```
Spark calls this in its Python workers, once for each group; the state is in RocksDB beside them and in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from flockmq.spark.pipelines.baseline import Baseline, Rule, judge

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ValueState

ALERT: Final = "device string, metric string, value double, expected double, score double, time timestamp"
_BASELINE: Final = "values bigint, mean double, variance double"
_COLUMNS: Final = ("device", "metric", "value", "expected", "score", "time")


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
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803 (Spark's name)
    ) -> Iterator[pd.DataFrame]:
        """The alerts of one group in one micro-batch."""
        assert self._known is not None
        found = self._known.get()
        known = Baseline(*found) if found is not None else Baseline()
        frames = list(rows)
        frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
        order = frame["time"].to_numpy().argsort(kind="stable")
        alerts = []
        # One after the other: what is usual depends on all values before.
        for place, value in zip(order, frame["value"].to_numpy()[order].tolist(), strict=True):
            known, verdict = judge(known, value, self._rule)
            if verdict.is_strange:
                alerts.append((*key, value, verdict.expected, verdict.score, frame["time"].iloc[place]))
        self._known.update(tuple(known))
        if alerts:
            yield pd.DataFrame(alerts, columns=list(_COLUMNS))

    def close(self) -> None:
        """Nothing is held."""
