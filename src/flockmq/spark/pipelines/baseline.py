"""What is usual for one metric of one device, and how far a value is from it.

```
 value --> distance = value - mean --> score = distance / deviation --> |score| over the threshold: an anomaly
              `--> mean and variance move towards the value (exponentially weighted), but a strange value moves
                   them only as far as one that is just not strange would: it can't hide those that follow it
```
A lasting change is learned all the same, within some multiple of 1/weight values. Pure: no Spark, no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a value is strange."""

    threshold: float = 6.0
    """In standard deviations. Lower finds more, and more that is nothing."""
    weight: float = 0.05
    """Of the newest value in mean and variance; 0.05 remembers about the last 40 values."""
    warm_up: int = 30
    """Values of a device and metric that are only learned from."""
    least_deviation: float = 0.001
    """As a part of the mean: a metric that never moves is not strange because its last digit did."""


class Baseline(NamedTuple):
    """Statistics of one metric of a device."""

    values: int = 0
    mean: float = 0.0
    variance: float = 0.0


class Verdict(NamedTuple):
    """The judgement of one value."""

    is_strange: bool
    expected: float
    score: float
    """In standard deviations; above what was expected or, negative, below."""


def judge(known: Baseline, value: float, rule: Rule) -> tuple[Baseline, Verdict]:
    """The verdict about the next value, and what is known after it. A value must be finite."""
    if known.values == 0:
        return Baseline(1, value, 0.0), Verdict(False, value, 0.0)
    distance = value - known.mean
    floor = max(rule.least_deviation * abs(known.mean), 1e-12)
    deviation = max(math.sqrt(known.variance), floor)
    score = distance / deviation
    is_strange = known.values >= rule.warm_up and abs(score) > rule.threshold
    if is_strange:
        distance = math.copysign(rule.threshold * deviation, distance)
    # Early on the weight is that of a plain average: else the first value would count for long.
    weight = max(rule.weight, 1 / (known.values + 1))
    mean = known.mean + weight * distance
    variance = (1 - weight) * (known.variance + weight * distance * distance)
    return Baseline(known.values + 1, mean, variance), Verdict(is_strange, known.mean, score)
