"""`cluster join` and `cluster leave`: a node that runs goes to another cluster, or becomes one of its own.

```
 leave   others take over what it stores --> the move is noted --> clients go to other nodes --> restart: a new cluster
 join    the same, if it was among others --------------------------------------------------> restart: the other cluster
```
The node restarts within its process. The old life ends with goodbyes, ``move_note`` changes the data folder, and the
next life starts in the other cluster. Data that no other node took over stays in the data folder, under another name.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from flockmq.cluster.model import ALIVE, LEFT
from flockmq.drivers.clock import now_ms
from flockmq.drivers.links import HelloError
from flockmq.durable.state.group0 import GROUP
from flockmq.errors import FlockError
from flockmq.gossip.member import EDGE
from flockmq.peering.contact import parse_contact
from flockmq.peering.joining import MOVE, REFUSE, Belongings, plan_join, plan_leave
from flockmq.server.link_address import unreachable_from
from flockmq.server.move_note import Acquaintance, MoveNote, write_note

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from flockmq.admin.cluster_model import JoinResult
    from flockmq.durable.node import DurableNode
    from flockmq.server.cluster import ClusterService

PART_S_MAX: Final = 25.0
JOIN_S_MAX: Final = 15.0
READY_S_MAX: Final = 5.0
SEND_S_MAX: Final = 2.0
T = TypeVar("T")


class Restart(Protocol):
    """The owner of a node's lives."""

    def fail(self, reason: str) -> None:
        """End the whole node, with this sentence."""

    def started(self) -> None:
        """The cluster's side of this life runs."""

    def belongs(self, cluster_id: str) -> None:
        """The node has come into this cluster."""

    async def restart(self, contact_points: tuple[str, ...]) -> tuple[ClusterService, str]:
        """End this life, finish the move that is noted, begin the next life with these contact points.

        The next life's cluster side, and where the old store is; empty when it was not kept.
        """


class ClusterMoves:
    """See the module. One move at a time; once begun it goes on, even when its caller no longer waits."""

    def __init__(self, service: ClusterService, owner: Restart) -> None:
        self._service = service
        self._owner = owner
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Future[Any]] = set()

    async def join(self, address: str, discard_data: bool) -> JoinResult:
        """Become part of another node's cluster; FlockError says why not."""
        return await asyncio.shield(self._task(self._join(address, discard_data)))

    async def leave(self, discard_data: bool) -> JoinResult:
        """Take leave of the others and be a cluster of one, once they have all that this node stored for them."""
        return await asyncio.shield(self._task(self._leave(discard_data)))

    async def wait_whole(self) -> None:
        """Wait, but not for long, until a node alone knows itself and can store topics."""
        await self._wait(self._is_whole)

    async def _join(self, address: str, discard_data: bool) -> JoinResult:
        service = self._service
        contact = parse_contact(address.rpartition("@")[2])
        refusal = unreachable_from(contact, service.me)
        if refusal:
            raise FlockError(refusal)
        async with self._lock:
            try:
                info = await service.links.call(contact.host, contact.port)
            except HelloError as error:
                if error.peer is None or not error.peer.cluster_id:
                    raise
                info = error.peer
            target = info.cluster_id
            plan = plan_join(self._belongings(), target, discard_data=discard_data)
            if plan.kind == REFUSE:
                raise FlockError(plan.reason)
            if plan.kind != MOVE:
                service.node.swim.join([(contact.host, contact.port)], now_ms())  # it may not know the other nodes
                return _result(target, changed=False)
            if plan.leave_first:
                await self._part("`flockmq cluster leave --discard-data` goes all the same.")
            met = Acquaintance(info.node_id, info.name, contact.host, contact.port)
            keep = not plan.leave_first and self._has_something()
            await self._go(MoveNote(service.node.cluster_id, target, keep, met))
            there, kept = await self._owner.restart((*service.config.contact_points, str(contact)))
            await _wait_for_others(there)
            return _result(target, changed=True, set_aside=kept)

    async def _leave(self, discard_data: bool) -> JoinResult:
        service = self._service
        async with self._lock:
            plan = plan_leave(self._belongings(), discard_data=discard_data)
            if plan.kind == REFUSE:
                raise FlockError(plan.reason)
            if plan.kind != MOVE:
                return _result(service.node.cluster_id, changed=False)
            if plan.hand_over:
                await self._part("Repeat with --discard-data to leave all the same.")
            keep = not plan.hand_over and self._has_something()
            note = MoveNote(service.node.cluster_id, secrets.randbits(63) + 1, keep)
            await self._go(note)
            _, kept = await self._owner.restart(())
            return _result(note.cluster_id, changed=True, set_aside=kept)

    # --- what is there ---

    def _belongings(self) -> Belongings:
        service = self._service
        alive = len(service.node.swim.alive())
        state = service.durable.node.meta.state
        topics = state.user_topic_count()
        known = max(alive, sum(1 for one in state.nodes.values() if one.state != LEFT))
        is_edge = service.node.swim.me.role == EDGE
        return Belongings(service.node.cluster_id, alive, topics, len(service.broker.sessions), known, is_edge)

    def _has_something(self) -> bool:
        """Whether this node stores data that would be lost with it."""
        node = self._service.durable.node
        state = node.meta.state
        is_used = bool(state.topics or state.clients or len(state.namespaces) > 1)
        return is_used or bool(node.engine.replicas.keys() - {GROUP})

    def _is_whole(self) -> bool:
        service = self._service
        if service.node.swim.me.role == EDGE:
            return True
        me = service.durable.node.meta.state.nodes.get(service.node.node_id)
        return me is not None and me.state == ALIVE and service.durable.node.is_ready()

    # --- what is done ---

    async def _part(self, otherwise: str) -> None:
        """Let the others take over replicas and votes; FlockError when they can't."""
        node = self._service.durable.node
        node.set_leaving(True)
        try:
            await self._hand_all_over(node, otherwise)
        except BaseException:
            node.set_leaving(False)  # this node stays, and is to get replicas and a vote again
            raise

    async def _hand_all_over(self, node: DurableNode, otherwise: str) -> None:
        until = time.monotonic() + PART_S_MAX
        while node.belongings():
            if time.monotonic() > until:
                raise FlockError(
                    f"{node.belongings()} replicas could not be moved to other nodes within {PART_S_MAX:g} s, so this "
                    "node stays. See `flockmq cluster status`: most of the others must be there, and have room. "
                    + otherwise
                )
            node.hand_over()
            await asyncio.sleep(0.1)

    async def _go(self, note: MoveNote) -> None:
        """Note the move, and send the clients of this node to others. From here on the move can't fail."""
        service = self._service
        await asyncio.to_thread(write_note, service.folder, note)
        service.broker.move_out(now_ms())
        await self._wait(self._has_sent_all, SEND_S_MAX)

    def _has_sent_all(self) -> bool:
        """Whether no message of this node is on its way into a log, such as wills of clients that left."""
        return not self._service.durable.node.engine.appends.without_outcome()

    async def _wait(self, condition: Callable[[], bool], seconds: float = READY_S_MAX) -> None:
        """Wait until the condition holds, or the time is over."""
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until:
            self._service.runner.runner.flush_soon()
            await asyncio.sleep(0.02)

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _wait_for_others(service: ClusterService) -> None:
    until = time.monotonic() + JOIN_S_MAX
    while len(service.node.swim.alive()) < 2:
        if time.monotonic() > until:
            raise FlockError(
                "This node belongs to that cluster now, but none of its nodes answers by UDP; check that the port "
                "is open for UDP, too. It goes on trying."
            )
        await asyncio.sleep(0.05)


def _result(cluster_id: int, *, changed: bool, set_aside: str = "") -> JoinResult:
    from flockmq.admin.cluster_model import JoinResult

    return JoinResult(id=f"{cluster_id:016x}", changed=changed, set_aside=set_aside)
