"""The table of persistent sessions: which lines there are, and which figures meet their targets."""

from __future__ import annotations

import pytest
from benchmarks.sessions.__main__ import effort_of, parse, table, verdict
from benchmarks.sessions.cases import LINES, Found

GOOD: Found = {
    "connects": {"rate": 4_000, "p99_ms": 1},
    "connect": {"p50_ms": 5, "p99_ms": 9},
    "connects-single": {"rate": 1, "p99_ms": 1},
    "online": {"rate": 500, "mosquitto": 100, "times": 5, "lost": 0},
    "capture": {"times": 1.3, "bytes": 1},
    "publish": {"rate": 1, "alone": 2, "percent": 50},
    "return": {"seconds": 60, "served_percent": 100, "received": 1, "refused": 0, "connected_s": 1, "grown_mb": 300},
    "takeover": {"p50_ms": 10, "p99_ms": 50},
    "memory": {"kb": 3},
    "failover": {"seconds": 2, "most": 3},
}
BAD: Found = {
    "connects": {"rate": 3_999},
    "connect": {"p50_ms": 5.1},
    "online": {"times": 6, "lost": 1},
    "capture": {"times": 1.31},
    "publish": {"percent": 49},
    "return": {"seconds": 10, "served_percent": 99, "grown_mb": 1},
    "takeover": {"p50_ms": 1, "p99_ms": 51},
    "memory": {"kb": 3.1},
}


def test_every_line_can_be_shown() -> None:
    effort = effort_of(parse(["--quick"]))
    assert {line.name for line in LINES} == set(GOOD)
    assert table(GOOD, "title", effort).row_count == len(LINES)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_targets(line: object) -> None:
    [found] = [one for one in LINES if one is line]
    assert verdict(found, GOOD) is (None if found.judge is None else True)
    assert verdict(found, BAD) is (None if found.judge is None else False)
    assert verdict(found, {}) is None
