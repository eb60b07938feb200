"""What all tests share: how long Hypothesis searches, and that Ctrl-C reaches the programs they start.

FLOCKMQ_HYPOTHESIS=long searches 100,000 cases a property (minutes); the default finds the gross mistakes in seconds.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("FLOCKMQ_HYPOTHESIS", "short")

HERE = Path(__file__).parent
SLOW_FIRST = ("spark", "faults", "cluster", "integration", "simulation", "properties")
"""Folders whose tests take seconds or minutes: begun last, one of them would run alone at the end."""

# A shared machine stalls now and then: no deadlines, and slow generation is no failure.
settings.register_profile("short", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=100_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(PROFILE)


def pytest_configure() -> None:
    """A shell that runs this in the background has SIGINT ignored, here and in all that is started from here."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _rank(item: pytest.Item) -> int:
    folder = item.path.relative_to(HERE).parts[0]
    return SLOW_FIRST.index(folder) if folder in SLOW_FIRST else len(SLOW_FIRST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests start first; and the time limit that catches a hanging test must not end a long search."""
    items.sort(key=_rank)
    if PROFILE != "long":
        return
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.timeout(0))
