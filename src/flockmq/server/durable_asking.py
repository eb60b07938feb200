"""Answers of ``durable/``, promises or callbacks, as something to await.

A caller that went away is not told. An answer that never comes is given up.
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
"""Everything that is asked answers by itself sooner than that, if only to say that it can't."""
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
        node.logs.tasks.now = now_ms()  # the present, for what is asked next
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
        """For an answer that comes, or never does because this life of the node ends."""
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
