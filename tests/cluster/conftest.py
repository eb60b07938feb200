"""Fixtures of tests with real clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from cluster.clients import Clients


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[Clients]:
    """Clients that end with the test."""
    found = Clients()
    yield found
    await found.close()
