"""What integration tests share: both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from integration.support.node import Run

SCENARIO_S_MAX = 60
"""uvloop keeps signals to itself, so the time limit of pytest can't end a scenario that hangs."""
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine to its end, once on each kind of event loop."""

    def run_one(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(scenario, SCENARIO_S_MAX))

    return run_one
