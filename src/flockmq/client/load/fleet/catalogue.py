"""The devices of a plant, as they follow from a number: where they stand, what they speak, what they measure.

``plant/berlin/line3/press7/temperature``: site, line and machine name the device, the last level what it says.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

SITES: Final = ("berlin", "lyon", "osaka", "austin")
MACHINES: Final = ("press", "robot", "oven", "pump", "mixer")
LINES: Final = 5
CONTROL_TOPIC: Final = "control/responses"


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity: how it is sent and how it moves."""

    name: str
    unit: str
    qos: int
    start: float
    step: float


METRICS: Final = (
    Metric("temperature", "celsius", 0, 68.0, 0.4),
    Metric("vibration", "mm/s", 1, 2.1, 0.15),
    Metric("pieces", "count", 2, 0.0, 1.0),
)
"""One for each quality of service: a reading that may be lost, one that may not, and one that is counted."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One device."""

    index: int
    path: str
    version: int
    """MQTT protocol level."""
    pace: float
    """How often it measures, compared with the average."""

    @property
    def client_id(self) -> str:
        """Its name at the broker."""
        return self.path.replace("/", "-")

    def topic(self, last: str) -> str:
        """A topic of this device."""
        return f"{self.path}/{last}"


def machine(index: int, rng: random.Random) -> Machine:
    """The ``index``-th device; every third one is an older one that speaks MQTT 3.1.1."""
    site = SITES[index % len(SITES)]
    line = index // len(SITES) % LINES + 1
    kind = MACHINES[index % len(MACHINES)]
    path = f"plant/{site}/line{line}/{kind}{index // (len(SITES) * LINES) + 1}"
    return Machine(index, path, 4 if index % 3 == 0 else 5, rng.uniform(0.3, 1.7))


def next_value(metric: Metric, value: float, rng: random.Random) -> float:
    """Where a quantity moves: counts grow, all others wander and are drawn back to where they started."""
    if metric.name == "pieces":
        return value + metric.step
    return round(value + rng.gauss(0.0, metric.step) + 0.1 * (metric.start - value), 3)
