"""Turns answers of ``durable/``, promises or callbacks, into awaitables.

An answer for a caller that went away is dropped. A wait without an answer ends after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flockmq.drivers.clock import now_ms
from flockmq.errors import NoAnswer, NotReady

if TYPE_CHECKING:
    from flockmq.durable.node import DurableNode
    from flockmq.server.cluster import ClusterService
    from flockmq.tasks import Promise

ANSWER_S_MAX: Final = 15.0
"""Longer than any question takes to answer or to fail by itself."""
T = TypeVar("T")


class Asking:
    """Asks this node and others."""

    def __init__(self, service: ClusterService) -> None:
        self._service = service
        self._node = service.durable.node

    def _working(self) -> DurableNode:
        """The node, when it can ask others and answer for itself."""
        node = self._node
        if node.engine.stopped:
            raise NotReady(f"This node takes part no more: {node.engine.stopped} Ask another one.")
        node.logs.tasks.now = now_ms()  # the present time, for the next question
        return node

    async def _await(self, promise: Promise[T], within_s: float = ANSWER_S_MAX) -> T:
        return await self._reply(promise.then, within_s)

    async def _reply(self, ask: Callable[[Callable[[T], None]], None], within_s: float = ANSWER_S_MAX) -> T:
        answered = self._future(ask)
        self._service.runner.runner.flush_soon()
        try:
            async with asyncio.timeout(within_s):
                return await answered
        except TimeoutError:
            raise NoAnswer from None

    def _future(self, ask: Callable[[Callable[[T], None]], None]) -> asyncio.Future[T]:
        answered: asyncio.Future[T] = self._expected()
        self._service.node.calls.tasks.now = now_ms()
        try:
            ask(unless_done(answered))
        except BaseException:
            answered.cancel()
            raise
        return answered

    def _expected(self) -> asyncio.Future[Any]:
        """A future for an answer. The end of this life of the node fails it."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        expected = self._service.durable.expected
        expected.add(answered)
        answered.add_done_callback(expected.discard)
        return answered

    async def _call(self, peer: int, kind: int, body: bytes) -> bytes | None:
        calls = self._service.node.calls
        return await self._await(calls.ask(peer, kind, body))


def unless_done(answered: asyncio.Future[T]) -> Callable[[T], None]:
    """Set the answer, unless the caller stopped waiting."""

    def answer(value: T) -> None:
        if not answered.done():
            answered.set_result(value)

    return answer
